"""The console without a browser: signed in or not, on a server that holds some Jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from fastapi import FastAPI
from tests.mcp.world import ORIGIN, World, build_world, http_client
from tests.support import ManualClock

from tollbar.access import service as access
from tollbar.db.session import Database
from tollbar.jobs import service as jobs

OWN = {"Origin": ORIGIN}


@pytest.fixture
async def world(database: Database, clock: ManualClock, tmp_path: Path) -> World:
    return await build_world(database, clock, tmp_path)


@pytest.fixture
def app(world: World) -> FastAPI:
    return world.app()


@pytest.fixture
def log_lines() -> Iterator[list[dict[str, Any]]]:
    """What was logged, as dictionaries."""
    with structlog.testing.capture_logs() as lines:
        yield lines


async def new_link(world: World) -> str:
    """Returns the token of a fresh sign-in link."""
    async with world.database.transaction() as session:
        return await access.create_sign_in_link(session, world.actor, world.clock)


@asynccontextmanager
async def signed_in(world: World, app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """Yields a browser's client that used a sign-in link."""
    async with http_client(app, headers={"Accept": "text/html"}) as browser:
        answer = await browser.post("/sign-in", data={"link": await new_link(world)}, headers=OWN)
        assert answer.status_code == 303, answer.text
        yield browser


@pytest.fixture
async def browser(world: World, app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with signed_in(world, app) as client:
        yield client


@pytest.fixture
async def visitor(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser's client that is not signed in."""
    async with http_client(app, headers={"Accept": "text/html"}) as client:
        yield client


async def submit(world: World, **request: Any) -> str:
    """Submits a Job on `demo/mini@1` and returns its id."""
    body = {"dataset": "demo/mini@1", **request}
    async with world.database.transaction() as session:
        job, _ = await jobs.submit(session, world.context, world.actor, body)
    return job["job_id"]
