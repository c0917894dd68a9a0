"""Periodic work of a process: runs at an interval or when kicked, survives failures, stops cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from tollbar.kit.clock import Clock, SystemClock

_MOST_BACKOFF_S: Final = 5.0

_log = structlog.get_logger()


@dataclass
class Loop:
    """Calls `work` every `interval_s` seconds, the first time at once; a failure is logged and waits longer."""

    name: str
    interval_s: float
    work: Callable[[], Awaitable[Any]]
    fatal: tuple[type[Exception], ...] = ()
    """Errors that end the loop; `ended` raises them."""
    clock: Clock = field(default_factory=SystemClock)
    _kicked: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Begins, on the running event loop."""
        self._task = asyncio.create_task(self._run(), name=self.name)

    def kick(self) -> None:
        """Runs the work as soon as possible; kicks during a run cause one more. Only from the event loop's thread."""
        self._kicked.set()

    async def ended(self) -> None:
        """Returns when the loop has ended, or raises the fatal error that ended it."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Ends the loop: waits up to `grace_s` for the work in progress, then cancels it. A fatal error is kept."""
        if self._task is None:
            return
        self._stopping.set()
        self._kicked.set()
        await asyncio.wait({self._task}, timeout=grace_s)
        self._task.cancel()
        with suppress(asyncio.CancelledError, *self.fatal):
            await self._task

    async def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._kicked.clear()
            try:
                await self.work()
                failures = 0
            except self.fatal:
                raise
            except Exception as error:  # noqa: BLE001 - a loop outlives whatever its work meets; the next round tries again
                failures += 1
                self._complain(failures, error)
            if not self._stopping.is_set():
                await self._pause(failures)

    def _complain(self, failures: int, error: Exception) -> None:
        if failures == 1:
            _log.exception("a periodic task failed", task=self.name)
        else:
            _log.warning("a periodic task still fails", task=self.name, times=failures, error=str(error))

    async def _pause(self, failures: int) -> None:
        """Waits for the interval or a kick; after a failure longer, and kicks wait too, so nothing spins."""
        backoff_s = min(self.interval_s * 2**failures, _MOST_BACKOFF_S) if failures else 0.0
        cut = self._stopping if failures else self._kicked
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.clock.sleep(max(self.interval_s, backoff_s))),
            asyncio.create_task(cut.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
