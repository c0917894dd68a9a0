"""A held sandbox: a world that outlives its commands, until `kill` ends it or the server does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

from tollbar.sandboxes.bwrap_command import ceilings, chain, hold
from tollbar.sandboxes.cgroup_leaf import Leaf
from tollbar.sandboxes.command import End, Ran
from tollbar.sandboxes.entry import Admission, Entrance, EntryFailed
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.holder import Holder, start_holder
from tollbar.sandboxes.interface import GATEWAY_PORT, ExecResult, SandboxSpec, Serve
from tollbar.sandboxes.listening import Served, require_network
from tollbar.sandboxes.process import Running, settle, start_tree
from tollbar.sandboxes.sandbox_base import BwrapSandbox, Setting
from tollbar.sandboxes.terminal import CommandTerminal, TerminalPair

HOLDER_LEAF: Final = "holder"
RUN_LEAF: Final = "run"


class HeldSandbox(BwrapSandbox):
    """Implements `interface.Sandbox` for the form `held`: any number of commands, also at once.

    A command's background processes live on when it ends by itself. A time-out ends what the command started; a limit
    that is passed ends all tenants. `kill` ends the world with everything in it, and the next command gets a new one on
    the same files: nothing that a tenant has done to running processes can last longer, and the overlay is not mounted
    while its files are changed from outside.
    """

    def __init__(
        self, spec: SandboxSpec, setting: Setting, remove: Callable[[], Awaitable[None]], entrance: Entrance
    ) -> None:
        super().__init__(spec, setting, remove)
        self._entrance = entrance
        self._ceilings = ceilings(spec.limits)
        self._holder: Holder | None = None
        self._starting = asyncio.Lock()
        self._spent = False
        self._numbers = count()
        self._served = Served()

    async def start(self) -> None:
        """Starts the world unless it is there. Raises `EnvironmentStartFailed`, `SandboxLost`."""
        await self._world()

    async def expose_gateway(self, serve: Serve, port: int = GATEWAY_PORT) -> str:
        """Opens a port of the loopback inside, served by this process until the next `kill`; returns its base URL."""
        require_network(self._spec)
        if not self._running:
            self._killed = False
        holder = await self._world()
        try:
            listening = await self._entrance.listen(holder.target, port)
        except EntryFailed as error:
            if not holder.lives():
                raise _lost() from None
            msg = f"The port {port} inside could not be opened: {error}."
            raise EnvironmentStartFailed("start", msg) from error
        if self._holder is not holder:
            listening.close()
            raise _lost()
        return self._served.add(port, listening, serve, holder.target.process_1)

    async def kill(self) -> None:
        """Ends every process and the world; the files stay, and the next command gets a new world on them."""
        await super().kill()
        await self._unmount()

    def kill_now(self) -> None:
        """Sends the signals and returns at once; any thread may call it, also while the event loop stands still."""
        self._killed = True
        holder = self._holder
        if holder is not None:
            holder.signal()

    async def interactive(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        rows: int = 24,
        columns: int = 80,
    ) -> CommandTerminal:
        """Returns the terminal of a command that is under way. Raises what `exec` raises, and `ValueError` for a size.

        Its end, whichever it is, leaves background processes to the world unless `timeout_s` passed or `close` ended
        it. Whoever asks must `close` the terminal.
        """
        order = self._order(argv, cwd, env, timeout_s)
        pair = TerminalPair(self._setting.identity, rows, columns)
        command = self._command(lambda words: self._start(words, pair.far))
        run = asyncio.create_task(self._run(command, order))
        begun = asyncio.create_task(command.begun.wait())
        try:
            await asyncio.wait({run, begun}, return_when=asyncio.FIRST_COMPLETED)
            if not command.begun.is_set():
                await run
        except BaseException:
            run.cancel()
            await settle(asyncio.create_task(_over(run)))
            pair.close()
            raise
        finally:
            begun.cancel()
        pair.give_away()
        return CommandTerminal(pair.near, run)

    def _admit(self) -> None:
        if self._destroyed:
            msg = "a destroyed sandbox takes no command"
            raise RuntimeError(msg)

    def _take(self) -> None:
        """Any number may be taken."""

    async def _start(self, command: Sequence[str], terminal: int | None = None) -> Running:
        holder = await self._world()
        leaf = self._new_leaf()

        async def end_others() -> None:
            await self._end_tenants(holder, leaf)

        def join(pid: int) -> None:
            if leaf is not None:
                leaf.add(pid)

        admission = Admission(join, lambda: not self._killed, end_others)
        try:
            return await self._entrance.enter(holder.target, command, admission, terminal)
        except EntryFailed as error:
            if not holder.lives():
                raise _lost() from None
            msg = f"The command was not reached: {error}."
            raise EnvironmentStartFailed("start", msg) from error

    async def _world(self) -> Holder:
        async with self._starting:
            if self._holder is None:
                self._holder = await self._started()
                if self._killed:
                    self._holder.signal()
            elif not self._holder.lives():
                raise _lost()
            return self._holder

    async def _started(self) -> Holder:
        setting = self._setting
        groups = [] if setting.group is None else setting.group.leaf(HOLDER_LEAF).join
        whole = chain(setting.programs.bwrap, setting.title, self._mounts, self._spec.limits, groups, hold(), hold=True)
        start = partial(start_tree, setting.starter, whole, setting.identity)
        return await start_holder(start, self._ceilings, setting.start_timeout_s, lambda: self._killed)

    def _new_leaf(self) -> Leaf | None:
        """Makes the leaf of one command, so that it can be ended alone with everything that it started."""
        if self._setting.group is None:
            return None
        leaf = self._setting.group.leaf(RUN_LEAF, str(next(self._numbers)))
        leaf.create()
        return leaf

    async def _end_tenants(self, holder: Holder, leaf: Leaf | None) -> None:
        """Ends what is in a leaf, or without groups every tenant; where that fails the world goes."""
        gone = await (holder.end_tenants() if leaf is None else leaf.end())
        if not gone:
            self._spent = True
            holder.signal()

    async def _ended(self, ran: Ran) -> None:
        holder, group = self._holder, self._setting.group
        if holder is None:
            return
        run = None if group is None else group.leaf(RUN_LEAF)
        if ran.end is End.WATCH:
            await self._end_tenants(holder, run)
        if len(self._running) == 1:
            if run is not None:
                run.sweep()
            if self._spent:
                await self._unmount()

    async def _is_still(self) -> bool:
        holder, group = self._holder, self._setting.group
        if holder is None:
            return True
        return not group.leaf(RUN_LEAF).pids() if group is not None else await holder.is_empty()

    async def _unmount(self) -> None:
        holder, self._holder = self._holder, None
        self._spent = False
        await self._served.close()
        if holder is not None:
            await settle(asyncio.create_task(_end(holder)))

    def _was_ended_outside(self, ran: Ran) -> bool:
        return ran.exit_code is None or self._holder is None or not self._holder.lives()


async def _over(run: asyncio.Task[ExecResult]) -> None:
    await asyncio.wait({run})


async def _end(holder: Holder) -> None:
    try:
        await holder.end()
    except TimeoutError:
        raise SandboxLost("engine", "The processes of the sandbox could not be ended.") from None


def _lost() -> SandboxLost:
    return SandboxLost("engine", "The sandbox was ended by a signal from outside.")
