"""The pump: admits Trials fairly from our own table, ahead of free slots, so that no slot waits for a queue poll."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import Database
from tollbar.engine.errors import WorkExists
from tollbar.engine.port import Engine, Work
from tollbar.engine.queues import trials
from tollbar.jobs import store
from tollbar.jobs.admission import store as admission
from tollbar.jobs.retries import LOSS_BOUND

PUMP_LOCK: Final = 1
PROJECT_LIMIT: Final = 256

_log = structlog.get_logger()

Capacity = Callable[[AsyncSession], Awaitable[Mapping[str, int]]]
"""Returns by backend how many Trials the living workers may hold together, running and claimed ahead."""


@dataclass(frozen=True)
class Pump:
    """Moves Trials from `pending` to `admitted` and enqueues them in the same transaction."""

    database: Database
    engine: Engine
    capacity: Capacity
    project_limit: int = PROJECT_LIMIT
    """Trials of one project that may run at once."""

    async def run_once(self) -> int:
        """Admits what fits now and returns how many; 0 when another process holds the pump's lock."""
        async with self.database.transaction() as session:
            if not await admission.pump_lock(session, PUMP_LOCK):
                return 0
            load = await admission.load(session)
            admitted = 0
            for backend, capacity in sorted((await self.capacity(session)).items()):
                free = capacity - load.get(backend, 0)
                rows = await admission.admit(session, backend, free, self.project_limit) if free > 0 else []
                for row in rows:
                    await self._enqueue(session, row, trials(backend))
                admitted += len(rows)
            return admitted

    async def _enqueue(self, session: AsyncSession, row: Any, queue: str) -> None:
        """Hands one try to the engine; one that the engine knows already gets the next number, or nothing would run."""
        try:
            await self.engine.enqueue(
                session,
                Work(trial_work_id(row.id, row.try_no), "trial", queue, (row.id, row.try_no), row.rank_priority),
            )
        except WorkExists:
            _log.exception("the engine knows this try already", trial_id=row.id, try_no=row.try_no)
            await store.next_try(session, {row.id: row.try_no}, lost=False, bound=LOSS_BOUND)


def trial_work_id(trial_id: str, try_no: int) -> str:
    """Returns the engine's id of one try of a Trial."""
    return f"trial:{trial_id}:{try_no}"


def read_work_id(work_id: str) -> tuple[str, int] | None:
    """Returns (trial, try) of an engine id, or None when it is no Trial's."""
    kind, _, rest = work_id.partition(":")
    trial_id, _, try_no = rest.rpartition(":")
    return (trial_id, int(try_no)) if kind == "trial" and try_no.isdigit() else None
