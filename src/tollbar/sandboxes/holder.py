"""The world of a held sandbox: one process that waits for ever, and the namespaces that live as long as it does."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from tollbar.sandboxes.bwrap_command import Ceilings
from tollbar.sandboxes.entry import Target
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.process import Tree, settle
from tollbar.sandboxes.watch import processes

_GET_PARENT: Final = 0xB702
"""The kernel's question for the parent of a user namespace (`NS_GET_PARENT`)."""

_EXITING: Final = 0x4
_SAID_BYTES: Final = 2048
_PATIENCE_S: Final = 2.0
_QUIET_SCANS: Final = 2


class Holder:
    """A started world; `target` is how commands enter it. Made by `start_holder`."""

    def __init__(self, tree: Tree, pid: int, target: Target, spared: Collection[int]) -> None:
        self.target = target
        self._pid = pid
        self._spared = spared
        self._tree = tree

    def lives(self) -> bool:
        """Says whether process 1 is neither dead nor dying: it begins to die before any other process of its world."""
        return not self._tree.ended.done() and not _is_dying(self._pid, self.target.process_1)

    def signal(self) -> None:
        """Sends SIGKILL to process 1, whose death is that of the world; returns at once. Any thread may call it."""
        self._tree.signal()

    async def is_empty(self) -> bool:
        """Says whether no process of a tenant lives in the world, without a control group."""
        return not await asyncio.to_thread(_tenants, self.target.pid_namespace, self._spared)

    async def end_tenants(self) -> bool:
        """Kills every process of the world but its own, without a control group; False when that cannot be done.

        Twice in a row none may be found, because a process can start another one while the list is read.
        """
        return await asyncio.to_thread(_end_tenants, self.target.pid_namespace, self._spared)

    async def end(self) -> None:
        """Returns when no process of the world lives; closes what was open. Raises `TimeoutError`."""
        try:
            await self._tree.end()
        finally:
            os.close(self.target.owner)


async def start_holder(
    start: Callable[[], Awaitable[Tree]], ceilings: Ceilings, timeout_s: float, is_killed: Callable[[], bool]
) -> Holder:
    """Starts a world; it is complete, and nobody has entered it, when this returns.

    Raises `EnvironmentStartFailed`: what the host's programs printed, or that it took longer than `timeout_s`.
    """
    try:
        tree = await start()
    except OSError as error:
        msg = f"The sandbox could not be started: {error.strerror}."
        raise EnvironmentStartFailed("start", msg) from error
    held: Holder | None = None
    said = b""
    try:
        async with asyncio.timeout(timeout_s):
            if await tree.up() and not is_killed() and await tree.release(b"go\n"):
                held = _take_hold(tree, ceilings)
    except TimeoutError:
        msg = f"The sandbox was not up within {timeout_s:g} s."
        raise EnvironmentStartFailed("timeout", msg) from None
    finally:
        if held is None:
            await settle(asyncio.create_task(tree.end()))
            said = _waiting_text(tree.stderr)
        os.close(tree.stdout)
        os.close(tree.stderr)
    if held is None:
        raise EnvironmentStartFailed("start", f"The sandbox did not come up: {said.decode(errors='replace').strip()}")
    return held


def _take_hold(tree: Tree, ceilings: Ceilings) -> Holder | None:
    """Opens what commands need to enter; None when process 1 died meanwhile."""
    if tree.process_1 is None:
        return None
    pid, pidfd = tree.process_1
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            owner = fcntl.ioctl(user, _GET_PARENT)
        finally:
            os.close(user)
        opened.callback(os.close, owner)
        spared = frozenset({pid, *_children(pid, tree.pid_namespace)})
        if not _is_dying(pid, pidfd):
            opened.pop_all()
            return Holder(tree, pid, Target(owner, pidfd, tree.pid_namespace, ceilings), spared)
    return None


def _children(pid: int, pid_namespace: int) -> Iterable[int]:
    """Returns the children of process 1; kernels without that list are asked for the processes of its namespace."""
    try:
        return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    except FileNotFoundError:
        return processes(pid_namespace)


def _end_tenants(pid_namespace: int, spared: Collection[int]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    quiet = 0
    while quiet < _QUIET_SCANS:
        found = _tenants(pid_namespace, spared)
        quiet = 0 if found else quiet + 1
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if found and time.monotonic() > deadline:
            return False
    return True


def _tenants(pid_namespace: int, spared: Collection[int]) -> list[int]:
    return [pid for pid in processes(pid_namespace) if pid not in spared]


def _is_dying(pid: int, pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    if poller.poll(0):
        return True
    try:
        state, *_, flags = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:7]
    except (OSError, ValueError):
        return True
    return state in "ZX" or bool(int(flags) & _EXITING)


def _waiting_text(descriptor: int) -> bytes:
    """Returns the end of what waits in a pipe whose other end is closed."""
    said = b""
    while part := os.read(descriptor, 1 << 16):
        said = (said + part)[-_SAID_BYTES:]
    return said
