"""What happens to Trials and Jobs whose worker died, or of which the engine knows nothing any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import service as budget
from tollbar.db.session import Database
from tollbar.engine.port import Engine, EngineState, Work
from tollbar.jobs import endings, store
from tollbar.jobs.pump import read_work_id, trial_work_id
from tollbar.jobs.states import JobState, Reason, TrialState
from tollbar.jobs.tables import TrialRow
from tollbar.kit.clock import Clock

LOSS_BOUND: Final = 3
"""The third loss ends a Trial: what kills its worker every time would otherwise go round for ever."""
_LIVING: Final = frozenset({EngineState.ENQUEUED, EngineState.PENDING, EngineState.DELAYED})
_BATCH: Final = 1000


@dataclass(frozen=True)
class Recovery:
    """Hands Trials of dead workers to the next try, and reconciles our rows with the engine's."""

    database: Database
    engine: Engine
    clock: Clock
    _suspects: set[str] = field(default_factory=set[str])
    """Work that the last pass found without a driver: its worker may be writing its end just then."""

    async def take_over(self, work_ids: Sequence[str], *, lost: bool = True) -> None:
        """Puts Trials (cancelled in the engine already) under their next try; `lost` counts against their bound.

        What a lost try had reserved is written off in full: a loss is never counted as zero.
        """
        tries = [found for found in map(read_work_id, work_ids) if found is not None]
        if not tries:
            return
        async with self.database.transaction() as session:
            live = {row.id: row for row in await store.live_among(session, [trial_id for trial_id, _ in tries])}
            current = [live[trial_id] for trial_id, try_no in tries if _is_current(live.get(trial_id), try_no)]
            await budget.write_off(session, subjects=[f"trial:{row.id}:{row.try_no}" for row in current])
            for row in current:
                if row.state == TrialState.STOPPING:
                    now = self.clock.now()
                    await endings.end_stopping(session, row.job_id, row.id, row.try_no, row.task_seq, now)
            moved = await store.next_try(session, [row.id for row in current], lost=lost, bound=LOSS_BOUND)
            for row in current:
                if row.id not in moved and row.state != TrialState.STOPPING:
                    await self._give_up(session, row)

    async def _give_up(self, session: AsyncSession, row: TrialRow) -> None:
        message = f"Its worker was lost {LOSS_BOUND} times while it ran."
        ending = endings.unscored(Reason.SANDBOX_LOST, "worker", message)
        await endings.end_trial(session, row.job_id, row.id, row.try_no, row.task_seq, ending, self.clock.now())

    async def reconcile(self) -> None:
        """Finds Trials and Jobs that the engine no longer drives and moves them on."""
        async with self.database.session() as session:
            rows = await store.in_engine(session, _BATCH)
            jobs = await store.live_jobs(session)
        known = await self.engine.state([trial_work_id(trial_id, try_no) for trial_id, try_no, _ in rows])
        orphans = [
            trial_work_id(trial_id, try_no)
            for trial_id, try_no, _ in rows
            if known.get(trial_work_id(trial_id, try_no)) not in _LIVING
        ]
        await self.take_over([work_id for work_id in orphans if work_id in self._suspects])
        self._suspects.clear()
        self._suspects.update(orphans)
        work = await self.engine.state([f"job:{job.id}" for job in jobs])
        for job in jobs:
            if not job.expanded and work.get(f"job:{job.id}") not in _LIVING:
                await self._expand_again(job.id)
            else:
                await self._end_if_done(job.id)
        async with self.database.transaction() as session:
            await budget.write_off_expired(session)

    async def _expand_again(self, job_id: str) -> None:
        """Enqueues the expansion once more, under an id of its own: the first one's rows are gone or failed."""
        async with self.database.transaction() as session:
            work_id = f"job:{job_id}:again"
            if await self.engine.state([work_id]):
                return
            await self.engine.enqueue(session, Work(work_id, "job", endings.CONTROL_QUEUE, (job_id,)))

    async def _end_if_done(self, job_id: str) -> None:
        async with self.database.transaction() as session:
            job = await store.lock_job(session, job_id)
            if job is not None and job.state in {JobState.RUNNING, JobState.STOPPING}:
                await endings.end_job_if_done(session, job, self.clock.now())


def _is_current(row: TrialRow | None, try_no: int) -> bool:
    return row is not None and row.try_no == try_no
