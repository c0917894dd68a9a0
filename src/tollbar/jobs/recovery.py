"""What happens to Trials and Jobs whose worker died, or of which the engine knows nothing any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.agents.adapter import Adapter
from tollbar.agents.registry import ADAPTERS
from tollbar.budget import service as budget
from tollbar.budget.schemas import trial_subject
from tollbar.db.session import Database
from tollbar.engine.port import Engine, EngineState
from tollbar.jobs import endings, metering, store
from tollbar.jobs.events import service as events
from tollbar.jobs.models import ModelOffers
from tollbar.jobs.pump import read_work_id, trial_work_id
from tollbar.jobs.retries import LOSS_BOUND, Failure
from tollbar.jobs.states import JOB_TERMINAL, JobState, Reason, TrialState
from tollbar.jobs.tables import TrialRow
from tollbar.kit.clock import Clock

_LIVING: Final = frozenset({EngineState.ENQUEUED, EngineState.PENDING, EngineState.DELAYED})
_PART: Final = 500

_log = structlog.get_logger()


@dataclass(frozen=True)
class Recovery:
    """Hands Trials of dead workers to the next try, and reconciles our rows with the engine's."""

    database: Database
    engine: Engine
    clock: Clock
    gateway: ModelOffers | None = None
    adapters: Mapping[str, Adapter] = field(default_factory=lambda: ADAPTERS)
    _suspects: set[str] = field(default_factory=set[str])
    """Work that the last pass found without a driver: its worker may be writing its end just then."""

    async def take_over(self, work_ids: Sequence[str], *, lost: bool = True) -> None:
        """Puts Trials (cancelled in the engine already) under their next try; `lost` counts against their bound.

        What a lost try had reserved is written off in full: a loss is never counted as zero. A Trial that only
        waited for a slot of the worker that died has lost nothing.
        """
        await self._hand_on(work_ids, lost=lost, lost_waiting=False)

    async def sweep(self, worker_id: str, *, lost: bool) -> None:
        """Hands on, or ends, what still stands under a worker that is gone and holds nothing in the engine."""
        async with self.database.session() as session:
            tries = await store.owned_by(session, worker_id)
        work_ids = [trial_work_id(trial_id, try_no) for trial_id, try_no in tries]
        await self.engine.cancel(work_ids)
        await self.take_over(work_ids, lost=lost)

    async def _hand_on(self, work_ids: Sequence[str], *, lost: bool, lost_waiting: bool) -> None:
        tries = [found for found in map(read_work_id, work_ids) if found is not None]
        if not tries:
            return
        async with self.database.transaction() as session:
            # Jobs first, as everywhere, then their budgets together: an end of another Trial that meets this waits.
            await store.lock_jobs_of(session, [trial_id for trial_id, _ in tries])
            live = {row.id: row for row in await store.live_among(session, [trial_id for trial_id, _ in tries])}
            current = [live[trial_id] for trial_id, try_no in tries if _is_current(live.get(trial_id), try_no)]
            waiting = [row for row in current if row.state == TrialState.ADMITTED]
            worked = [row for row in current if row.state != TrialState.ADMITTED]
            await budget.write_off(session, subjects=[trial_subject(row.id, row.try_no) for row in current])
            await self._next(session, waiting, lost=lost and lost_waiting)
            await self._next(session, worked, lost=lost)

    async def _next(self, session: AsyncSession, rows: Sequence[TrialRow], *, lost: bool) -> None:
        moved = await store.next_try(session, {row.id: row.try_no for row in rows}, lost=lost, bound=LOSS_BOUND)
        why = ("SANDBOX_LOST", "worker", None) if lost else (None, "handed_back", None)
        told = [events.retried(row, row.try_no, *why) for row in rows if row.id in moved]
        await events.store.add(session, told)
        now = self.clock.now()
        for row in rows:
            if row.state == TrialState.STOPPING:
                await endings.end_stopping(session, row.job_id, row.id, row.try_no, row.task_seq, now)
            elif row.id not in moved:
                message = f"Its worker was lost {LOSS_BOUND} times while it ran."
                ending = endings.unscored(Failure(Reason.SANDBOX_LOST, "worker", message))
                await endings.end_trial(session, row.job_id, row.id, row.try_no, row.task_seq, ending, now)

    async def reconcile(self) -> None:
        """Finds Trials and Jobs that the engine no longer drives and moves them on; one that fails stops no other."""
        await self._alone("trials", self._trials)
        async with self.database.session() as session:
            jobs = await store.live_jobs(session)
        work = await self.engine.state([f"job:{job.id}" for job in jobs])
        for job in jobs:
            driven = work.get(f"job:{job.id}") in _LIVING
            if job.expanded or not driven:
                await self._alone(job.id, partial(self._job, job.id))
        await self._alone("leases", self._leases)

    async def _alone(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001 - the next pass meets it again; the others must not wait for it
            _log.exception("a part of the reconciliation failed", part=what)

    async def _trials(self) -> None:
        """Hands on what two passes found without a driver, and tells the engine again what must end."""
        orphans: list[str] = []
        after = ""
        async with self.database.session() as session:
            while part := await store.in_engine(session, after, _PART):
                after = part[-1][0]
                works = {trial_work_id(trial_id, try_no): state for trial_id, try_no, state in part}
                known = await self.engine.state(list(works))
                orphans += [work_id for work_id in works if known.get(work_id) not in _LIVING]
                await self._end_stopping(works, known)
        repeated = [work_id for work_id in orphans if work_id in self._suspects]
        self._suspects.clear()
        self._suspects.update(orphans)
        for start in range(0, len(repeated), _PART):
            await self._hand_on(repeated[start : start + _PART], lost=True, lost_waiting=True)

    async def _end_stopping(self, works: Mapping[str, str], known: Mapping[str, EngineState]) -> None:
        stopping = [work_id for work_id, state in works.items() if state == TrialState.STOPPING]
        await self.engine.cancel([work_id for work_id in stopping if known.get(work_id) in _LIVING])

    async def _job(self, job_id: str) -> None:
        """Expands a Job that nobody expands, cancels what waits in one that stops, and ends one that is done."""
        async with self.database.transaction() as session:
            job = await store.lock_job(session, job_id)
            if job is None or job.state in JOB_TERMINAL:
                return
            now = self.clock.now()
            await metering.begin(session, self.engine, self.gateway, self.adapters, job, now)
            if job.state in JOB_TERMINAL:
                return
            if job.state == JobState.STOPPING:
                await endings.stop_waiting(session, job, now)
            await endings.end_job_if_done(session, job, now)

    async def _leases(self) -> None:
        async with self.database.transaction() as session:
            await budget.write_off_expired(session)


def _is_current(row: TrialRow | None, try_no: int) -> bool:
    return row is not None and row.try_no == try_no
