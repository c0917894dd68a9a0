"""The statements of the pump: of the whole installation, since slots are shared by every project."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Row, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.jobs.states import TRIAL_ACTIVE, TrialState
from tollbar.jobs.tables import TrialRow

_IDS: Final = bindparam("ids", type_=ARRAY(TEXT))
_LOADING: Final = (*sorted(TRIAL_ACTIVE), TrialState.ADMITTED.value)

# A row that somebody else is just moving is left to them: whoever waited here could be waited for there.
_ADMIT = text(
    """
    UPDATE trial SET state = 'admitted' WHERE id IN (
      SELECT id FROM trial WHERE id = ANY(:ids) AND state = 'pending' ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id
    """
).bindparams(_IDS)

# Each Job and each project gets its share in turn: `job_rank` counts what a Job already runs. A Job of which a call
# waits for money that others have reserved starts nothing more: it would reserve that money away.
_CHOOSE = text(
    """
    WITH load AS (
      SELECT job_id, count(*) AS n FROM trial
       WHERE state IN ('admitted', 'starting', 'running', 'verifying', 'stopping') GROUP BY job_id),
    project_load AS (
      SELECT j.project_id, sum(l.n) AS n FROM load l JOIN job j ON j.id = l.job_id GROUP BY j.project_id),
    candidate AS (
      SELECT t.id, t.try_no, j.project_id, j.rank_priority,
             coalesce(l.n, 0) + row_number() OVER (PARTITION BY t.job_id ORDER BY t.seq) AS job_rank
        FROM job j LEFT JOIN load l ON l.job_id = j.id
       CROSS JOIN LATERAL (
         SELECT id, try_no, seq, job_id FROM trial WHERE job_id = j.id AND state = 'pending' ORDER BY seq
          LIMIT greatest(j.max_running - coalesce(l.n, 0), 0)) t
       WHERE j.state = 'running' AND j.runner->>'backend' = :backend AND NOT EXISTS (
         SELECT FROM budget b WHERE b.id = j.budget_id AND b.waiting_until > clock_timestamp())),
    ranked AS (
      SELECT c.id, c.try_no, c.rank_priority, c.job_rank,
             coalesce(pl.n, 0) + row_number() OVER (
               PARTITION BY c.project_id ORDER BY c.rank_priority, c.job_rank, c.id) AS project_rank
        FROM candidate c LEFT JOIN project_load pl ON pl.project_id = c.project_id)
    SELECT id, try_no, rank_priority FROM ranked WHERE project_rank <= :project_limit
     ORDER BY rank_priority, project_rank, job_rank, id LIMIT :free
    """
)

_LOAD: Final = text(
    """
    SELECT j.runner->>'backend' AS backend, sum(l.n)::int AS n
      FROM (SELECT job_id, count(*) AS n FROM trial
             WHERE state IN ('admitted', 'starting', 'running', 'verifying', 'stopping') GROUP BY job_id) l
      JOIN job j ON j.id = l.job_id GROUP BY 1
    """
)


async def pump_lock(session: AsyncSession, key: int) -> bool:
    """Takes the pump's lock until the transaction ends, or says no."""
    statement = text("SELECT pg_try_advisory_xact_lock(:space, :key)")
    return bool(await session.scalar(statement, {"space": 0x70_6F_6C, "key": key}))


async def load(session: AsyncSession) -> dict[str, int]:
    """Returns by backend how many Trials are admitted or further on, of all Jobs."""
    return {row.backend: row.n for row in await session.execute(_LOAD)}


async def running_in_project(session: AsyncSession, actor: Principal) -> int:
    """Returns how many Trials of the project are admitted or further on."""
    query = select(func.count()).where(TrialRow.state.in_(_LOADING), TrialRow.project_id == actor.project_id)
    return int(await session.scalar(query) or 0)


async def admit(session: AsyncSession, backend: str, free: int, project_limit: int) -> list[Row[Any]]:
    """Admits at most `free` Trials of Jobs on that backend, fairly; returns their (id, try_no, rank_priority)."""
    asked = {"backend": backend, "free": free, "project_limit": project_limit}
    chosen = list((await session.execute(_CHOOSE, asked)).all())
    if not chosen:
        return []
    moved = await session.execute(_ADMIT, {"ids": [row.id for row in chosen]})
    done = {row[0] for row in moved}
    return [row for row in chosen if row.id in done]
