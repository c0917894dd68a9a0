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
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tollbar.sandboxes.identity import Identity

HOST_ENV: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
INFO_FD: Final = "{info}"
_POLL_S: Final = 0.002
_POLLS: Final = 1000
_INFO_BYTES: Final = 4096
_DEATH_PATIENCE_S: Final = 30.0
_FIRST_FREE_FD: Final = 10


class Running(Protocol):
    """One started command of a tenant: `up` and `release` let it go, `ended` says that it ended, `end` ends it."""

    stdout: int
    stderr: int
    pid_namespace: int
    ended: asyncio.Future[None]
    may_outlive: bool
    """Whether what it started may live on after it, and with it hold the output pipes open."""

    @property
    def exit_code(self) -> int | None: ...

    async def up(self) -> bool: ...

    async def release(self, environment: bytes) -> bool: ...

    def signal(self) -> None: ...

    async def end(self) -> None: ...


class Tree:
    """A started chain: `outer` is our child (bwrap's monitor), `inner` is process 1 of the tenant's namespace.

    The tenant's own shell says that it is up and waits behind `channel` until `release`: no command runs before both
    processes are in hand, and a supervisor that dies before that leaves a shell that reads the end of the channel
    and ends. Raises `RuntimeError` in a thread without the event loop, before anything is started.
    """

    def __init__(self, chain: Sequence[str], command: Sequence[str], identity: Identity) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self._channel, channel = socket.socketpair()
            ours.callback(self._channel.close)
            theirs.callback(channel.close)
            self._channel.setblocking(False)
            self.stdout, stdout = pipe(ours, theirs, identity)
            self.stderr, stderr = pipe(ours, theirs, identity)
            info = _info_file(ours)
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
            ours.callback(self._process.wait)
            ours.callback(self._process.kill)
            self._outer = os.pidfd_open(self._process.pid)
            ours.pop_all()
        self._info: int | None = info
        self._inner: int | None = None
        self._inner_pid = 0
        self.pid_namespace = 0
        self.may_outlive = False
        self._closing = threading.Lock()
        self._closed = False
        self.ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._outer, self._reap)

    @property
    def exit_code(self) -> int | None:
        """Returns the code with which *outer* ended; None while it runs or when a signal ended it."""
        code = self._process.returncode
        return None if code is None or code < 0 else code

    @property
    def process_1(self) -> tuple[int, int] | None:
        """Returns pid and pidfd of *inner*, open until `end`; None before it is in hand."""
        return None if self._inner is None else (self._inner_pid, self._inner)

    async def up(self) -> bool:
        """Waits until the tenant's shell is up and takes hold of process 1; False when the chain failed before."""
        return await take_word(self._channel) and self._hold_inner()

    async def release(self, environment: bytes) -> bool:
        """Lets the tenant's command go with the given environment text; False when it never started."""
        try:
            return await give_word(self._channel, environment)
        finally:
            self._channel.close()

    def signal(self) -> None:
        """Sends SIGKILL to *inner*, then to *outer*; returns at once. Any thread may call it.

        Before process 1 is in hand it does nothing: nothing of the tenant runs then, and bwrap alone must not die.
        """
        with self._closing:
            if self._inner is None or self._closed:
                return
            for pidfd in (self._inner, self._outer):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    async def end(self) -> None:
        """Returns when no process of the tree lives, whatever they do against it; closes what was open.

        The death of process 1 ends its namespace, and it is not dead before every other process in it is. A chain
        that did not come as far is given a moment to name process 1, because bwrap killed before that could leave it.
        A server that adopts orphans (process 1 of a container) takes its zombie, too.
        """
        try:
            for _ in range(_POLLS):
                if self._hold_inner() or self.ended.done():
                    break
                await asyncio.sleep(_POLL_S)
            self.signal()
            if self._inner is None:
                self._process.kill()
            async with asyncio.timeout(_DEATH_PATIENCE_S):
                if self._inner is not None:
                    await readable(self._inner)
                    _take_zombie(self._inner)
                await self.ended
        finally:
            self._close()

    def _hold_inner(self) -> bool:
        """Opens process 1 as soon as bwrap has written down its pid; says whether it is in hand."""
        text = b"" if self._info is None else os.pread(self._info, _INFO_BYTES, 0)
        if self._inner is None and text.rstrip().endswith(b"}"):
            info: dict[str, int] = json.loads(text)
            pid, self.pid_namespace = info["child-pid"], info.get("pid-namespace", 0)
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                if _parent(pid) == self._process.pid:
                    self._inner, self._inner_pid = pidfd, pid
                    self._shut_info()
                else:
                    os.close(pidfd)
        return self._inner is not None

    def _reap(self) -> None:
        if self._process.poll() is None:
            return
        asyncio.get_running_loop().remove_reader(self._outer)
        if not self.ended.done():
            self.ended.set_result(None)

    def _shut_info(self) -> None:
        if self._info is not None:
            os.close(self._info)
        self._info = None

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._outer)
        self._channel.close()
        with self._closing:
            self._closed = True
            self._shut_info()
            for descriptor in (self._inner, self._outer):
                if descriptor is not None:
                    os.close(descriptor)


async def take_word(channel: socket.socket) -> bool:
    """Waits for the next byte of a tenant's shell; False when its end of the channel was closed."""
    try:
        return await asyncio.get_running_loop().sock_recv(channel, 1) != b""
    except ConnectionResetError:
        return False


async def give_word(channel: socket.socket, text: bytes) -> bool:
    """Sends the last text to a tenant's shell and waits for its answer; False when there is none."""
    try:
        await asyncio.get_running_loop().sock_sendall(channel, text)
        channel.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return await take_word(channel)


def pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack, identity: Identity) -> tuple[int, int]:
    """Makes a pipe and hands its reading end to `ours` and its writing end to `theirs`.

    It belongs to the tenants' uid, else a tenant could not open its own `/dev/stdout`.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    identity.own(writing)
    return reading, writing


def _info_file(ours: contextlib.ExitStack) -> int:
    """Returns an empty file in memory for bwrap's word of process 1, above the descriptors that the chain uses.

    Not a pipe: bwrap dies of a pipe that its dead supervisor has closed, and leaves process 1 waiting for it.
    """
    low = os.memfd_create("info", os.MFD_CLOEXEC)
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    finally:
        os.close(low)
    ours.callback(os.close, high)
    return high


def _take_zombie(pidfd: int) -> None:
    """Reaps a dead process if this one is its parent by now; returns at once."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


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
