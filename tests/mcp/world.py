"""The whole app as `tollbar up` builds it, on a real database, without a worker: what is enqueued is only noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from tests.support import ManualClock

from tollbar.access import service as access
from tollbar.access import store as access_store
from tollbar.access.principal import PRESETS, Principal, system_principal
from tollbar.access.tables import ProjectRow, WorkspaceRow
from tollbar.app.assembly import build_app
from tollbar.app.seeds import seed
from tollbar.artifacts.blobs import BlobStore, local_blobs
from tollbar.db.session import Database
from tollbar.engine.port import Work
from tollbar.jobs.service import JobsContext
from tollbar.kit.ids import new_id
from tollbar.settings import Settings

ORIGIN = "http://127.0.0.1:8787"
AUTOMATION = "Project automation"
READ_ONLY = "Read only"
STRANGER = "stranger"


@dataclass
class NotingEngine:
    """Stands where the durable engine would: notes what is enqueued, and runs nothing."""

    works: list[Work] = field(default_factory=list)
    fault: Exception | None = None
    gate: asyncio.Event | None = None
    """Where it is set, enqueueing waits for it."""

    async def enqueue(self, session: AsyncSession, *work: Work) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        self.works += work


@dataclass(frozen=True)
class World:
    """A server without a socket and without a worker."""

    settings: Settings
    database: Database
    blobs: BlobStore
    clock: ManualClock
    engine: NotingEngine
    actor: Principal
    stranger: Principal
    secrets: dict[str, str]
    key_ids: dict[str, str]
    folder: Path
    origin: str = ORIGIN

    @property
    def context(self) -> JobsContext:
        return JobsContext(engine=self.engine, clock=self.clock, origin=self.origin)  # type: ignore[arg-type]  # notes

    def app(self) -> FastAPI:
        """Returns a fresh app: the part that serves MCP runs once."""
        return build_app(
            self.settings, self.database, self.blobs, self.context, self.clock, self.origin, self.folder / "uploads"
        )

    def changed(self, **settings: Any) -> World:
        """Returns the same server with other settings."""
        return replace(self, settings=self.settings.model_copy(update=settings))

    async def count(self, table: str) -> int:
        """Returns how many rows a table has."""
        async with self.database.session() as session:
            return int(await session.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[FastAPI]:
    """Yields the app while its lifespan runs, in a task of its own as a server would."""
    started, ending = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            started.set()
            await ending.wait()

    task = asyncio.create_task(live())
    await asyncio.wait({task, asyncio.create_task(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield app
    finally:
        ending.set()
        await task


@asynccontextmanager
async def http_client(app: FastAPI, key: str | None = None, **more: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Yields a client of the app; `key` is a secret."""
    headers = {**({} if key is None else {"Authorization": f"Bearer {key}"}), **more.pop("headers", {})}
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers, **more) as client:
        yield client


async def build_world(database: Database, clock: ManualClock, folder: Path) -> World:
    """Returns a server seeded like a fresh one, with a key of each preset and one of another workspace."""
    blobs = local_blobs(folder / "blobs")
    actor = await seed(database, blobs, clock)
    async with database.transaction() as session:
        keys = {
            preset: await access.create_key(session, actor, preset=preset, name=preset, clock=clock)
            for preset in PRESETS
        }
    stranger, keys[STRANGER] = await _stranger(database, clock)
    return World(
        settings=Settings(data_dir=folder, requests_per_minute=100_000),
        database=database,
        blobs=blobs,
        clock=clock,
        engine=NotingEngine(),
        actor=actor,
        stranger=stranger,
        secrets={name: key.secret for name, key in keys.items()},
        key_ids={name: key.key_id for name, key in keys.items()},
        folder=folder,
    )


async def _stranger(database: Database, clock: ManualClock) -> tuple[Principal, access.NewKey]:
    now = clock.now()
    workspace = WorkspaceRow(id=new_id("ws"), name="Elsewhere", created_at=now)
    project = ProjectRow(id=new_id("prj"), workspace_id=workspace.id, name="Other", created_at=now)
    actor = system_principal(workspace.id, project.id)
    async with database.transaction() as session:
        await access_store.add(session, workspace, project)
        key = await access.create_key(session, actor, preset=AUTOMATION, name="theirs", clock=clock)
    return actor, key
