"""Ways into the gateway: a socket that listens inside a sandbox, and loopback for whatever runs in the worker."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tollbar.gateway.app import SUBJECT, Gateway

MOST_CONNECTIONS: Final = 64
"""Of one listener; further ones wait in its backlog."""
_IDLE_S: Final = 60
_END_S: Final = 5.0
_AGAIN_S: Final = 0.01


class Listeners:
    """The ways into one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._config = uvicorn.Config(
            gateway,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_S,
            ws="none",
        )
        self._config.load()

    async def serve(self, listening: socket.socket, subject: str | None) -> None:
        """Serves the connections of a listening socket until it is cancelled; whoever calls it closes the socket.

        `subject` is whose listener it is: keys of others are refused there. None takes any key.
        """
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        state, free = ServerState(), asyncio.Semaphore(MOST_CONNECTIONS)

        def connection() -> _Connection:
            return _Connection(self._config, state, {SUBJECT: subject}, free)

        try:
            while True:
                await free.acquire()
                accepted = await _accepted(listening)
                if accepted is None:
                    free.release()
                    continue
                await loop.connect_accepted_socket(connection, accepted)
        finally:
            await _end(state)


async def _accepted(listening: socket.socket) -> socket.socket | None:
    """Returns the next connection; None for one that ended before it was taken. Raises `OSError` once it is closed."""
    try:
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        if listening.fileno() < 0:
            raise
        # Out of descriptors, or a connection that was reset in the backlog: the next one may be fine.
        await asyncio.sleep(_AGAIN_S)
        return None
    return accepted


def loopback() -> socket.socket:
    """Returns a socket that listens on a free port of this machine's loopback."""
    return socket.create_server(("127.0.0.1", 0), backlog=128)


class _Connection(H11Protocol):
    """One connection; its end lets the next one in."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, app_state: dict[str, Any], free: asyncio.Semaphore
    ) -> None:
        super().__init__(config, state, app_state)
        self._free = free

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._free.release()


async def _end(state: ServerState) -> None:
    """Closes what is open; calls under way go on to their usage without it."""
    for connection in list(state.connections):
        connection.transport.abort()
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=_END_S)
