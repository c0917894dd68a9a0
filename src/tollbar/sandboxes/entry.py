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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tollbar.sandboxes.bwrap_command import START_ENV, Ceilings
from tollbar.sandboxes.entry_helper import EXIT, LENGTH, LISTENING, PID, REPLY
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.process import give_word, pipe, readable, settle, take_word
from tollbar.sandboxes.starter import HOST_ENV, helper_program, send_descriptors

_SIGNALLED: Final = 128
_DEATH_PATIENCE_S: Final = 30.0
_CLOSE_PATIENCE_S: Final = 5.0
_GO: Final = b"g"
_TRIES: Final = 3


@dataclass(frozen=True)
class Target:
    """How one held sandbox is entered: descriptors of the owning user namespace and of process 1, and limits."""

    owner: int
    process_1: int
    pid_namespace: int
    ceilings: Ceilings


@dataclass(frozen=True)
class Admission:
    """What belongs to one command: how its process joins its group, whether it may still go, how others are ended."""

    join: Callable[[int], None]
    allowed: Callable[[], bool]
    end_others: Callable[[], Awaitable[None]]


class EntryFailed(Exception):
    """The command could not be taken into the sandbox; the message says why. Nothing of it runs."""


class _HelperGone(Exception):
    """The helper died before it took the command in."""


