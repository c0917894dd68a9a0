"""Events and log lines of the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tollbar.access.principal import Principal
from tollbar.jobs.events.tables import EventRow
from tollbar.kit.clock import wire_time

_PHASES: Final[Mapping[str, str]] = {
    "trial.started": "prepare",
    "trial.agent_started": "agent",
    "trial.sealed": "seal",
    "trial.verifier_started": "verifier",
}
_WORDS: Final[Mapping[str, str]] = {
    "job.submitted": "submitted by {message}",
    "job.expanded": "{message} Trials wait",
    "job.started": "the Job begins",
    "job.stop_requested": "stopped by {message}",
    "job.stopping": "the Job stops",
    "job.warned": "every Trial so far ended without a reward for the same reason",
    "task.refused": "cannot run here: {message}",
    "trial.started": "a sandbox is prepared",
    "trial.agent_started": "the agent begins",
    "trial.sealed": "the agent ended ({message}), its work is sealed",
    "trial.verifier_started": "the verifier begins",
    "trial.network_refused": "the task's network is closed for {message}",
    "trial.stopping": "the Trial is being stopped",
    "trial.retried": "the try came to nothing, the next one is number {try_no}",
}
_RUNTIME: Final = "the output of each Trial: /v1/trials/TRIAL/artifacts"


def who(actor: Principal) -> str:
    """Returns whom an event names: kind and id of the key or session, never a secret."""
    return f"{actor.kind} {actor.key_id}"


def event_object(row: EventRow) -> dict[str, Any]:
    """Returns an event: `resource_id` is the Trial's id, or the Job's."""
    return {
        "id": str(row.id),
        "type": row.type,
        "resource_id": row.trial_id or row.job_id,
        "status": row.status,
        "reason": row.reason,
        "reason_detail": row.detail,
        "message": row.message,
        "try_no": row.try_no,
        "at": wire_time(row.at),
        "source": "system",
    }


def log_item(row: EventRow) -> dict[str, Any]:
    """Returns an event as a line of a log."""
    return {
        "id": str(row.id),
        "at": wire_time(row.at),
        "source": "system",
        "stream": None,
        "level": _level(row),
        "phase": _PHASES.get(row.type),
        "code": row.reason,
        "trial_id": row.trial_id,
        "content": _content(row),
    }


def _level(row: EventRow) -> str:
    if row.type in {"job.warned", "task.refused", "trial.retried", "trial.network_refused"}:
        return "warning"
    return "error" if row.status == "failed" and row.type.endswith(".ended") else "info"


def _content(row: EventRow) -> str:
    if row.type == "trial.ended" and row.status == "succeeded":
        return f"succeeded, reward {row.message}"
    if row.type in {"trial.ended", "job.ended"}:
        return ": ".join(part for part in (row.status, _because(row)) if part)
    text = _WORDS.get(row.type, row.type).format(message=row.message, try_no=row.try_no)
    if row.type == "task.refused":
        return text
    why = _because(row, with_message=row.type in {"trial.retried", "job.stopping"})
    return f"{text}: {why}" if why else text


def _because(row: EventRow, *, with_message: bool = True) -> str | None:
    code = row.reason if row.detail is None else f"{row.reason} ({row.detail})"
    return " ".join(part for part in (code, row.message if with_message else None) if part) or None


def log_page(rows: Sequence[EventRow], next_cursor: str, *, has_more: bool, eof: bool) -> dict[str, Any]:
    """Returns a part of a log. `eof`: nothing will ever follow."""
    return {
        "items": [log_item(row) for row in rows],
        "next_cursor": next_cursor,
        "has_more": has_more,
        "eof": eof,
        "collection_status": "complete",
        "truncated": False,
        "dropped_bytes": 0,
        "sources": [{"name": "system", "missing_reason": None}, {"name": "runtime", "missing_reason": _RUNTIME}],
    }
