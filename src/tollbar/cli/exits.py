"""The exit codes, in one table. They are part of the interface: scripts depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    SIGN_IN = 4
    REFUSED = 5
    BELOW = 6
    CAPPED = 7
    GATE = 8
    INTERRUPTED = 130


@dataclass(frozen=True)
class Meaning:
    """One row of the table: the code in a word or two, when it is given, and the HTTP statuses that lead to it."""

    word: str
    when: str
    http: str = ""


MEANINGS: Final[Mapping[Exit, Meaning]] = {
    Exit.DONE: Meaning("done", "it worked"),
    Exit.FAILED: Meaning("failed", "Job failed or stopped; no answer", "409 410 412 429 5xx"),
    Exit.USAGE: Meaning("usage", "a wrong option or value", "400 413 415 422"),
    Exit.NOT_FOUND: Meaning("not found", "there is no such thing", "404"),
    Exit.SIGN_IN: Meaning("sign in", "no usable key", "401"),
    Exit.REFUSED: Meaning("refused", "the key may not do this", "403"),
    Exit.BELOW: Meaning("below the bar", "the score is below --fail-under"),
    Exit.CAPPED: Meaning("stopped by a cap", "BUDGET_EXCEEDED, BUDGET_UNMETERED", "402"),
    Exit.GATE: Meaning("waiting at a gate", "a run waits for a person"),
    Exit.INTERRUPTED: Meaning("interrupted", "Ctrl-C; the server goes on"),
}

_BY_STATUS: Final[Mapping[int, Exit]] = {
    400: Exit.USAGE,
    401: Exit.SIGN_IN,
    402: Exit.CAPPED,
    403: Exit.REFUSED,
    404: Exit.NOT_FOUND,
    413: Exit.USAGE,
    415: Exit.USAGE,
    422: Exit.USAGE,
}
_CAP_CODES: Final = frozenset({"BUDGET_EXCEEDED", "BUDGET_UNMETERED"})


def of_status(status: int) -> Exit:
    """Returns the exit code of a refused or failed request."""
    return _BY_STATUS.get(status, Exit.FAILED)


def of_job(job: Mapping[str, Any]) -> Exit:
    """Returns the exit code of a Job: one that has not ended yet, or has completed, is `DONE`."""
    if not job["final"] or job["status"] == "completed":
        return Exit.DONE
    return Exit.CAPPED if was_capped(job) else Exit.FAILED


def was_capped(job: Mapping[str, Any]) -> bool:
    """Says whether a cap ended the Job."""
    error = job.get("error") or {}
    return error.get("code") in _CAP_CODES
