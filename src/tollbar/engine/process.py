"""A worker process from its first claim to its last: what is started and stopped, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tollbar.engine.errors import DeclaredDead
from tollbar.engine.liveness import Worker
from tollbar.engine.locks import Lock, under_lock
from tollbar.engine.loops import Loop
from tollbar.engine.port import Engine
from tollbar.engine.reaper import Audit, HandOver, Reaper
from tollbar.engine.retention import Retention
from tollbar.kit.clock import Clock

_RETENTION_S: Final = 600.0
_LAST_WORD_S: Final = 2.0

_log = structlog.get_logger()


@dataclass
class WorkerProcess:
    """Starts the engine, the beats, the reaper, the audit, retention and the loops handed in; stops them in order."""

    worker: Worker
    engine: Engine
    loops: Sequence[Loop]
    clock: Clock
    _beats: Loop = field(init=False)
    _entered: bool = field(default=False, init=False)
    _dead: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        interval_s = self.worker.intervals.beat_s
        self._beats = Loop("beat", interval_s, self._beat, fatal=(DeclaredDead,), clock=self.clock)

    @classmethod
    def assemble(
        cls,
        *,
        engine: Engine,
        worker: Worker,
        hand_over: HandOver,
        clock: Clock,
        alone: bool,
        loops: Sequence[Loop],
        keep_days: int = 7,
    ) -> WorkerProcess:
        """Builds the process's own loops; `loops` are those of higher layers (pump, reconciler, ...).

        `keep_days` is how long the engine's rows of ended work stay.
        """
        ticks, database = worker.intervals, worker.database
        reaper = Reaper(database, engine, worker.executor_id, ticks, hand_over, clock, alone)
        audit = Audit(engine, worker.executor_id, hand_over)
        retention = Retention(database, engine, clock, keep_days)
        own = [
            Loop("reaper", ticks.beat_s, reaper.reap, clock=clock),
            Loop("audit", ticks.audit_s, audit.look, clock=clock),
            Loop("retention", _RETENTION_S, under_lock(database, Lock.RETENTION, retention.run_once), clock=clock),
        ]
        return cls(worker, engine, [*own, *loops], clock)

    async def start(self, queues: Sequence[str]) -> None:
        """Registers the worker and begins to work. All flows are registered by now."""
        await self.worker.enter()
        self._entered = True
        self._beats.start()
        await self.engine.start(queues, most_slots=await self.worker.most_slots())
        for loop in self.loops:
            loop.start()

    async def declared_dead(self) -> None:
        """Raises `DeclaredDead` when this worker was given up (the process must end at once); else waits for `stop`."""
        await self._beats.ended()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Hands back what is not finished within `grace_s`; the next worker, or the next start, goes on with it.

        Without a database it ends as well, but threads of the engine library may go on trying to reach it and hold
        the interpreter: the process should end by `os._exit`.
        """
        self.engine.halt()
        if self._entered:
            await self._say(self.worker.leave)
        await asyncio.gather(*(loop.stop() for loop in self.loops))
        await self.engine.stop(0.0 if self._dead else grace_s)
        await self._beats.stop()
        if self._entered:
            await self._say(self.worker.left)

    async def _beat(self) -> None:
        try:
            await self.worker.beat()
        except DeclaredDead:
            # Others have this worker's work: it must not even begin what it claims while it ends.
            self._dead = True
            self.engine.halt()
            raise

    async def _say(self, word: Callable[[], Awaitable[None]]) -> None:
        """Without a database the word is lost: then the work is handed over once the silence is long enough."""
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await word()
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            _log.warning("this worker's state could not be written", error=str(error))
