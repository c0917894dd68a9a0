"""A worker says that it lives, on the database's clock, and kills its own sandboxes when it cannot.

A worker that is cut off has killed what it runs before anybody takes its work over; one that was declared dead ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import Database
from tollbar.engine import store
from tollbar.engine.config import ENGINE_VERSION
from tollbar.engine.errors import DeclaredDead
from tollbar.engine.queues import ahead
from tollbar.engine.tables import WorkerState
from tollbar.kit.clock import Clock

_log = structlog.get_logger()


@dataclass(frozen=True)
class Intervals:
    """Seconds; raises `ValueError` unless 2 x beat < self_kill < dead_after."""

    beat_s: float = 5.0
    """Between two beats; the reaper's interval too."""
    self_kill_s: float = 20.0
    """Without an accepted beat: this worker kills its own sandboxes."""
    dead_after_s: float = 30.0
    """Without a beat: others declare the worker dead and take its work over."""
    foreign_after_s: float = 60.0
    """How long work of an executor that nobody knows must have been seen before it is taken over."""
    audit_s: float = 60.0

    def __post_init__(self) -> None:
        if not 2 * self.beat_s < self.self_kill_s < self.dead_after_s:
            msg = "liveness needs 2 * beat_s < self_kill_s < dead_after_s"
            raise ValueError(msg)


@dataclass
class Worker:
    """This process as a worker: `enter`, then a beat every `beat_s`, then `leave` and `left`."""

    database: Database
    """Best with a small pool of its own: a busy pool is no death."""
    executor_id: str
    """Fresh for each start of a process."""
    slots: int
    backends: tuple[str, ...]
    intervals: Intervals
    kill_sandboxes: Callable[[], None]
    """Ends every sandbox of this process at once; called from the watchdog's thread too, so without the loop."""
    clock: Clock
    software: Callable[[], list[str]] = list
    """Looks up what this machine has of the software of agents; it may block for some milliseconds."""
    _watchdog: Watchdog = field(init=False)

    def __post_init__(self) -> None:
        self._watchdog = Watchdog(self.intervals.self_kill_s, self.kill_sandboxes, self.clock)

    async def enter(self) -> None:
        """Registers the worker and starts its watchdog."""
        software = await asyncio.to_thread(self.software)
        async with self.database.transaction() as session:
            await store.add_worker(
                session,
                self.executor_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                engine_version=ENGINE_VERSION,
                backends=list(self.backends),
                slots=self.slots,
                software=software,
            )
        self._watchdog.start()

    async def most_slots(self) -> int:
        """Returns the most slots that a living worker has, this one included once it entered."""
        async with self.database.session() as session:
            found = [await store.living_slots(session, backend) for backend in self.backends]
        return max((slots for slots_of in found for slots in slots_of), default=self.slots)

    async def beat(self) -> None:
        """Says that this worker lives. Raises `DeclaredDead`, its sandboxes killed, when others have given it up."""
        software = await asyncio.to_thread(self.software)
        sent = self.clock.monotonic()
        # A connection that hangs is given up early enough for another try before the watchdog fires.
        async with asyncio.timeout(self.intervals.self_kill_s / 3), self.database.transaction() as session:
            accepted = await store.beat(session, self.executor_id, software)
        if not accepted:
            _log.error("this worker was declared dead: it ends, and others go on with its work")
            self.kill_sandboxes()
            raise DeclaredDead
        self._watchdog.fed(sent)

    async def leave(self) -> None:
        """Says that this worker takes no more work; it goes on beating while it ends what it has."""
        async with self.database.transaction() as session:
            await store.move(session, self.executor_id, WorkerState.LEAVING)

    async def left(self) -> None:
        """Says that nothing runs here any more, so that any reaper hands the rest on at once; ends the watchdog."""
        self._watchdog.stop()
        async with self.database.transaction() as session:
            await store.move(session, self.executor_id, WorkerState.LEFT)


class Watchdog:
    """A thread that calls `kill` when it was not fed for `limit_s`, and again after each further such silence.

    The process's own time counts, so it also fires right after the process was stopped and continued.
    """

    def __init__(self, limit_s: float, kill: Callable[[], None], clock: Clock) -> None:
        self._limit_s = limit_s
        self._kill = kill
        self._clock = clock
        self._fed_at = clock.monotonic()
        self._done = threading.Event()

    def start(self) -> None:
        """Begins to watch."""
        self._fed_at = self._clock.monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def fed(self, at: float) -> None:
        """Notes that a beat which was sent at that moment (monotonic seconds) was accepted."""
        self._fed_at = max(self._fed_at, at)

    def stop(self) -> None:
        """Ends the watch."""
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(self._limit_s / 20):
            now = self._clock.monotonic()
            if now - self._fed_at > self._limit_s:
                _log.error("no beat was accepted for too long: this worker's sandboxes are killed")
                try:
                    self._kill()
                except Exception:  # noqa: BLE001 - the watch must go on: the next beat decides what becomes of this worker
                    _log.exception("killing the sandboxes failed")
                self._fed_at = now


async def capacities(session: AsyncSession) -> dict[str, int]:
    """Returns by backend how many Trials the living workers may hold together, running and claimed ahead."""
    found: Counter[str] = Counter()
    for backend, slots in await store.slots_of_each(session):
        found[backend] += ahead(slots)
    return dict(found)


async def served(session: AsyncSession, silent_s: float) -> frozenset[str]:
    """Returns the backends for which a worker lives; one that was silent for `silent_s` does not count."""
    return await store.served_backends(session, silent_s)


async def software(session: AsyncSession) -> list[list[str]]:
    """Returns for each living worker what its machine has of the software of agents, as `NAME@VERSION`."""
    return await store.living_software(session)


async def seen(session: AsyncSession) -> list[dict[str, Any]]:
    """Returns every worker that is not gone, the oldest first: state, place, slots, seconds since its last beat.

    `software` is what its machine has of the software of agents.
    """
    return [
        {
            "worker_id": row.executor_id,
            "state": row.state,
            "host": row.host,
            "pid": row.pid,
            "backends": row.backends,
            "slots": row.slots,
            "software": row.software,
            "silent_s": round(silence, 1),
        }
        for row, silence in await store.workers(session)
    ]
