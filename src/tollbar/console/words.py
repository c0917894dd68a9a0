"""How values are written on a page: money, scores, times, states. What is unknown is `-`, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any, Final

from tollbar.jobs.states import JobErrorCode, JobState, Reason

UNKNOWN: Final = "-"
_CENT: Final = Decimal("0.01")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

SYMBOLS: Final[Mapping[str, str]] = {
    JobState.PENDING: "○",
    JobState.RUNNING: "◐",
    JobState.STOPPING: "◑",
    JobState.COMPLETED: "●",
    JobState.FAILED: "✗",
    JobState.CANCELLED: "■",
}
"""One sign per state of a Job; its word always stands beside it."""

REASONS: Final[Mapping[str, str]] = {
    Reason.ENVIRONMENT_REFUSED: "The sandbox cannot give what the task asks; nothing was started.",
    Reason.ENVIRONMENT_BUILD_FAILED: "The task's environment could not be built.",
    Reason.ENVIRONMENT_START_FAILED: "The sandbox did not come up.",
    Reason.AGENT_SETUP_FAILED: "The agent could not be made ready.",
    Reason.SANDBOX_OOM: "The sandbox as a whole ran out of memory.",
    Reason.SANDBOX_LOST: "The sandbox ended from outside, or its files could not be read.",
    Reason.MODEL_UNAVAILABLE: "The model's provider failed, not the agent.",
    Reason.VERIFIER_FAILED: "The verifier could not be run, or said that it cannot judge.",
    Reason.VERIFIER_TIMEOUT: "The verifier ran out of time.",
    Reason.VERIFIER_INPUT_MISSING: "What was sealed could not be given to the verifier.",
    Reason.REWARD_MISSING: "The verifier wrote no reward.",
    Reason.REWARD_INVALID: "The verifier wrote a reward that is none.",
    Reason.REWARD_TOO_LARGE: "The reward file is larger than 64 KiB.",
    Reason.CANCELLED: "A person stopped the Job.",
    Reason.BUDGET_EXCEEDED: "The cap stopped the Job.",
    Reason.BUDGET_UNMETERED: "The Job stopped because its usage could not be priced.",
    Reason.INTERNAL_ERROR: "A fault of tollbar itself.",
}
"""Why a Trial has no reward, in a sentence."""

ENDINGS: Final[Mapping[str, str]] = {
    JobErrorCode.PREPARATION_FAILED: "The Job's Trials could not be made.",
    JobErrorCode.NO_TRIAL_SCORED: "No Trial has a reward, so there is no score.",
    JobErrorCode.BUDGET_EXCEEDED: "Stopped by its cap",
    JobErrorCode.BUDGET_UNMETERED: "Stopped because its usage cannot be priced",
    JobErrorCode.INTERNAL_ERROR: "Ended by a fault of tollbar itself",
}
"""Why a Job failed or was ended by the system, as a heading."""


def money(usd: str | None) -> str:
    """Returns an amount with two decimals, below a cent with two significant digits, and its currency."""
    if usd is None:
        return UNKNOWN
    amount = Decimal(usd)
    with localcontext() as context:
        context.prec = 2 if 0 < amount < _CENT else 40
        shown = +amount if 0 < amount < _CENT else amount.quantize(_CENT)
    return f"{shown:f} USD"


def exact(usd: str | None) -> str:
    """Returns an amount as the ledger has it."""
    return UNKNOWN if usd is None else f"{usd} USD"


def number(value: float | None) -> str:
    """Returns a score with up to four decimals; one below 1 is never shown as 1."""
    if value is None:
        return UNKNOWN
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0.9999" if text == "1" and value < 1 else text


def interval(value: list[float] | None) -> str | None:
    """Returns `0.61 to 1`, or None."""
    return None if value is None else f"{number(value[0])} to {number(value[1])}"


def moment(wire: str | None, now: datetime) -> dict[str, str] | None:
    """Returns a wire time for machines (`iso`), as an age (`ago`), and in full (`full`, UTC)."""
    if wire is None:
        return None
    at = datetime.fromisoformat(wire)
    passed_s = int((now - at).total_seconds())
    ago = "now" if passed_s < 1 else f"{_length(passed_s)} ago"
    return {"iso": wire, "ago": ago, "full": f"{at.day} {at:%b %Y, %H:%M:%S} UTC"}


def duration(start: str | None, end: str | None) -> str | None:
    """Returns how long something took, such as `2 min 5 s`; None when it has not begun or not ended."""
    if start is None or end is None:
        return None
    passed_s = max(0, round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()))
    for (length_s, unit), (below_s, below) in pairwise(_UNITS):
        if passed_s >= length_s:
            rest = passed_s % length_s // below_s
            return f"{passed_s // length_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{passed_s} s"


def _length(passed_s: int) -> str:
    length_s, unit = next(found for found in _UNITS if passed_s >= found[0])
    return f"{passed_s // length_s} {unit}"


def plural(count: int, noun: str) -> str:
    """Returns `1 Trial`, `2 Trials`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def profile(job: Mapping[str, Any]) -> str:
    """Returns `name@version` of a Job's profile."""
    return f"{job['profile']['name']}@{job['profile']['version']}"


def runner(job: Mapping[str, Any]) -> str:
    """Returns `name@label` of a Job's runner, or its whole revision where it has no label."""
    return f"{job['runner']['name']}@{job['runner']['source_ref'] or job['runner']['revision']}"


def dataset(job: Mapping[str, Any]) -> str:
    """Returns `name@version` of a Job's dataset."""
    return f"{job['dataset_ref']['name']}@{job['dataset_ref']['version']}"
