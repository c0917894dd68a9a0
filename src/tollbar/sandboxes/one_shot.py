"""A one-shot sandbox: bwrap runs the phase's one command, and the command's end is the end of every process in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tollbar.sandboxes.bwrap_command import chain
from tollbar.sandboxes.command import Ran
from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed
from tollbar.sandboxes.interface import GATEWAY_PORT, SandboxSpec, Serve
from tollbar.sandboxes.process import Running, start_tree
from tollbar.sandboxes.sandbox_base import BwrapSandbox, Setting


class OneShotSandbox(BwrapSandbox):
    """Implements `interface.Sandbox` for the form `one_shot`: every process is dead when `exec` returns or raises."""

    def __init__(self, spec: SandboxSpec, setting: Setting, remove: Callable[[], Awaitable[None]]) -> None:
        super().__init__(spec, setting, remove)
        self._used = False

    async def expose_gateway(self, serve: Serve, port: int = GATEWAY_PORT) -> str:
        """Refuses: its network begins and ends with its one command."""
        del serve, port
        raise EnvironmentRefused("network", "A one-shot sandbox has no gateway; a held one does.")

    async def kill(self) -> None:
        """Ends every process; the files stay, and the next command can be run."""
        await super().kill()
        self._used = False

    def kill_now(self) -> None:
        """Sends the signals and returns at once; any thread may call it, also while the event loop stands still."""
        self._killed = True
        for command in list(self._running):
            command.signal()

    async def give_upper(self, target: Path) -> None:
        """Moves everything that was written to where an empty folder stands; then only `destroy` is left."""
        await super().give_upper(target)
        self._used = True

    def _admit(self) -> None:
        if self._used or self._destroyed:
            msg = "a one-shot sandbox takes one exec between two kills, and none after destroy"
            raise RuntimeError(msg)

    def _take(self) -> None:
        self._used = True

    async def _start(self, command: Sequence[str]) -> Running:
        setting = self._setting
        groups = [] if setting.group is None else setting.group.join
        whole = chain(setting.programs.bwrap, setting.title, self._mounts, self._spec.limits, groups, command)
        try:
            return await start_tree(setting.starter, whole, setting.identity)
        except OSError as error:
            msg = f"The sandbox could not be started: {error.strerror}."
            raise EnvironmentStartFailed("start", msg) from error

    async def _ended(self, ran: Ran) -> None:
        """Nothing is left to do: every process is dead, and with them the mount is gone."""

    async def _is_still(self) -> bool:
        return True

    async def _unmount(self) -> None:
        """Nothing is mounted while no command runs."""