class Entry:
    """One command in a held sandbox; implements `process.Running`.

    `ended` is set when its process is dead, whoever ended it. What it started may live on, unless `end` had to end it.
    """

    def __init__(
        self,
        control: socket.socket,
        channel: socket.socket,
        outputs: tuple[int, int],
        pidfd: int,
        pid_namespace: int,
        end_others: Callable[[], Awaitable[None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stdout, self.stderr = outputs
        self.pid_namespace = pid_namespace
        self.ended: asyncio.Future[None] = loop.create_future()
        self.may_outlive = True
        self._control = control
        self._channel = channel
        self._pidfd = pidfd
        self._end_others = end_others
        self._heard = b""
        self._code: int | None = None
        loop.add_reader(control, self._hear)

    @property
    def exit_code(self) -> int | None:
        """Returns the code with which the command ended, 128 more than a signal; None when nobody knows."""
        if self._code is None:
            return None
        return self._code if self._code >= 0 else _SIGNALLED - self._code

    async def up(self) -> bool:
        """Waits until the tenant's shell is up; False when it never was."""
        return await take_word(self._channel)

    async def release(self, environment: bytes) -> bool:
        """Lets the command go with the given environment text; False when it never started."""
        try:
            return await give_word(self._channel, environment)
        finally:
            self._channel.close()

    def signal(self) -> None:
        """Sends SIGKILL to the command's own process; returns at once."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def end(self) -> None:
        """Returns when the command's process is dead, with all that it started unless it ended by itself.

        Closes what was open. Raises `TimeoutError` when the process cannot be ended.
        """
        try:
            if self._code is None:
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

    def _hear(self) -> None:
        """Takes the helper's last word; an end without it leaves the exit code unknown."""
        try:
            said = self._control.recv(REPLY.size - len(self._heard))
        except BlockingIOError:
            return
        except ConnectionResetError:
            said = b""
        self._heard += said
        if said and len(self._heard) < REPLY.size:
            return
        if said:
            kind, value = REPLY.unpack(self._heard)
            self._code = value if kind == EXIT else None
        asyncio.get_running_loop().remove_reader(self._control)
        if not self.ended.done():
            self.ended.set_result(None)


class Entrance:
    """The worker's helper: started when first needed, and again when it died; commands under way do not notice."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def enter(
        self, target: Target, argv: Sequence[str], admission: Admission, terminal: int | None = None
    ) -> Entry:
        """Returns a command that is in the sandbox and in its group; its shell waits for the environment.

        `terminal` is the command's end of one that it gets in the place of its streams; its output is empty then.
        Raises `EntryFailed`. A cancellation leaves nothing.
        """
        for _ in range(_TRIES):
            requests = self._open()
            try:
                return await self._enter(requests, target, argv, admission, terminal)
            except _HelperGone:
                if requests is self._requests:
                    await self.close()
        msg = "the helper ended"
        raise EntryFailed(msg)

    async def _enter(
        self,
        requests: socket.socket,
        target: Target,
        argv: Sequence[str],
        admission: Admission,
        terminal: int | None,
    ) -> Entry:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as theirs:
                control, far_control = _sockets(ours, theirs)
                channel, far_channel = _sockets(ours, theirs)
                stdout, far_stdout = pipe(ours, theirs, self._identity)
                stderr, far_stderr = pipe(ours, theirs, self._identity)
                streams = [far_stdout, far_stderr] if terminal is None else [terminal, terminal]
                far = [far_control.fileno(), far_channel.fileno(), *streams]
                await _send(requests, [*far, target.owner, target.process_1])
            pid = await _announce(control, argv, target.ceilings, terminal=terminal is not None)
            try:
                pidfd = os.pidfd_open(pid)
                ours.callback(os.close, pidfd)
                await settle(asyncio.create_task(asyncio.to_thread(admission.join, pid)))
            except OSError as error:
                msg = f"its control group: {error.strerror}"
                raise EntryFailed(msg) from error
            if not admission.allowed():
                msg = "it was ended by the server"
                raise EntryFailed(msg)
            await loop.sock_sendall(control, _GO)
            ours.pop_all()
        outputs = (stdout, stderr)
        return Entry(control, channel, outputs, pidfd, target.pid_namespace, admission.end_others)

    async def listen(self, target: Target, port: int) -> socket.socket:
        """Returns a socket that listens on a port of the sandbox's own loopback. Raises `EntryFailed`."""
        for _ in range(_TRIES):
            requests = self._open()
            try:
                return await _listen(requests, target, port)
            except _HelperGone:
                if requests is self._requests:
                    await self.close()
        msg = "the helper ended"
        raise EntryFailed(msg)

    async def close(self) -> None:
        """Ends the helper; the next command starts another one. Commands under way go on."""
        requests, process = self._requests, self._process
        self._requests = self._process = None
        if requests is not None:
            requests.close()
        if process is not None:
            await settle(asyncio.create_task(asyncio.to_thread(_wait, process)))

    def _open(self) -> socket.socket:
        if self._requests is None:
            identity = self._identity
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with far:
                near.setblocking(False)
                self._process = subprocess.Popen(
                    [
                        *helper_program("entry_helper"),
                        *(str(identity.uid), str(identity.gid), str(far.fileno())),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=HOST_ENV,
                    cwd="/",
                    pass_fds=(far.fileno(),),
                    process_group=0,
                )
            self._requests = near
        return self._requests


async def _listen(requests: socket.socket, target: Target, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as ours:
        with contextlib.ExitStack() as theirs:
            control, far_control = _sockets(ours, theirs)
            await _send(requests, [far_control.fileno(), target.owner, target.process_1])
        body = json.dumps({"port": port}).encode()
        try:
            await loop.sock_sendall(control, LENGTH.pack(len(body)) + body)
            await readable(control.fileno())
            said, descriptors, _, _ = socket.recv_fds(control, REPLY.size, 1)
        except (BrokenPipeError, ConnectionResetError):
            raise _HelperGone from None
    if not said:
        raise _HelperGone
    kind, value = REPLY.unpack(said)
    if kind != LISTENING:
        raise EntryFailed(os.strerror(value))
    return socket.socket(fileno=descriptors[0])


def _sockets(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    ours.callback(near.close)
    theirs.callback(far.close)
    near.setblocking(False)
    return near, far


async def _send(requests: socket.socket, descriptors: list[int]) -> None:
    try:
        await send_descriptors(requests, b"e", descriptors)
    except (BrokenPipeError, ConnectionResetError):
        raise _HelperGone from None
    except OSError as error:
        msg = f"its descriptors: {error.strerror}"
        raise EntryFailed(msg) from error


async def _announce(control: socket.socket, argv: Sequence[str], ceilings: Ceilings, *, terminal: bool) -> int:
    """Says what shall be started and returns the pid of the process that waits to become it."""
    loop = asyncio.get_running_loop()
    facts = {"argv": list(argv), "env": {**START_ENV, "PWD": "/"}, **asdict(ceilings), "terminal": terminal}
    body = json.dumps(facts).encode()
    heard = b""
    try:
        await loop.sock_sendall(control, LENGTH.pack(len(body)) + body)
        while len(heard) < REPLY.size:
            said = await loop.sock_recv(control, REPLY.size - len(heard))
            if not said:
                raise _HelperGone
            heard += said
    except (BrokenPipeError, ConnectionResetError):
        raise _HelperGone from None
    kind, value = REPLY.unpack(heard)
    if kind != PID:
        raise EntryFailed(os.strerror(value))
    return value


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_CLOSE_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
