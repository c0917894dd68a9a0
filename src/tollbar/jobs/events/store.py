"""Statements on events. A reader never passes a place where an older transaction may still add one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, func, insert, literal_column, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.jobs.events.tables import EventRow

_TX: Final = literal_column("pg_current_xact_id()::text::bigint")
_SETTLED: Final = EventRow.tx < literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger())
"""Every transaction before has ended, so nothing can appear in front of such a row any more."""

_ONE_REASON: Final = text(
    """
    SELECT job_id, least_reason FROM (
      SELECT asked.id AS job_id,
             (SELECT min(reason) FROM trial WHERE job_id = asked.id AND state = 'failed') AS least_reason,
             (SELECT max(reason) FROM trial WHERE job_id = asked.id AND state = 'failed') AS most_reason
        FROM unnest(CAST(:ids AS text[])) AS asked(id)) found
     WHERE least_reason = most_reason
    """
)


async def add(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Adds events in one statement; each row names `job_id`, `project_id`, `type` and what else it has to say."""
    values = [{"tx": _TX, "at": func.clock_timestamp(), **_EMPTY, **row} for row in rows]
    if values:
        await session.execute(insert(EventRow).values(values))


_EMPTY: Final[dict[str, Any]] = {
    "trial_id": None, "status": None, "reason": None, "detail": None, "message": None, "try_no": None,
}  # fmt: skip


async def page(
    session: AsyncSession,
    actor: Principal,
    job_id: str,
    *,
    trial_id: str | None = None,
    after: tuple[int, int] | None,
    limit: int,
) -> list[EventRow]:
    """Returns up to `limit` events of a Job, or of one of its Trials, oldest first, after that (tx, id)."""
    query = _of(actor, job_id, trial_id).where(_SETTLED)
    if after is not None:
        query = query.where(tuple_(EventRow.tx, EventRow.id) > tuple_(*after))
    return list(await session.scalars(query.order_by(EventRow.tx, EventRow.id).limit(limit)))


async def last(
    session: AsyncSession, actor: Principal, job_id: str, *, trial_id: str | None, limit: int
) -> list[EventRow]:
    """Returns the last `limit` events, oldest first."""
    query = _of(actor, job_id, trial_id).where(_SETTLED).order_by(EventRow.tx.desc(), EventRow.id.desc())
    return list(reversed(list(await session.scalars(query.limit(limit)))))


async def has_unsettled(session: AsyncSession, job_id: str) -> bool:
    """Says whether events of the Job wait behind an older transaction that is still open."""
    query = select(EventRow.id).where(EventRow.job_id == job_id).order_by(EventRow.tx.desc()).limit(1)
    return await session.scalar(query.where(~_SETTLED)) is not None


async def only_reasons(session: AsyncSession, job_ids: Sequence[str]) -> dict[str, str]:
    """Returns the one reason of all failed Trials of a Job, for Jobs whose failures have only one."""
    return {row[0]: row[1] for row in await session.execute(_ONE_REASON, {"ids": list(job_ids)})}


async def forget_transactions(session: AsyncSession) -> None:
    """Makes every event one of the past, in the order in which readers had them: numbers below every transaction's.

    After a restore the numbers of another server's transactions mean nothing, and this server's begin anew.
    """
    await session.execute(text("UPDATE job_event SET tx = tx - 1 - (SELECT max(tx) FROM job_event)"))


def _of(actor: Principal, job_id: str, trial_id: str | None) -> Any:
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.project_id == actor.project_id)
    return query if trial_id is None else query.where(EventRow.trial_id == trial_id)
