"""Events and logs of Jobs and Trials as they are read, and what is told beside the moves of a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.jobs import lookup
from tollbar.jobs.errors import InvalidLogSource, LogCursorInvalid
from tollbar.jobs.events import schemas, store
from tollbar.jobs.events.tables import EventRow
from tollbar.jobs.states import JOB_TERMINAL, TRIAL_TERMINAL
from tollbar.kit.errors import InvalidCursor, InvalidLimit, InvalidRequest
from tollbar.kit.paging import Page, PageRequest, page_request

SOURCES: Final = ("all", "system", "runtime")
LOG_LIMIT: Final = 1000
_LOG_DEFAULT: Final = 200
_START: Final = [-(1 << 62), 0]
"""Before every event, also before those of a restored server, whose transactions count below 0."""


@dataclass(frozen=True)
class LogRequest:
    """What a caller asked of a log, as it was sent."""

    source: str | None = None
    cursor: str | None = None
    tail: str | None = None
    limit: str | None = None

    def read(self, actor: Principal, subject: str) -> tuple[str, PageRequest, int | None]:
        """Returns source, page and how many of the last lines; raises what is wrong with them."""
        source = self.source or "all"
        if source not in SOURCES:
            raise InvalidLogSource
        if self.cursor is not None and self.tail is not None:
            raise InvalidRequest([{"path": "tail", "problem": "cannot stand beside cursor"}])
        scope = {"route": "logs", "project": actor.project_id, "of": subject, "source": source}
        try:
            page = page_request(self.limit, self.cursor, scope=scope, default=_LOG_DEFAULT, maximum=LOG_LIMIT)
            page.start(int, int)
        except InvalidCursor:
            raise LogCursorInvalid from None
        if self.tail is None:
            return source, page, None
        if not self.tail.isascii() or not self.tail.isdigit() or not 1 <= int(self.tail[:9]) <= LOG_LIMIT:
            raise InvalidLimit(LOG_LIMIT)
        return source, page, int(self.tail)


async def events_page(session: AsyncSession, actor: Principal, job_id: str, page: PageRequest) -> Page[dict[str, Any]]:
    """Returns a page of what happened to a Job and its Trials, oldest first."""
    await lookup.job_row(session, actor, job_id)
    start = page.start(int, int)
    after = None if start is None else (start[0], start[1])
    rows = await store.page(session, actor, job_id, after=after, limit=page.limit + 1)
    cut = page.page(rows, lambda row: [row.tx, row.id])
    return Page([schemas.event_object(row) for row in cut.items], cut.next_cursor)


async def job_log(session: AsyncSession, actor: Principal, job_id: str, asked: LogRequest) -> dict[str, Any]:
    """Returns a part of a Job's log; its `next_cursor` goes on from there, also at the end of what there is."""
    job = await lookup.job_row(session, actor, job_id)
    return await _log(session, actor, job_id, None, asked, is_over=job.state in JOB_TERMINAL)


async def trial_log(session: AsyncSession, actor: Principal, trial_id: str, asked: LogRequest) -> dict[str, Any]:
    """Returns a part of one Trial's log."""
    trial = await lookup.trial_row(session, actor, trial_id)
    return await _log(session, actor, trial.job_id, trial_id, asked, is_over=trial.state in TRIAL_TERMINAL)


async def _log(
    session: AsyncSession, actor: Principal, job_id: str, trial_id: str | None, asked: LogRequest, *, is_over: bool
) -> dict[str, Any]:
    source, page, tail = asked.read(actor, trial_id or job_id)
    start = page.start(int, int) or _START
    rows: Sequence[EventRow] = []
    if source == "runtime":
        has_more = False
    elif tail is not None:
        rows, has_more = await store.last(session, actor, job_id, trial_id=trial_id, limit=tail), False
    else:
        after = (start[0], start[1])
        found = await store.page(session, actor, job_id, trial_id=trial_id, after=after, limit=page.limit + 1)
        rows, has_more = found[: page.limit], len(found) > page.limit
    position = [rows[-1].tx, rows[-1].id] if rows else list(start)
    eof = is_over and not has_more and not await store.has_unsettled(session, job_id)
    return schemas.log_page(rows, page.cursor(position), has_more=has_more, eof=eof)


def submitted(
    job_id: str, project_id: str, actor: Principal, refused: Sequence[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Returns the first events of a Job: who submitted it, and which tasks cannot run and why."""
    whose = {"job_id": job_id, "project_id": project_id}
    first = {**whose, "type": "job.submitted", "status": "pending", "message": schemas.who(actor)}
    return [
        first,
        *(
            {
                **whose,
                "type": "task.refused",
                "reason": "ENVIRONMENT_REFUSED",
                "detail": one["detail"],
                "message": f"{one['task']}: {one['message']}",
            }
            for one in refused
        ),
    ]


def stop_requested(job_id: str, project_id: str, actor: Principal) -> dict[str, Any]:
    """Returns the event of a person who stops a Job."""
    whose = {"job_id": job_id, "project_id": project_id}
    return {**whose, "type": "job.stop_requested", "message": schemas.who(actor)}


def network_refused(trial: Any, try_no: int, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the events of hosts that a phase of a Trial asked for and did not get."""
    whose = {"job_id": trial.job_id, "trial_id": trial.id, "project_id": trial.project_id, "try_no": try_no}
    return [{**whose, "type": "trial.network_refused", "message": text} for text in texts]


def retried(trial: Any, try_no: int, reason: str | None, detail: str | None, message: str | None) -> dict[str, Any]:
    """Returns the event of a Trial whose try came to nothing and that waits for its next one."""
    return {
        "job_id": trial.job_id,
        "trial_id": trial.id,
        "project_id": trial.project_id,
        "type": "trial.retried",
        "status": "pending",
        "reason": reason,
        "detail": detail,
        "message": message,
        "try_no": try_no + 1,
    }
