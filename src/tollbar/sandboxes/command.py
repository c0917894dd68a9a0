"""One command of a tenant, from its start to what is known of its end; the same for every form of sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tollbar.sandboxes.capture import Capture
from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import Limits
from tollbar.sandboxes.process import Running, settle
from tollbar.sandboxes.watch import INTERVAL_S, Breach, watch


class End(StrEnum):
    """What ended a command."""

    ITSELF = "itself"
    UNSTARTED = "unstarted"
    LATE = "late"
    TIME = "time"
    WATCH = "watch"
    KILL = "kill"


@dataclass(frozen=True)
class Order:
    """What is asked: the tenant's part of a chain, its environment text, its time, and the host's file for output."""

    command: Sequence[str]
    environment: bytes
    timeout_s: float
    output: Path | None
    max_output_bytes: int


@dataclass(frozen=True)
class Bounds:
    """What a command is held to besides its own time: the time for its start, and limits that are watched."""

    start_timeout_s: float
    upper: Path
    limits: Limits
    levels: Mapping[str, str]


@dataclass(frozen=True)
class Ran:
    """How a command went; `exit_code` is that of its process, whatever ended it, or None when nobody knows."""

    end: End
    breach: Breach | None
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    wall_s: float


class Command:
    """A command under way. `start` brings it up to where its shell waits; `is_killed`: the server wants it dead.

    Whatever happens in `run`, the command is dead when that returns or raises. `begun` is set when the tenant has it.
    """

    def __init__(
        self, start: Callable[[Sequence[str]], Awaitable[Running]], bounds: Bounds, is_killed: Callable[[], bool]
    ) -> None:
        self._start = start
        self._bounds = bounds
        self._is_killed = is_killed
        self._process: Running | None = None
        self._capture: Capture | None = None
        self._drained = asyncio.Event()
        self.begun = asyncio.Event()
        self._supervision: asyncio.Task[tuple[End, Breach | None]] | None = None

    def signal(self) -> None:
        """Sends SIGKILL and returns at once; any thread may call it."""
        process = self._process
        if process is not None:
            process.signal()

    def stop(self) -> None:
        """Makes `run` end its command now; `is_killed` is true by then."""
        if self._supervision is not None:
            self._supervision.cancel()

    async def run(self, order: Order) -> Ran:
        """Returns how the command went.

        Raises what its start raises, `SandboxLost` when it cannot be ended, and `OSError` when its output cannot be
        kept.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._supervision = asyncio.create_task(self._supervise(order))
        try:
            end, breach = await self._supervision
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_killed() or (task is not None and task.cancelling()):
                raise
            end, breach = End.KILL, None
        finally:
            await settle(asyncio.create_task(self._finish(self._supervision)))
        process, capture = self._process, self._capture
        if process is None or capture is None:
            return Ran(end, breach, None, b"", b"", truncated=False, wall_s=loop.time() - started)
        if capture.error is not None:
            raise capture.error
        if breach is not None and order.output is not None:
            await asyncio.to_thread(_append, order.output, notice(breach))
        kept = capture.stdout.value(), capture.stderr.value()
        return Ran(end, breach, process.exit_code, *kept, capture.truncated, loop.time() - started)

    async def _supervise(self, order: Order) -> tuple[End, Breach | None]:
        """Starts the command, lets it go and returns what ended it; it may still live then."""
        bounds = self._bounds
        try:
            async with asyncio.timeout(bounds.start_timeout_s):
                process = self._process = await self._start(order.command)
                self._capture = self._captured(process, order)
                begun = await process.up() and not self._is_killed() and await process.release(order.environment)
        except TimeoutError:
            return End.LATE, None
        if not begun:
            return End.UNSTARTED, None
        self.begun.set()
        # Nothing is sampled in the first interval, so a short command needs no watcher.
        unwatched_s = min(INTERVAL_S, order.timeout_s)
        done, _ = await asyncio.wait({process.ended}, timeout=unwatched_s)
        if done:
            return End.ITSELF, None
        watcher = asyncio.create_task(watch(process.pid_namespace, bounds.upper, bounds.limits, bounds.levels))
        try:
            first, left_s = asyncio.FIRST_COMPLETED, order.timeout_s - unwatched_s
            done, _ = await asyncio.wait({process.ended, watcher}, timeout=left_s, return_when=first)
        finally:
            watcher.cancel()
        if process.ended in done:
            return End.ITSELF, None
        return (End.WATCH, watcher.result()) if watcher in done else (End.TIME, None)

    def _captured(self, process: Running, order: Order) -> Capture:
        loop = asyncio.get_running_loop()

        def done() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._drained.set)

        return Capture(process.stdout, process.stderr, order.output, order.max_output_bytes, done)

    async def _finish(self, supervision: asyncio.Task[tuple[End, Breach | None]]) -> None:
        """Returns when the command is dead and everything that it printed was read."""
        await asyncio.wait({supervision})
        process, capture = self._process, self._capture
        if process is None or capture is None:
            return
        try:
            await process.end()
        except TimeoutError:
            raise SandboxLost("engine", "The processes of the sandbox could not be ended.") from None
        if process.may_outlive:
            capture.finish()
        await self._drained.wait()


def notice(breach: Breach | None) -> bytes:
    """Returns what the output says of a limit that was passed."""
    return b"" if breach is None else f"\n[tollbar: ended: {breach.message}]\n".encode()


def _append(output: Path, text: bytes) -> None:
    with output.open("ab") as file:
        file.write(text)
