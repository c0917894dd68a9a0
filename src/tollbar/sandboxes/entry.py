"""Commands that enter a held sandbox, by way of one helper process per worker (`entry_helper`).

The helper has the tenants' uid. It alone joins namespaces; the worker hands it descriptors and puts the command's
process into its control group before that process may go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes import entry_helper
from tollbar.sandboxes.bwrap_command import START_ENV, Ceilings
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.process import HOST_ENV, pipe, readable, take_word

_PROGRAM: Final = Path(entry_helper.__file__)
_SIGNALLED: Final = 128
_DEATH_PATIENCE_S: Final = 30.0
_CLOSE_PATIENCE_S: Final = 5.0
_GO: Final = b"g"


@dataclass(frozen=True)
class Doorway:
    """How one held sandbox is entered: descriptors of the owning user namespace and of process 1, and limits."""

    owner: int
    process_1: int
    pid_namespace: int
    ceilings: Ceilings


class EntryFailed(Exception):
    """The command could not be taken into the sandbox; the message says why."""


class Entry:
    """One command in a held sandbox; implements `process.Running`.

    `ended` is set when its process is dead, whoever ended it; what it started in the background may live on. `end`
    ends that, too, unless the command ended by itself.
    """

    def __init__(
        self,
        control: socket.socket,
        channel: socket.socket,
        outputs: tuple[int, int],
        pidfd: int,
        doorway: Doorway,
        end_others: Callable[[], Awaitable[None]],
    ) -> None:
        self.stdout, self.stderr = outputs
        self.pid_namespace = doorway.pid_namespace
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.may_outlive = True
        self._control = control
        self._channel = channel
        self._pidfd = pidfd
        self._end_others = end_others
        self._said = b""
        self._code: int | None = None
        asyncio.get_running_loop().add_reader(control, self._hear)

    @property
    def exit_code(self) -> int | None:
        """Returns the code with which the command ended, 128 more than a signal; None when nobody knows."""
        return None if self._code is None or self._code >= 0 else _SIGNALLED - self._code

    async def up(self) -> bool:
        """Waits until the tenant's shell is up; False when it never was."""
        return await take_word(self._channel)

    async def release(self, environment: bytes) -> bool:
        """Lets the command go with the given environment text; False when it never started."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.get_running_loop().sock_sendall(self._channel, environment)
            self._channel.shutdown(socket.SHUT_WR)
            return await take_word(self._channel)
        return False

    def signal(self) -> None:
        """Sends SIGKILL to the command's own process; returns at once."""
        with contextlib.suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def end(self) -> None:
        """Returns when the command's process is dead, and what it left behind when it was ended; closes what was open.

        Raises `TimeoutError` when its process cannot be ended.
        """
        try:
            if not self.ended.done():
                self.signal()
                await self._end_others()
                async with asyncio.timeout(_DEATH_PATIENCE_S):
                    await readable(self._pidfd)
                    await self.ended
        finally:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._channel.close()
            os.close(self._pidfd)
