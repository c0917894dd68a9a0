"""What both forms of a bubblewrap sandbox share: how a command's end is told, and its files while no tenant lives."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from tollbar.sandboxes.bwrap_command import START_ENV, Programs, Root, enter, environment_text
from tollbar.sandboxes.capture import TAIL_BYTES
from tollbar.sandboxes.cgroups import Group
from tollbar.sandboxes.command import Bounds, Command, End, Order, Ran, notice
from tollbar.sandboxes.errors import EnvironmentFailure, EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.folders import move_onto
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.interface import (
    GATEWAY_PORT,
    ArtifactPath,
    ExecResult,
    Form,
    SandboxHandle,
    SandboxSpec,
    Seal,
    SealLimits,
    Serve,
    StoreFile,
)
from tollbar.sandboxes.process import Running
from tollbar.sandboxes.seal import read_file_overlay, seal_overlay
from tollbar.sandboxes.starter import Starter
from tollbar.sandboxes.upper import add_folder, components, replace_folder

START_TIMEOUT_S: Final = 10.0
_KILLED: Final = 137
_SAID_BYTES: Final = 2048
_Change = Callable[[Path, Sequence[Path], str, Path, Identity, Path], None]
_KERNEL_FOLDERS: Final = ("/proc", "/dev")


@dataclass(frozen=True)
class Setting:
    """What a sandbox needs to know of its backend; `spare` is a folder of ours beside the upper layer."""

    programs: Programs
    identity: Identity
    root: Root
    spare: Path
    group: Group | None
    levels: Mapping[str, str]
    handle: SandboxHandle
    starter: Starter
    start_timeout_s: float = START_TIMEOUT_S

    @property
    def title(self) -> str:
        """Returns what bwrap is called among the processes: it names the folder, by which a dead server's are found."""
        return str(self.root.upper.parent / "bwrap")


@dataclass(frozen=True)
class Counters:
    """What the sandbox's group has counted so far: CPU time, None where nobody counts, and kills for memory."""

    cpu_ns: int | None
    ooms: int


