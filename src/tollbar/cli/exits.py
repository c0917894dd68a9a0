"""The exit codes, in one table. They are part of the interface: scripts depend on them."""

from __future__ import annotations

from collections.abc import Mapping
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


MEANINGS: Final[Mapping[Exit, tuple[str, str]]] = {
    Exit.DONE: ("done", "it worked"),
    Exit.FAILED: ("failed", "the Job failed or was stopped, HTTP 409, 410, 412, 429, 5xx, or no answer"),
    Exit.USAGE: ("usage", "a wrong option or value, HTTP 400, 413, 415, 422"),
    Exit.NOT_FOUND: ("not found", "HTTP 404"),
    Exit.SIGN_IN: ("sign in", "no usable key, HTTP 401"),
    Exit.REFUSED: ("refused", "the key may not do this, HTTP 403"),
    Exit.BELOW: ("below the bar", "the score is below --fail-under"),
    Exit.CAPPED: ("stopped by a cap", "BUDGET_EXCEEDED or BUDGET_UNMETERED, HTTP 402"),
    Exit.GATE: ("waiting at a gate", "a run waits for a person"),
    Exit.INTERRUPTED: ("interrupted", "Ctrl-C; what runs on the server goes on"),
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
