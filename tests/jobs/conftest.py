"""The world of these tests, fresh for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.jobs.world import SteppedClock, World, world_of
from tests.support import ManualClock

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.agents import service as profiles
from tollbar.artifacts.blobs import local_blobs
from tollbar.db.session import Database
from tollbar.sandboxes import service as runners


@pytest.fixture
async def actor(database: Database) -> Principal:
    """The server's principal in a project with the seeded runners and profiles."""
    clock = ManualClock()
    async with database.transaction() as session:
        principal = await access.ensure_first_project(session, clock)
        await runners.seed(session, clock, base="host@sha256:" + "0" * 64)
        await profiles.seed(session, principal, clock)
    return principal


@pytest.fixture
async def world(database: Database, actor: Principal, tmp_path: Path) -> World:
    made = world_of(database, local_blobs(tmp_path / "blobs"), actor, tmp_path)
    await made.engine.prepare()
    return made


@pytest.fixture
async def stepped(database: Database, actor: Principal, tmp_path: Path) -> World:
    """The same with a clock that the test moves."""
    made = world_of(database, local_blobs(tmp_path / "blobs"), actor, tmp_path, SteppedClock())
    await made.engine.prepare()
    return made
