"""One elected reaper hands the work of dead and departed workers to the living.

It works only under its lock: without it two of them would run the same work twice at once. One that dies in between
loses nothing, since what it has not reached is still claimed by the dead worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import Database
from tollbar.engine import store
from tollbar.engine.liveness import Intervals
from tollbar.engine.locks import Lock, elected
from tollbar.engine.port import Engine, Pending
from tollbar.engine.queues import BRANCHES
from tollbar.engine.tables import WorkerState
from tollbar.kit.clock import Clock

_BATCH: Final = 20

_log = structlog.get_logger()


@dataclass(frozen=True)
class HandOver:
    """What the layers above do about work whose worker is gone; the composition root hands it in.

    Each function may be called again for the same ids: a reaper can die between any two of its statements.
    """

    on_dead: Callable[[AsyncSession, Sequence[str]], Awaitable[None]]
    """`(session, executor_ids)`, in the transaction that takes note of their end: revoke the keys of what they ran,
    mark their sandboxes lost. Called before any of their work is handed over."""
    take_over: Callable[[Sequence[str], bool], Awaitable[None]]
    """`(work_ids, lost)`: put Trials, which are cancelled in the engine already, under their next try, in a
    transaction of its own. `lost` False: their worker left in order, which counts against nobody."""
    sweep: Callable[[str, bool], Awaitable[None]]
    """`(executor_id, lost)`, once the engine says that it holds nothing more: end what still stands under it in our
    rows, such as Trials that were cancelled just before it died."""
    redispatched: frozenset[str] = frozenset({"trial"})
    """Flows that go to `take_over`. All others are resumed where their last finished step left them, or cancelled when
    no worker of this version could do that."""


@dataclass(frozen=True)
class _Ended:
    executor_id: str
    lost: bool
    known: bool = True


@dataclass
class Reaper:
    """`reap` is called every `beat_s` in every worker, after its own beat."""

    database: Database
    engine: Engine
    executor_id: str
    intervals: Intervals
    hand_over: HandOver
    clock: Clock
    alone: bool = False
    """This process can prove that no other one uses the database (it owns the embedded server), so at its first call
    every other worker is dead and nothing waits for an interval."""
    _first_seen: dict[str, float] = field(default_factory=dict[str, float], init=False)
    """When work of an unknown executor was seen first, in monotonic seconds."""
    _looked_at: float | None = field(default=None, init=False)

    async def reap(self) -> int:
        """Takes over what ended workers held and returns how much; 0 when another process has the lock.

        Raises what the database or a function handed in raises: the next call goes on from there.
        """
        async with elected(self.database, Lock.REAPER, limit_s=4 * self.intervals.beat_s) as lock:
            if lock is None:
                return 0
            gone = [*await self._note_ended(), *await self._foreign()]
            taken = 0
            for worker in gone:
                taken += await self._take_all(lock, worker)
            self.alone = False
            if taken:
                _log.info("work of ended workers was taken over", count=taken)
            return taken

    async def _note_ended(self) -> list[_Ended]:
        silent_s = -1.0 if self.alone else self.intervals.dead_after_s
        async with self.database.transaction() as session:
            for executor_id in await store.declare_dead(session, self.executor_id, silent_s):
                _log.warning("a worker is dead", executor_id=executor_id)
            ended = await store.ended(session)
            if ended:
                await self.hand_over.on_dead(session, list(ended))
        return [_Ended(executor_id, state is WorkerState.DEAD) for executor_id, state in ended.items()]

    async def _foreign(self) -> list[_Ended]:
        """Returns executors that hold work although they are gone, or were never known for long enough."""
        now = self.clock.monotonic()
        if self._looked_at is not None and now - self._looked_at < self.intervals.foreign_after_s / 4:
            return []
        self._looked_at = now
        holders = await self.engine.holders()
        async with self.database.session() as session:
            states = await store.states(session)
        unknown = holders - set(states)
        self._first_seen = {one: self._first_seen.get(one, now) for one in unknown}
        late = [one for one in holders if states.get(one) is WorkerState.GONE]
        wait_s = 0.0 if self.alone else self.intervals.foreign_after_s
        late += [one for one, since in self._first_seen.items() if now - since >= wait_s]
        return [_Ended(executor_id, lost=True, known=False) for executor_id in late]

    async def _take_all(self, lock: AsyncSession, worker: _Ended) -> int:
        taken = 0
        while found := await self.engine.pending_of(worker.executor_id):
            for start in range(0, len(found), _BATCH):
                await store.touch(lock)
                batch = found[start : start + _BATCH]
                await self._take(batch, lost=worker.lost)
                taken += len(batch)
        await self.hand_over.sweep(worker.executor_id, worker.lost)
        if worker.known:
            async with self.database.transaction() as session:
                await store.move(session, worker.executor_id, WorkerState.GONE)
        return taken

    async def _take(self, batch: Sequence[Pending], *, lost: bool) -> None:
        again = [item.id for item in batch if item.flow in self.hand_over.redispatched]
        if again:
            await self.engine.cancel(again)
            await self.hand_over.take_over(again, lost)
        others = [item for item in batch if item.flow not in self.hand_over.redispatched]
        # Nobody who lives could go on with these: whoever reconciles the rows finds that nothing drives them.
        await self.engine.cancel([item.id for item in others if item.is_stale])
        resumed = [item for item in others if not item.is_stale]
        for queue in {item.queue or BRANCHES for item in resumed}:
            await self.engine.resume([item.id for item in resumed if (item.queue or BRANCHES) == queue], queue)


@dataclass
class Audit:
    """Finds work that this worker holds by the engine's books and does not run: a claim that was lost on its way."""

    engine: Engine
    executor_id: str
    hand_over: HandOver
    _suspects: frozenset[str] = field(default=frozenset(), init=False)

    async def look(self) -> int:
        """Ends what two looks in a row found without a flow, hands it over, and returns how much; every `audit_s`."""
        held = {item.id: item for item in await self.engine.pending_of(self.executor_id)}
        idle = frozenset(held) - frozenset(self.engine.running())
        stray = [held[work_id] for work_id in sorted(idle & self._suspects)]
        self._suspects = idle
        if not stray:
            return 0
        _log.error("claimed work does not run here", ids=[item.id for item in stray])
        await self.engine.cancel([item.id for item in stray])
        again = [item.id for item in stray if item.flow in self.hand_over.redispatched]
        if again:
            await self.hand_over.take_over(again, True)
        return len(stray)
