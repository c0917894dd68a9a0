"""The interfaces of a process: one ASGI app on one port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.app.assembly import build_app
from tollbar.app.backends import best_backend
from tollbar.app.installation import Installation
from tollbar.app.ports import listen, origin_of
from tollbar.app.seeds import local_key, seed
from tollbar.engine.port import Engine
from tollbar.jobs.service import JobsContext
from tollbar.sandboxes.interface import Capabilities

_STOP_S: Final = 5


@dataclass(frozen=True)
class Interfaces:
    """Interfaces that are about to answer: seeded, with a key of this machine's owner and a port of their own."""

    installation: Installation
    actor: Principal
    key: str
    listener: socket.socket
    origin: str

    @classmethod
    async def prepare(cls, stack: AsyncExitStack, installation: Installation, *, explicit_port: bool) -> Interfaces:
        """Seeds what is missing and takes the port. Raises `PortTaken`."""
        settings, database, clock = installation.settings, installation.database, installation.clock
        actor = await seed(database, installation.blobs, clock, lambda: best_backend(settings, installation.data_dir))
        key = await local_key(database, actor, installation.data_dir, clock)
        installation.vault.redactor.add("API key", key)
        listener = listen(settings.host, settings.port, explicit=explicit_port)
        stack.callback(listener.close)
        return cls(installation, actor, key, listener, settings.public_url or origin_of(listener, settings.host))

    def jobs(self, engine: Engine, capabilities: Mapping[str, Capabilities]) -> JobsContext:
        """Returns with what Jobs are submitted here; `capabilities` are those of this process's backends."""
        own = self.installation
        return JobsContext(
            engine, own.clock, self.origin, capabilities, own.models, dead_after_s=own.settings.dead_after_s
        )

    async def serve(self, stack: AsyncExitStack, jobs: JobsContext) -> asyncio.Task[None]:
        """Answers from now on; the task ends when `stack` closes, or raises what ended the interfaces."""
        own = self.installation
        app = build_app(
            own.settings,
            own.database,
            own.blobs,
            jobs,
            own.clock,
            self.origin,
            own.data_dir / "uploads",
            own.models.book,
        )
        return await _serve(stack, app, self.listener)

    async def facts(self) -> dict[str, Any]:
        """Returns the first line of `--json`: addresses, the key, and a fresh sign-in link."""
        async with self.installation.database.transaction() as session:
            link = await access.create_sign_in_link(session, self.actor, self.installation.clock)
        return {
            "url": self.origin,
            "api_key": self.key,
            "mcp_urls": {"evaluation": f"{self.origin}/v1/mcp", "teams": None},
            "sign_in_url": f"{self.origin}/sign-in?link={link}",
            "data_dir": str(self.installation.data_dir),
        }


async def _serve(stack: AsyncExitStack, app: ASGIApp, listener: socket.socket) -> asyncio.Task[None]:
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=_STOP_S, server_header=False, lifespan="on"
    )
    server = _QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))

    async def stop() -> None:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(stop)
    while not server.started:
        if task.done():
            task.result()
        await asyncio.sleep(0.01)
    return task


class _QuietServer(uvicorn.Server):
    """Leaves signals to the composition root: interfaces close first, then the work is handed back."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
