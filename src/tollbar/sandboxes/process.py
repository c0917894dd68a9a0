"""One process tree of a sandbox: started on the event loop's thread, watched by pidfds, ended without exception.

`--die-with-parent` follows the thread that started bwrap, so nothing here may run in a thread pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HOST_ENV: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
INFO_FD: Final = "{info}"
_NAME_PATIENCE_S: Final = 2.0
_DEATH_PATIENCE_S: Final = 30.0
_FIRST_FREE_FD: Final = 10


class Tree:
    """A started chain: `outer` is our child (bwrap's monitor), `inner` is process 1 of the tenant's namespace.

    The tenant's own command waits behind `channel` until `release`: nothing of the tenant runs before both are held,
    and a supervisor that dies before that leaves a shell that reads the end of the channel and ends.
    """

    def __init__(self, chain: Sequence[str], command: Sequence[str]) -> None:
        self.channel, channel = socket.socketpair()
        self.stdout, stdout = os.pipe2(os.O_CLOEXEC)
        self.stderr, stderr = os.pipe2(os.O_CLOEXEC)
        self._info, info = _high_pipe()
        self.channel.setblocking(False)
        try:
            self._process = subprocess.Popen(
                [*(str(info) if part == INFO_FD else part for part in chain), *command],
                stdin=channel.fileno(),
                stdout=stdout,
                stderr=stderr,
                env=HOST_ENV,
                cwd="/",
                pass_fds=(info,),
                process_group=0,
            )
        except BaseException:
            for descriptor in (self.stdout, self.stderr, self._info):
                os.close(descriptor)
            self.channel.close()
            raise
        finally:
            channel.close()
            for descriptor in (stdout, stderr, info):
                os.close(descriptor)
        self._outer = os.pidfd_open(self._process.pid)
        self._inner: int | None = None
        self._info_text = b""
        self.pid_namespace = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._outer, self._reap)

    @property
    def pid(self) -> int:
        """Returns the pid of *outer* on the host."""
        return self._process.pid

    @property
    def held(self) -> bool:
        """Says whether process 1 of the namespace is in hand, so that `signal` reaches every process."""
        return self._inner is not None

    @property
    def exit_code(self) -> int | None:
        """Returns the code with which *outer* ended; None while it runs or when a signal ended it."""
        code = self._process.returncode
        return None if code is None or code < 0 else code

    async def inner(self) -> bool:
        """Waits for bwrap's word of process 1 and takes hold of it; False when the chain failed before."""
        while not self._info_text.rstrip().endswith(b"}"):
            await readable(self._info)
            part = os.read(self._info, 4096)
            if not part:
                return False
            self._info_text += part
        info: dict[str, int] = json.loads(self._info_text)
        pid, self.pid_namespace = info["child-pid"], info.get("pid-namespace", 0)
        with contextlib.suppress(ProcessLookupError):
            self._inner = os.pidfd_open(pid)
            if _parent(pid) != self._process.pid:
                os.close(self._inner)
                self._inner = None
        return self._inner is not None

    async def release(self, environment: bytes) -> bool:
        """Lets the tenant's command go with the given environment text; False when it never started."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self.channel, environment)
            self.channel.shutdown(socket.SHUT_WR)
            return bool(await loop.sock_recv(self.channel, 16))
        except (BrokenPipeError, ConnectionResetError):
            return False

    def signal(self) -> None:
        """Sends SIGKILL to *inner*, then to *outer*; returns at once."""
        for pidfd in (self._inner, self._outer):
            if pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    async def end(self) -> None:
        """Returns when no process of the tree lives, whatever they do against it; closes what was open.

        The death of process 1 ends its namespace, and it is not dead before every other process in it is. A chain
        that did not come as far is given a moment to name process 1, because bwrap killed before that could leave it.
        """
        try:
            if self._inner is None and not self.ended.done():
                with contextlib.suppress(TimeoutError, ValueError):
                    async with asyncio.timeout(_NAME_PATIENCE_S):
                        await self.inner()
            self.signal()
            async with asyncio.timeout(_DEATH_PATIENCE_S):
                if self._inner is not None:
                    await readable(self._inner)
                await self.ended
        finally:
            self._close()

    def _reap(self) -> None:
        if self._process.poll() is None:
            return
        asyncio.get_running_loop().remove_reader(self._outer)
        if not self.ended.done():
            self.ended.set_result(None)

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._outer)
        self.channel.close()
        for pidfd in (self._info, self._inner, self._outer):
            if pidfd is not None:
                os.close(pidfd)


def _high_pipe() -> tuple[int, int]:
    """Returns a pipe whose writing end is above the descriptors that the chain's shell uses itself."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        return reading, fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    finally:
        os.close(writing)


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])


async def readable(descriptor: int) -> None:
    """Returns when the descriptor can be read (a pidfd: when its process has ended)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(descriptor, resolve)
    try:
        await future
    finally:
        loop.remove_reader(descriptor)


async def settle(ending: asyncio.Task[None]) -> None:
    """Waits for a task that must not be left half done; a cancellation that comes meanwhile leaves after it."""
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError as error:
            if ending.cancelled():
                break
            cancelled = error
    if cancelled is not None:
        raise cancelled
    ending.result()
