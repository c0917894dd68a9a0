"""One process tree of a sandbox: started on the event loop's thread, watched by pidfds, ended without exception.

`--die-with-parent` follows the thread that started bwrap, so nothing here may run in a thread pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tollbar.sandboxes.cgroup_leaf import write_group_file
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.starter import Started, Starter

T = TypeVar("T")

_POLL_S: Final = 0.002
_POLLS: Final = 1000
_INFO_BYTES: Final = 4096
_DEATH_PATIENCE_S: Final = 30.0


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


@dataclass(frozen=True)
class Chain:
    """How bwrap is started: the program, its words (the tenant's command last), what it reads in secret, and limits.

    `arguments` are more of its words, each ended by a NUL. It waits for them; nothing of it exists but one process
    before that. `groups` are joined by then.
    """

    program: str
    words: Sequence[str]
    arguments: bytes
    groups: Sequence[str]
    nofile: int
    file_bytes: int


class Tree:
    """A started chain: `outer` is bwrap's monitor, `inner` is process 1 of the tenant's namespace.

    The tenant's own shell says that it is up and waits behind `channel` until `release`: no command runs before both
    processes are in hand, and a supervisor that dies before that leaves a shell that reads the end of the channel
    and ends. Made by `start_tree`.
    """

    def __init__(self, started: Started, channel: socket.socket, outputs: tuple[int, int], info: int) -> None:
        self.stdout, self.stderr = outputs
        self._channel = channel
        self._outer = started.pidfd
        self._outer_pid = started.pid
        self._code: int | None = None
        self._info: int | None = info
        self._inner: int | None = None
        self._inner_pid = 0
        self.pid_namespace = 0
        self.may_outlive = False
        self._closing = threading.Lock()
        self._closed = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        started.code.add_done_callback(self._take_code)

    @property
    def exit_code(self) -> int | None:
        """Returns the code with which *outer* ended; None while it runs or when a signal ended it."""
        return None if self._code is None or self._code < 0 else self._code

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
                _kill(pidfd)

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
                _kill(self._outer)
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
                if _parent(pid) == self._outer_pid:
                    self._inner, self._inner_pid = pidfd, pid
                    self._shut_info()
                else:
                    os.close(pidfd)
        return self._inner is not None

    def _take_code(self, code: asyncio.Future[int | None]) -> None:
        """Takes the exit code; without one (the helper died) the end of *outer* is awaited, which dies with it."""
        self._code = code.result()
        if self._code is not None:
            self._note_end()
        elif not self._closed:
            asyncio.get_running_loop().add_reader(self._outer, self._note_end)

    def _note_end(self) -> None:
        if self._code is None and not self._closed:
            asyncio.get_running_loop().remove_reader(self._outer)
        if not self.ended.done():
            self.ended.set_result(None)

    def _shut_info(self) -> None:
        if self._info is not None:
            os.close(self._info)
        self._info = None

    def _close(self) -> None:
        if self._code is None:
            asyncio.get_running_loop().remove_reader(self._outer)
        self._channel.close()
        with self._closing:
            self._closed = True
            self._shut_info()
            for descriptor in (self._inner, self._outer):
                if descriptor is not None:
                    os.close(descriptor)


async def start_tree(starter: Starter, chain: Chain, identity: Identity) -> Tree:
    """Starts a chain; bwrap is in its control groups, under its limits and on its way when this returns.

    Raises `OSError` when nothing was started, and `RuntimeError` in a thread without the event loop. A cancellation
    leaves nothing.
    """
    asyncio.get_running_loop()
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        near, channel = socket.socketpair()
        ours.callback(near.close)
        theirs.callback(channel.close)
        near.setblocking(False)
        stdout, far_stdout = pipe(ours, theirs, identity)
        stderr, far_stderr = pipe(ours, theirs, identity)
        # A file, not a pipe: bwrap dies of a pipe that its dead supervisor has closed, and leaves process 1 waiting.
        info = os.memfd_create("info", os.MFD_CLOEXEC)
        ours.callback(os.close, info)
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        theirs.callback(os.close, writing)
        theirs.callback(os.close, reading)
        os.set_blocking(reading, True)
        far = [channel.fileno(), far_stdout, far_stderr, info, reading]
        for folder in chain.groups:
            far.append(os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
            theirs.callback(os.close, far[-1])
        started = await starter.start(chain.program, chain.words, far, chain.nofile, chain.file_bytes)
        ours.pop_all()
        tree = Tree(started, near, (stdout, stderr), info)
        try:
            with contextlib.suppress(ProcessLookupError, BrokenPipeError):  # it has ended, and will say why
                if not started.is_in_groups:
                    await asyncio.to_thread(_join, chain.groups, started.pid)
                _hand_in(writing, chain.arguments)
        except BaseException:
            theirs.close()
            await settle(asyncio.create_task(abandon(tree)))
            raise
    return tree


async def abandon(tree: Tree) -> None:
    """Ends a tree whose output nobody has taken."""
    try:
        await tree.end()
    finally:
        os.close(tree.stdout)
        os.close(tree.stderr)


def _hand_in(writing: int, arguments: bytes) -> None:
    """Writes all at once, so that no reader ever sees a part of it. Raises `OSError`."""
    if os.write(writing, arguments) != len(arguments):
        raise BlockingIOError(0, "there are too many mounts")


def _join(groups: Sequence[str], pid: int) -> None:
    for folder in groups:
        write_group_file(Path(folder, "cgroup.procs"), str(pid))


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


def _kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


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


async def settle(ending: asyncio.Task[T]) -> T:
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
    return ending.result()
