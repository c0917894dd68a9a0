"""Sockets that listen inside a sandbox and are served by this process, until the sandbox is killed."""

from __future__ import annotations

import asyncio
import os
import socket

import structlog

from tollbar.sandboxes.entry_helper import LISTENING, REPLY
from tollbar.sandboxes.interface import Serve
from tollbar.sandboxes.process import readable
from tollbar.sandboxes.starter import HOST_ENV, helper_program

_log = structlog.get_logger()


async def listen_beside(pid: int, port: int) -> socket.socket:
    """Returns a socket that listens on the loopback of a process of this machine, in that process's network.

    Raises `OSError`: there is no such process, or this one may not join its network.
    """
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    near, far = socket.socketpair()
    try:
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
    finally:
        os.close(network)
    kind, value = REPLY.unpack(said) if said else (0, 0)
    if kind != LISTENING:
        raise OSError(value, os.strerror(value) if said else "the helper that listens ended")
    return socket.socket(fileno=descriptors[0])


class Served:
    """What is served in one sandbox, by port."""

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, port: int, listening: socket.socket, serve: Serve) -> str:
        """Serves a socket from now on; returns its base URL as the sandbox sees it."""
        self._tasks[port] = asyncio.create_task(_serve(listening, serve))
        return f"http://127.0.0.1:{port}"

    async def close(self) -> None:
        """Ends every service; the sockets are closed when this returns."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(listening: socket.socket, serve: Serve) -> None:
    with listening:
        try:
            await serve(listening)
        except Exception:
            # The sandbox sees a refused connection; whoever runs the server finds the reason here.
            _log.exception("a listener inside a sandbox ended")
            raise
