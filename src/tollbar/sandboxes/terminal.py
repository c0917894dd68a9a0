"""A terminal of a command in a held sandbox: somebody types, the command answers, and the bytes are passed as they are.

The pair is made on the host; the command's end is its controlling terminal. What is put into that end by the tenant
comes back to it alone: no program of the host ever reads from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from typing import Final

from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.interface import ExecResult

_CHUNK: Final = 64 << 10
_SIZE: Final = struct.Struct("HHHH")


class TerminalPair:
    """Both ends before the command has its own: `far` is handed to the command and closed here by `give_away`.

    Raises `ValueError` for a size in characters that no window has.
    """

    def __init__(self, identity: Identity, rows: int, columns: int) -> None:
        size = _packed(rows, columns)
        self.near, self.far = pty.openpty()
        os.set_blocking(self.near, False)
        identity.own(self.far)
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, size)

    def give_away(self) -> None:
        """Closes the command's end here: from then on the end of its session is the end of what can be read."""
        if self.far >= 0:
            os.close(self.far)
        self.far = -1

    def close(self) -> None:
        """Closes both ends, when no command got one."""
        self.give_away()
        os.close(self.near)


class CommandTerminal:
    """Implements `interface.Terminal`; `run` is the command, whose cancellation ends it with all that it started."""

    def __init__(self, near: int, run: asyncio.Task[ExecResult]) -> None:
        self._near = near
        self._run = run
        self._open = True

    async def read(self) -> bytes:
        """Returns what was printed next, at most 64 KiB; empty when the command has ended and all was read."""
        while self._open:
            try:
                return os.read(self._near, _CHUNK)
            except BlockingIOError:
                await _wait(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader, self._near)
            except OSError:
                return b""
        return b""

    async def write(self, data: bytes) -> None:
        """Types bytes; waits while the command does not read. What nobody reads any more is dropped."""
        rest = memoryview(data)
        while rest and self._open:
            try:
                rest = rest[os.write(self._near, rest[:_CHUNK]) :]
            except BlockingIOError:
                await _wait(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer, self._near)
            except OSError:
                return

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command the size of the window, in characters."""
        if self._open:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._near, termios.TIOCSWINSZ, _packed(rows, columns))

    async def ended(self) -> ExecResult:
        """Returns how the command ended, as soon as it has. Raises what `Sandbox.exec` raises."""
        return await asyncio.shield(self._run)

    async def close(self) -> None:
        """Ends the command with everything that it started; safe to repeat. Nobody may read or write meanwhile."""
        self._run.cancel()
        await asyncio.wait({self._run})
        if self._open:
            self._open = False
            os.close(self._near)


def _packed(rows: int, columns: int) -> bytes:
    if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        msg = f"{rows} x {columns} is not the size of a window"
        raise ValueError(msg)
    return _SIZE.pack(rows, columns, 0, 0)


async def _wait(
    add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], object], descriptor: int
) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(descriptor, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        remove(descriptor)
