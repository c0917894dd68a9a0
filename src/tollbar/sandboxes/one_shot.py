"""A one-shot sandbox: bwrap runs the phase's one command, and the command's end is the end of every process in it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from tollbar.sandboxes.base import DEFAULT_HOME, DEFAULT_PATH
from tollbar.sandboxes.bwrap_command import Programs, Root, chain, enter, environment_text
from tollbar.sandboxes.capture import TAIL_BYTES, Capture
from tollbar.sandboxes.cgroups import Group
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.folders import move_onto
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.interface import (
    ArtifactPath,
    ExecResult,
    SandboxHandle,
    SandboxSpec,
    Seal,
    SealLimits,
    StoreFile,
)
from tollbar.sandboxes.process import Tree, settle
from tollbar.sandboxes.seal import read_file_overlay, seal_overlay
from tollbar.sandboxes.upper import components, replace_folder
from tollbar.sandboxes.watch import Breach, watch

START_TIMEOUT_S: Final = 10.0
_KILLED: Final = 137
_SAID_BYTES: Final = 2048
_KERNEL_FOLDERS: Final = ("/proc", "/dev")


class End(StrEnum):
    """What ended a command."""

    ITSELF = "itself"
    UNSTARTED = "unstarted"
    LATE = "late"
    TIME = "time"
    WATCH = "watch"
    KILL = "kill"


@dataclass(frozen=True)
class Setting:
    """What a sandbox needs to know of its backend: programs, identity, root, folder, group and handle."""

    programs: Programs
    identity: Identity
    root: Root
    folder: Path
    group: Group | None
    levels: Mapping[str, str]
    handle: SandboxHandle
    start_timeout_s: float = START_TIMEOUT_S


class OneShotSandbox:
    """Implements `interface.Sandbox` for the form `one_shot`; made by `BwrapProvider.create`."""

    def __init__(self, spec: SandboxSpec, setting: Setting, remove: Callable[[], Awaitable[None]]) -> None:
        self._spec = spec
        self._setting = setting
        self._remove = remove
        self._root = setting.root
        self._mounts = self._root.arguments()
        self._used = False
        self._destroyed = False
        self._killed = False
        self._tree: Tree | None = None
        self._supervision: asyncio.Task[tuple[End, Breach | None]] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._counted_cpu_ns = 0
        self._counted_ooms = 0

    @property
    def handle(self) -> SandboxHandle:
        return self._setting.handle

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        output: Path | None = None,
        max_output_bytes: int = 10 << 20,
    ) -> ExecResult:
        """Runs the one command to its end or its time-out; every process of it is dead when this returns or raises.

        `exit_code` is None when the whole tree was ended: for time (`timed_out`) or for memory (`oom_killed`).
        Raises `RuntimeError` for a second command without `kill`, `EnvironmentRefused` for a variable that cannot
        be set, `EnvironmentStartFailed` when the command was never reached, and `SandboxLost` when `kill` or
        somebody outside ended it.
        """
        if self._used or self._destroyed:
            msg = "a one-shot sandbox takes one exec between two kills, and none after destroy"
            raise RuntimeError(msg)
        text = environment_text(self._environment(env or {}))
        self._used, self._killed = True, False
        self._idle.clear()
        try:
            return await self._run(enter(self._absolute(cwd), argv), text, timeout_s, output, max_output_bytes)
        finally:
            self._tree = self._supervision = None
            self._idle.set()

    async def kill(self) -> None:
        """Ends every process; the files stay, and the next command can be run."""
        self.kill_now()
        if self._supervision is not None:
            self._supervision.cancel()
        await self._idle.wait()
        self._used = False

    def kill_now(self) -> None:
        """Sends the signals and returns at once; any thread may call it, also while the event loop stands still."""
        self._killed = True
        tree = self._tree
        if tree is not None:
            tree.signal()

    async def put(self, source: Path, dest: str) -> None:
        """Replaces `dest` by a copy of the host folder `source`.

        Raises `RuntimeError` while a command runs, `ValueError` for a path that is not below the root or that the
        base binds.
        """
        self._require_idle()
        path = f"/{'/'.join(components(dest))}"
        bound = (*_KERNEL_FOLDERS, *(inside for _, inside in self._root.binds))
        if any(path == inside or path.startswith(f"{inside}/") for inside in bound):
            msg = f"{dest!r} is read-only on this base"
            raise ValueError(msg)
        await asyncio.to_thread(
            replace_folder,
            self._root.upper,
            self._root.lowers,
            dest,
            source,
            self._setting.identity,
            self._setting.folder,
        )

    async def seal(self, paths: Sequence[ArtifactPath], limits: SealLimits, store: StoreFile) -> Seal:
        """Seals the declared paths as the overlay shows them; a relative one counts from the working directory."""
        self._require_idle()
        absolute = [replace(path, source=self._absolute(path.source)) for path in paths]
        return await asyncio.to_thread(seal_overlay, self._root.upper, self._root.lowers, absolute, limits, store)

    async def read_file(self, path: str, max_bytes: int) -> bytes | None:
        """Returns at most `max_bytes` of a regular file as the overlay shows it, never through a link, or None."""
        self._require_idle()
        return await asyncio.to_thread(
            read_file_overlay, self._root.upper, self._root.lowers, self._absolute(path), max_bytes
        )

    async def give_upper(self, target: Path) -> None:
        """Moves everything that was written to where an empty folder stands; then only `destroy` is left."""
        self._require_idle()
        self._used = True
        await asyncio.to_thread(move_onto, self._root.upper, target)

    async def destroy(self) -> None:
        """Ends every process and removes every file, group and descriptor; safe to repeat."""
        await self.kill()
        if not self._destroyed:
            self._destroyed = True
            await self._remove()

    def _require_idle(self) -> None:
        if self._destroyed or not self._idle.is_set():
            msg = "files of a sandbox are touched only while no process lives in it"
            raise RuntimeError(msg)

    def _environment(self, added: Mapping[str, str]) -> dict[str, str]:
        own = {"PATH": DEFAULT_PATH, "HOME": DEFAULT_HOME, "IS_SANDBOX": "1"}
        return own | dict(self._spec.env) | dict(added)

    def _absolute(self, path: str | None) -> str:
        return str(PurePosixPath("/", self._spec.workdir, path or ""))

    async def _run(
        self, command: list[str], environment: bytes, timeout_s: float, output: Path | None, max_output_bytes: int
    ) -> ExecResult:
        loop = asyncio.get_running_loop()
        started = loop.time()
        tree = self._tree = self._start(command)
        drained = asyncio.Event()
        capture = Capture(tree.stdout, tree.stderr, output, max_output_bytes, lambda: _set_soon(loop, drained))
        self._supervision = asyncio.create_task(self._supervise(tree, environment, timeout_s))
        try:
            end, breach = await self._supervision
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._killed or (task is not None and task.cancelling()):
                raise
            end, breach = End.KILL, None
        finally:
            await settle(asyncio.create_task(_finish(tree, drained)))
        if capture.error is not None:
            raise capture.error
        if breach is not None and output is not None:
            await asyncio.to_thread(_append, output, _notice(breach))
        return self._result(tree, capture, end, breach, loop.time() - started)

    def _start(self, command: list[str]) -> Tree:
        setting = self._setting
        groups = [] if setting.group is None else setting.group.join
        head = chain(setting.programs, setting.identity, self._mounts, self._spec.limits, groups)
        try:
            return Tree(head, command)
        except OSError as error:
            msg = f"The sandbox could not be started: {error.strerror}."
            raise EnvironmentStartFailed("start", msg) from error

    async def _supervise(self, tree: Tree, environment: bytes, timeout_s: float) -> tuple[End, Breach | None]:
        """Lets the command go and returns what ended it; the tree may still live then."""
        try:
            async with asyncio.timeout(self._setting.start_timeout_s):
                begun = await tree.up() and not self._killed and await tree.release(environment)
        except TimeoutError:
            return End.LATE, None
        if not begun:
            return End.UNSTARTED, None
        limits, levels = self._spec.limits, self._setting.levels
        watcher = asyncio.create_task(watch(tree.pid_namespace, self._root.upper, limits, levels))
        try:
            first = asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait({tree.ended, watcher}, timeout=timeout_s, return_when=first)
        finally:
            watcher.cancel()
        if tree.ended in done:
            return End.ITSELF, None
        return (End.WATCH, watcher.result()) if watcher in done else (End.TIME, None)

    def _result(self, tree: Tree, capture: Capture, end: End, breach: Breach | None, wall_s: float) -> ExecResult:
        cpu_ns, ooms = self._count()
        if self._killed:
            raise SandboxLost("worker", "The sandbox was ended by the server while its command ran.")
        if end is End.UNSTARTED:
            said = capture.stderr.value()[-_SAID_BYTES:].decode(errors="replace").strip()
            msg = f"The command was not reached: {said or f'exit code {tree.exit_code}'}"
            raise EnvironmentStartFailed("start", msg)
        if end is End.LATE:
            msg = f"The sandbox was not up within {self._setting.start_timeout_s:g} s."
            raise EnvironmentStartFailed("timeout", msg)
        oom_killed = ooms > 0 or (breach is not None and breach.resource == "memory")
        exit_code = tree.exit_code if end is End.ITSELF else None
        if breach is not None and not oom_killed:
            exit_code = _KILLED
        if end is End.ITSELF and exit_code is None and not oom_killed:
            raise SandboxLost("engine", "The sandbox was ended by a signal from outside.")
        return ExecResult(
            exit_code=exit_code,
            stdout_tail=capture.stdout.value(),
            stderr_tail=(capture.stderr.value() + _notice(breach))[-TAIL_BYTES:],
            truncated=capture.truncated,
            timed_out=end is End.TIME,
            oom_killed=oom_killed,
            wall_s=wall_s,
            cpu_ns=cpu_ns,
        )

    def _count(self) -> tuple[int | None, int]:
        """Returns CPU time and memory kills of this command: the group's counters less those of earlier commands.

        Read on the loop: these are two files of the kernel's memory, never of a disk.
        """
        group = self._setting.group
        if group is None:
            return None, 0
        cpu_ns, ooms = group.cpu_ns(), group.oom_kills()
        spent = None if cpu_ns is None else cpu_ns - self._counted_cpu_ns
        kills = ooms - self._counted_ooms
        self._counted_cpu_ns, self._counted_ooms = cpu_ns or 0, ooms
        return spent, kills


async def _finish(tree: Tree, drained: asyncio.Event) -> None:
    """Returns when every process is dead and everything that they printed was read."""
    try:
        await tree.end()
    except TimeoutError:
        raise SandboxLost("engine", "The processes of the sandbox could not be ended.") from None
    await drained.wait()


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


def _notice(breach: Breach | None) -> bytes:
    return b"" if breach is None else f"\n[tollbar: ended: {breach.message}]\n".encode()


def _append(output: Path, text: bytes) -> None:
    with output.open("ab") as file:
        file.write(text)
