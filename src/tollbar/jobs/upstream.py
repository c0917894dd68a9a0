"""Whether a model, and not the agent, brought a run to nothing: decided from the ledger, never from an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tollbar.budget.usage import Used
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import Reason

_BY_STATUS: Final[Mapping[int, str]] = {
    401: "auth",
    402: "auth",
    403: "auth",
    404: "not_found",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}
_BY_OUTCOME: Final[Mapping[str, str]] = {
    "connect_error": "connection",
    "reset": "connection",
    "timeout": "stalled",
    "stream_error": "server_error",
}
_FOR_GOOD: Final = frozenset({"auth", "not_found", "bad_request"})
"""What no other try will mend."""


def failure(calls: Sequence[Used]) -> Failure | None:
    """Returns why the last model call of a run that ended abnormally failed at its provider; None: it did not."""
    if not calls:
        return None
    detail = _detail(calls[-1])
    if detail is None:
        return None
    status = calls[-1].http_status
    said = "no answer" if status is None else f"HTTP status {status}"
    message = f"The agent gave up after its model's provider failed ({detail}, {said})."
    return Failure(Reason.MODEL_UNAVAILABLE, detail, message, for_good=detail in _FOR_GOOD)


def _detail(call: Used) -> str | None:
    outcome = call.outcome or ""
    if outcome in _BY_OUTCOME:
        return _BY_OUTCOME[outcome]
    if outcome not in {"http_error", "http_gateway"} or call.http_status is None:
        return None
    if call.http_status in _BY_STATUS:
        return _BY_STATUS[call.http_status]
    return "server_error" if call.http_status >= 500 or outcome == "http_gateway" else "bad_request"