class BwrapSandbox(ABC):
    """Implements what `interface.Sandbox` has for every form; made by `BwrapProvider.create`."""

    def __init__(self, spec: SandboxSpec, setting: Setting, remove: Callable[[], Awaitable[None]]) -> None:
        self._spec = spec
        self._setting = setting
        self._remove = remove
        self._root = setting.root
        self._mounts = self._root.arguments()
        self._bounds = Bounds(setting.start_timeout_s, self._root.upper, spec.limits, setting.levels)
        self._destroyed = False
        self._killed = False
        self._counted = spec.form is Form.HELD
        self._running: set[Command] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def handle(self) -> SandboxHandle:
        return self._setting.handle

    @property
    def spec(self) -> SandboxSpec:
        """Returns the description from which it was made."""
        return self._spec

    @property
    def setting(self) -> Setting:
        """Returns what it knows of its backend."""
        return self._setting

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
        """Runs a command to its end or its time-out, which ends everything that it started.

        `exit_code` is None when it was ended as a whole: for time (`timed_out`) or for memory (`oom_killed`). Raises
        `RuntimeError` where the form takes no command now, `EnvironmentRefused` for a variable that cannot be set,
        `EnvironmentStartFailed` when the command was never reached, and `SandboxLost` when `kill` or somebody outside
        ended it.
        """
        order = self._order(argv, cwd, env, timeout_s, output, max_output_bytes)
        return await self._run(self._command(self._start), order)

    def _order(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_s: float,
        output: Path | None = None,
        max_output_bytes: int = 0,
    ) -> Order:
        text = environment_text({**START_ENV, "IS_SANDBOX": "1", **self._spec.env, **(env or {})})
        return Order(enter(self._absolute(cwd), argv), text, timeout_s, output, max_output_bytes)

    def _command(self, start: Callable[[Sequence[str]], Awaitable[Running]]) -> Command:
        return Command(start, self._bounds, lambda: self._killed)

    async def _run(self, command: Command, order: Order) -> ExecResult:
        """Runs a command to its end; every process that must not outlive it is dead when this returns or raises."""
        self._admit()
        if not self._running:
            self._killed = False
        self._take()
        before = self._count() if self._counted else Counters(None if self._setting.group is None else 0, 0)
        self._counted = True
        self._running.add(command)
        self._idle.clear()
        try:
            ran = await command.run(order)
            await self._ended(ran)
        except EnvironmentFailure:
            if self._killed:
                raise _ended_by_server() from None
            raise
        finally:
            self._running.discard(command)
            if not self._running:
                self._idle.set()
        return self._result(ran, before)

    async def kill(self) -> None:
        """Ends every process; the files stay, and the next command can be run."""
        self.kill_now()
        for command in list(self._running):
            command.stop()
        await self._idle.wait()

    @abstractmethod
    def kill_now(self) -> None:
        """Sends the signals and returns at once; any thread may call it, also while the event loop stands still."""

    async def put(self, source: Path, dest: str) -> None:
        """Replaces `dest` by a copy of the host folder `source`.

        Raises `RuntimeError` while a process lives, `ValueError` for a path that is not below the root or that the
        base binds.
        """
        await self._change(replace_folder, source, dest)

    async def add(self, source: Path, dest: str) -> None:
        """Lays a copy of the host folder `source` over `dest`; raises as `put`."""
        await self._change(add_folder, source, dest)

    async def _change(self, change: _Change, source: Path, dest: str) -> None:
        await self._require_still()
        path = f"/{'/'.join(components(dest))}"
        bound = (*_KERNEL_FOLDERS, *(inside for _, inside in self._root.binds))
        if any(path == inside or path.startswith(f"{inside}/") for inside in bound):
            msg = f"{dest!r} is read-only on this base"
            raise ValueError(msg)
        await self._unmount()
        setting, root = self._setting, self._root
        await asyncio.to_thread(change, root.upper, root.lowers, dest, source, setting.identity, setting.spare)

    async def seal(self, paths: Sequence[ArtifactPath], limits: SealLimits, store: StoreFile) -> Seal:
        """Seals the declared paths as the overlay shows them; a relative one counts from the working directory."""
        await self._require_still()
        await self._unmount()
        absolute = [replace(path, source=self._absolute(path.source)) for path in paths]
        return await asyncio.to_thread(seal_overlay, self._root.upper, self._root.lowers, absolute, limits, store)

    async def read_file(self, path: str, max_bytes: int) -> bytes | None:
        """Returns at most `max_bytes` of a regular file as the overlay shows it, never through a link, or None."""
        await self._require_still()
        return await asyncio.to_thread(
            read_file_overlay, self._root.upper, self._root.lowers, self._absolute(path), max_bytes
        )

    async def give_upper(self, target: Path) -> None:
        """Moves everything that was written to where an empty folder stands; then only `destroy` is left."""
        await self._require_still()
        await self._unmount()
        await asyncio.to_thread(move_onto, self._root.upper, target)

    async def destroy(self) -> None:
        """Ends every process and removes every file, group and descriptor; safe to repeat."""
        await self.kill()
        if not self._destroyed:
            self._destroyed = True
            await self._remove()

    @abstractmethod
    async def expose_gateway(self, serve: Serve, port: int = GATEWAY_PORT) -> str:
        """Opens a port of the loopback inside, served by this process; returns its base URL there."""

    @abstractmethod
    def _admit(self) -> None:
        """Raises `RuntimeError` when no command can be taken now."""

    @abstractmethod
    def _take(self) -> None:
        """Notes that a command was taken."""

    @abstractmethod
    async def _start(self, command: Sequence[str]) -> Running:
        """Starts a command up to where its shell waits. Raises `EnvironmentStartFailed`."""

    @abstractmethod
    async def _ended(self, ran: Ran) -> None:
        """Does what the form needs after a command."""

    @abstractmethod
    async def _is_still(self) -> bool:
        """Says whether no process of a tenant lives, while no command is under way."""

    @abstractmethod
    async def _unmount(self) -> None:
        """Makes sure that the overlay is not mounted, because it must not be changed from outside while it is."""

    def _was_ended_outside(self, ran: Ran) -> bool:
        """Says whether somebody outside ended the sandbox while a command ran that looks as if it ended by itself."""
        return ran.exit_code is None

    async def _require_still(self) -> None:
        if self._destroyed or self._running or not await self._is_still():
            msg = "files of a sandbox are touched only while no process lives in it"
            raise RuntimeError(msg)

    def _absolute(self, path: str | None) -> str:
        return str(PurePosixPath("/", self._spec.workdir, path or ""))

    def _count(self) -> Counters:
        """Returns the counters now. Read on the loop: these are two files of the kernel's memory, never of a disk."""
        group = self._setting.group
        return Counters(None, 0) if group is None else Counters(group.cpu_ns(), group.oom_kills())

    def _result(self, ran: Ran, before: Counters) -> ExecResult:
        after = self._count()
        if self._killed:
            raise _ended_by_server()
        if ran.end in {End.UNSTARTED, End.LATE}:
            raise self._start_failure(ran)
        oom_killed = after.ooms > before.ooms or (ran.breach is not None and ran.breach.resource == "memory")
        exit_code = ran.exit_code if ran.end is End.ITSELF else None
        if ran.breach is not None and not oom_killed:
            exit_code = _KILLED
        if ran.end is End.ITSELF and self._was_ended_outside(ran):
            if not oom_killed:
                raise SandboxLost("engine", "The sandbox was ended by a signal from outside.")
            exit_code = None
        spent = None if after.cpu_ns is None or before.cpu_ns is None else after.cpu_ns - before.cpu_ns
        return ExecResult(
            exit_code=exit_code,
            stdout_tail=ran.stdout,
            stderr_tail=(ran.stderr + notice(ran.breach))[-TAIL_BYTES:],
            truncated=ran.truncated,
            timed_out=ran.end is End.TIME,
            oom_killed=oom_killed,
            wall_s=ran.wall_s,
            cpu_ns=spent,
        )

    def _start_failure(self, ran: Ran) -> EnvironmentFailure:
        if ran.end is End.LATE:
            msg = f"The sandbox was not up within {self._setting.start_timeout_s:g} s."
            return EnvironmentStartFailed("timeout", msg)
        said = ran.stderr[-_SAID_BYTES:].decode(errors="replace").strip()
        return EnvironmentStartFailed("start", f"The command was not reached: {said or f'exit code {ran.exit_code}'}")


def _ended_by_server() -> SandboxLost:
    return SandboxLost("worker", "The sandbox was ended by the server while its command ran.")
