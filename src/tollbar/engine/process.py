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
    beats: Loop
    loops: Sequence[Loop]
    _beating: bool = field(default=False, init=False)

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
    ) -> WorkerProcess:
        """Builds the process's own loops; `loops` are those of higher layers (pump, reconciler, ...)."""
        ticks, database = worker.intervals, worker.database
        reaper = Reaper(database, engine, worker.executor_id, ticks, hand_over, clock, alone)
        audit = Audit(engine, worker.executor_id, hand_over)
        retention = Retention(database, engine, clock)
        own = [
            Loop("reaper", ticks.beat_s, reaper.reap, clock=clock),
            Loop("audit", ticks.audit_s, audit.look, clock=clock),
            Loop("retention", _RETENTION_S, under_lock(database, Lock.RETENTION, retention.run_once), clock=clock),
        ]
        beats = Loop("beat", ticks.beat_s, worker.beat, fatal=(DeclaredDead,), clock=clock)
        return cls(worker, engine, beats, [*own, *loops])

    async def start(self, queues: Sequence[str]) -> None:
        """Registers the worker and begins to work. All flows are registered by now."""
        await self.worker.enter()
        self.beats.start()
        self._beating = True
        await self.engine.start(queues)
        for loop in self.loops:
            loop.start()

    async def declared_dead(self) -> None:
        """Raises `DeclaredDead` when this worker was given up (the process must end at once); else waits for `stop`."""
        await self.beats.ended()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Hands back what is not finished within `grace_s`; the next worker, or the next start, goes on with it."""
        if self._beating:
            await self._say(self.worker.leave)
        for loop in self.loops:
            await loop.stop()
        await self.engine.stop(grace_s)
        await self.beats.stop()
        if self._beating:
            await self._say(self.worker.left)

    async def _say(self, word: Callable[[], Awaitable[None]]) -> None:
        """Without a database the word is lost: then the work is handed over once the silence is long enough."""
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await word()
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            _log.warning("this worker's state could not be written", error=str(error))
