"""The world of these tests, fresh for each: a copy of one database that was seeded once, and of its blobs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import structlog
from sqlalchemy.engine import make_url
from tests.jobs.world import SHARED, PatientClock, SteppedClock, World, world_of

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.agents import service as profiles
from tollbar.artifacts.blobs import local_blobs
from tollbar.db.session import Database, open_database
from tollbar.engine import store as workers
from tollbar.sandboxes import service as runners

_SEEDED = "seeded_jobs"
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults on order are logged with their tracebacks; nobody reads them here, and writing them costs seconds."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@dataclass(frozen=True)
class Seeded:
    """What was made once: a database to copy, blobs to copy, and whose they are."""

    server: str
    blobs: Path
    actor: Principal


@pytest.fixture(scope="session")
def seeded(database_server: str, tmp_path_factory: pytest.TempPathFactory) -> Seeded:
    """Seeds like a fresh server, with the datasets `team/set` and `team/shared` of two tasks each."""
    root = tmp_path_factory.mktemp("seeded")
    _admin(database_server, f"CREATE DATABASE {_SEEDED} TEMPLATE template_tollbar STRATEGY FILE_COPY")

    async def seed() -> Principal:
        database = open_database(_named(database_server, _SEEDED))
        blobs = local_blobs(root / "blobs")
        try:
            made = world_of(database, blobs, Principal("system", "", "", "", frozenset()), root)
            async with database.transaction() as session:
                made.actor = await access.ensure_first_project(session, made.clock)
                await runners.seed(session, made.clock, base="host@sha256:" + "0" * 64)
                await profiles.seed(session, made.actor, made.clock)
                await workers.add_worker(
                    session, "worker-1", host="here", pid=1, engine_version="1", backends=["bwrap"], slots=4
                )
            await made.engine.prepare()
            await made.publish("team/set")
            await made.publish("team/shared", toml=SHARED)
            return made.actor
        finally:
            await database.close()

    return Seeded(database_server, root / "blobs", asyncio.run(seed()))


@pytest.fixture
def database_url(seeded: Seeded) -> Iterator[str]:
    """The URL of a copy of the seeded database."""
    name = f"jobs_{next(_numbers)}"
    _admin(seeded.server, f"CREATE DATABASE {name} TEMPLATE {_SEEDED} STRATEGY FILE_COPY")
    yield _named(seeded.server, name)
    _admin(seeded.server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def world(database: Database, seeded: Seeded, tmp_path: Path) -> World:
    shutil.copytree(seeded.blobs, tmp_path / "blobs")
    return world_of(database, local_blobs(tmp_path / "blobs"), seeded.actor, tmp_path)


@pytest.fixture
async def stepped(database: Database, seeded: Seeded, tmp_path: Path) -> World:
    """The same with a clock that the test moves."""
    shutil.copytree(seeded.blobs, tmp_path / "blobs")
    return world_of(database, local_blobs(tmp_path / "blobs"), seeded.actor, tmp_path, SteppedClock())


@pytest.fixture
async def patient(database: Database, seeded: Seeded, tmp_path: Path) -> World:
    """The same with a clock on which short pauses pass at once, and leases are never renewed."""
    shutil.copytree(seeded.blobs, tmp_path / "blobs")
    return world_of(database, local_blobs(tmp_path / "blobs"), seeded.actor, tmp_path, PatientClock())


def _named(url: str, database: str) -> str:
    return make_url(url).set(database=database).render_as_string(hide_password=False)


def _admin(url: str, statement: str) -> None:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement)
