"""Sockets that listen inside a sandbox and are served by this process, until the sandbox is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket

from tollbar.sandboxes.entry_helper import LISTENING, REPLY
from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.interface import Network, SandboxSpec, Serve
from tollbar.sandboxes.process import readable
from tollbar.sandboxes.starter import HOST_ENV, helper_program

_log = logging.getLogger(__name__)


def require_network(spec: SandboxSpec) -> None:
    """Raises `EnvironmentRefused` for a sandbox whose description says that nothing is to be reached from it."""
    if spec.network is Network.NONE:
        raise EnvironmentRefused("network", "This sandbox was made without any network.")


def network_of(pid: int) -> int:
    """Returns a descriptor of the network of a process of this machine. Raises `OSError`, also for this one's own."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):  # noqa: PTH116 - a file of the kernel
        os.close(network)
        raise OSError(0, "it has the network of this server")
    return network


async def listen_beside(network: int, port: int) -> socket.socket:
    """Returns a socket that listens on the loopback of a network. Raises `OSError`: this process may not join it."""
    near, far = socket.socketpair()
    with near:
        with far:
            helper = await asyncio.create_subprocess_exec(
                *helper_program("listen_helper"),
                *(str(network), str(port), str(far.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=HOST_ENV,
                cwd="/",
                pass_fds=(network, far.fileno()),
            )
        near.setblocking(False)
        await readable(near.fileno())
        said, descriptors, _, _ = socket.recv_fds(near, REPLY.size, 1)
        await helper.wait()
    kind, value = REPLY.unpack(said) if said else (0, 0)
    if kind != LISTENING:
        raise OSError(value, os.strerror(value) if said else "the helper that listens ended")
    return socket.socket(fileno=descriptors[0])


class Served:
    """What is served in one sandbox, by port."""

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, port: int, listening: socket.socket, serve: Serve, process: int) -> str:
        """Serves a socket from now on; returns its base URL as the sandbox sees it.

        `process` is a pidfd of a process that lives as long as the sandbox's network; its end ends the service, too.
        """
        with contextlib.ExitStack() as opened:
            opened.enter_context(listening)
            watched = os.dup(process)
            opened.callback(os.close, watched)
            task = self._tasks[port] = asyncio.create_task(_serve(listening, serve, watched))
            closing = opened.pop_all()
        # Not in the task itself: one that is cancelled at once never begins.
        task.add_done_callback(lambda _: closing.close())
        return f"http://127.0.0.1:{port}"

    async def close(self) -> None:
        """Ends every service; the sockets are closed when this returns."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(listening: socket.socket, serve: Serve, process: int) -> None:
    serving = asyncio.ensure_future(serve(listening))
    dying = asyncio.create_task(readable(process))
    try:
        await asyncio.wait({serving, dying}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        serving.cancel()
        dying.cancel()
        said, _ = await asyncio.gather(serving, dying, return_exceptions=True)
    if isinstance(said, Exception):
        # The sandbox sees a refused connection; whoever runs the server finds the reason here.
        _log.error("a listener inside a sandbox ended", exc_info=said)
