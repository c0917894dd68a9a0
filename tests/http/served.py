"""The app behind a real server on a loopback port, for what only a socket shows."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from tests.support import eventually


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[int]:
    """Yields the port of the app's server, which ends with the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await eventually(lambda: asyncio.sleep(0, server.started))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task
