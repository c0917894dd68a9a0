"""How a worker starts bwrap: by one helper process (`start_helper`) that has the tenants' uid and dies with the worker.

The worker's own memory is never copied, and no other program stands between: what a start costs is bwrap alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tollbar
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.start_helper import ANSWER, EXIT, FAILED, OUTSIDE, REQUEST, STARTED

HOST_ENV: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_ROOT: Final = str(Path(tollbar.__file__).parents[1])
_CLOSE_PATIENCE_S: Final = 5.0
_NUMBERS: Final = 1 << 32


@dataclass(frozen=True)
class Started:
    """A started program: its pid, a pidfd of it (the caller closes it), and its exit code once it has ended.

    The code is negative for a signal, and None when nobody knows because the helper died, too. `is_in_groups` says that
    it is in its control groups.
    """

    pid: int
    pidfd: int
    code: asyncio.Future[int | None]
    is_in_groups: bool


class Starter:
    """The worker's helper: started when first needed, and again after it died (what it had started is dead then).

    It belongs to one event loop; used from another one, it starts anew.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._line: _Line | None = None

    async def start(
        self, program: str, argv: Sequence[str], descriptors: Sequence[int], nofile: int, file_bytes: int
    ) -> Started:
        """Starts a program; `descriptors` become its 3, 1, 2, `start_helper.INFO` and `start_helper.ARGUMENTS`;
        further ones are the `cgroup.procs` of the groups that it joins.

        Raises `OSError`. To be called on the thread of the loop. Whoever cancels it lets go of the
        descriptors, and a program that finds them closed must end: a signal could leave its half-made child behind.
        """
        loop = asyncio.get_running_loop()
        line = self._line
        if line is None or line.loop is not loop or line.is_closed:
            line = self._line = _Line(self._identity, loop)
        order = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            facts = {"program": program, "argv": list(argv), "nofile": nofile, "file_bytes": file_bytes}
            os.write(order, json.dumps(facts).encode("utf-8", "surrogateescape"))
            return await line.ask([order, *descriptors])
        finally:
            os.close(order)

    async def close(self) -> None:
        """Ends the helper, and with it whatever it started that still lives."""
        line, self._line = self._line, None
        if line is not None:
            await line.close()


class _Line:
    """One helper process and what was asked of it."""

    def __init__(self, identity: Identity, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_closed = False
        self._asked: dict[int, asyncio.Future[Started]] = {}
        self._codes: dict[int, asyncio.Future[int | None]] = {}
        self._last = 0
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            near.setblocking(False)
            self._process = subprocess.Popen(
                [*helper_program("start_helper"), str(identity.uid), str(identity.gid), str(far.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=HOST_ENV,
                cwd="/",
                pass_fds=(far.fileno(),),
                process_group=0,
            )
        self._near = near
        self._closing = weakref.finalize(self, _shut, loop, near, self._process)
        found: Callable[[], _Line | None] = weakref.ref(self)
        loop.add_reader(near, _heard, found)

    async def ask(self, descriptors: Sequence[int]) -> Started:
        """Sends one request and returns the answer."""
        self._last = number = (self._last + 1) % _NUMBERS
        answer = self._asked[number] = self.loop.create_future()
        try:
            await send_descriptors(self._near, REQUEST.pack(number), descriptors)
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                os.close(answer.result().pidfd)
            raise
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        """Returns when the helper is dead."""
        if self._closing.detach() is not None:
            _hang_up(self.loop, self._near)
        self._over()
        await asyncio.to_thread(_wait, self._process)

    def hear(self) -> None:
        """Takes what the helper says; an end of it is the end of all that it started."""
        while not self.is_closed:
            try:
                said, descriptors, _, _ = socket.recv_fds(self._near, ANSWER.size, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                said, descriptors = b"", []
            if not said:
                self.loop.remove_reader(self._near)
                self._over()
                return
            number, kind, value = ANSWER.unpack(said)
            self._take(number, kind, value, descriptors)

    def _take(self, number: int, kind: int, value: int, descriptors: list[int]) -> None:
        if kind == EXIT:
            code = self._codes.pop(number, None)
            if code is not None and not code.done():
                code.set_result(value)
            return
        asked = self._asked.pop(number, None)
        if asked is None or asked.done():
            for descriptor in descriptors:
                os.close(descriptor)
        elif kind in {STARTED, OUTSIDE}:
            code = self._codes[number] = self.loop.create_future()
            asked.set_result(Started(value, descriptors[0], code, kind == STARTED))
        else:
            assert kind == FAILED
            asked.set_exception(OSError(value, os.strerror(value)))

    def _over(self) -> None:
        self.is_closed = True
        for code in self._codes.values():
            if not code.done():
                code.set_result(None)
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(OSError(0, "the helper that starts sandboxes ended"))
        self._codes.clear()


def helper_program(module: str) -> list[str]:
    """Returns the command that runs `main` of a module beside this one, without the packages of the environment."""
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from tollbar.sandboxes.{module} import main; main()"
    return [sys.executable, "-I", "-S", "-X", "utf8", "-c", code, _ROOT]


async def send_descriptors(near: socket.socket, said: bytes, descriptors: Sequence[int]) -> None:
    """Sends one message with descriptors, as soon as the other end can take it. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            socket.send_fds(near, [said], list(descriptors))
        except BlockingIOError:
            future: asyncio.Future[None] = loop.create_future()
            loop.add_writer(near, _resolve, future)
            try:
                await future
            finally:
                loop.remove_writer(near)
        else:
            return


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _heard(line: Callable[[], _Line | None]) -> None:
    found = line()
    if found is not None:
        found.hear()


def _shut(loop: asyncio.AbstractEventLoop, near: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Ends the helper of a starter that nobody closed."""
    _hang_up(loop, near)
    _wait(process)


def _hang_up(loop: asyncio.AbstractEventLoop, near: socket.socket) -> None:
    if not loop.is_closed():
        loop.remove_reader(near)
    near.close()


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_CLOSE_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
