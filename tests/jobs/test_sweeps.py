"""One fault at every single point of a Trial: each use of the database or the backend is hit once, by every fault.

A Job has one Trial per point, so that Trials in every stage run beside each other. Whatever is hit, each Trial ends
once, with a reward where nothing was lost for good; the money is in order; nothing is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from tests.jobs.checks import all_has_ended
from tests.jobs.conftest import Seeded
from tests.jobs.standin import WORK
from tests.jobs.world import METERED, ONE, SHARED_ONE, PatientClock, World, world_of

from tollbar.artifacts.blobs import local_blobs
from tollbar.db.session import Database
from tollbar.jobs import flows

POINTS = 16
"""Points of one test; a Trial has about 30, so two tests meet them all."""
Fault = Callable[["Wire", str, str], Awaitable[None]]


@dataclass
class Wire:
    """Counts what each Trial's first try does, and hits the point of its number."""

    fault: Fault
    first: int
    world: World | None = None
    hit: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    points: dict[str, int] = field(default_factory=dict)

    async def __call__(self, where: str) -> None:
        work_id = WORK.get()
        if work_id not in self.points:
            return
        self.seen[work_id] += 1
        if self.seen[work_id] == self.points[work_id]:
            self.hit[where] += 1
            await self.fault(self, work_id, where)


class WiredDatabase:
    """The database as workers use it: told of each transaction after it was committed, or before it begins.

    Between the end of one and the beginning of the next nothing happens that a cut could hit, so the wire counts the
    ends alone; a lost connection is another matter before and after a commit, so every second Trial meets it before.
    """

    def __init__(self, inner: Database, wire: Wire) -> None:
        self._inner, self._wire = inner, wire

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[AsyncSession]:
        await self._wire("database: read")
        async with self._inner.session() as session:
            yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncSession]:
        early = self._wire.points.get(WORK.get(), 0) % 2 == 0
        if early:
            await self._wire("database: before")
        async with self._inner.transaction() as session:
            yield session
        if not early:
            await self._wire("database: after")


# --- faults


async def raises(wire: Wire, work_id: str, where: str) -> None:
    """The database is away, or the backend has a bug."""
    if where.startswith("database"):
        raise OperationalError("SELECT 1", {}, Exception("the connection is gone"))
    msg = "a bug"
    raise RuntimeError(msg)


async def is_cut(wire: Wire, work_id: str, where: str) -> None:
    """The process is told to stop: what runs is cancelled, and handed back when it has ended."""
    assert wire.world is not None
    wire.world.engine.cut(work_id)


async def is_taken_over(wire: Wire, work_id: str, where: str) -> None:
    """Its worker is declared dead although it lives: the try goes on as a zombie."""
    assert wire.world is not None
    await wire.world.rows("UPDATE work SET state = 'CANCELLED' WHERE id = :id", id=work_id)
    await wire.world.recovery.take_over([work_id], lost=True)


async def is_stopped(wire: Wire, work_id: str, where: str) -> None:
    """A person stops its Job, and the stop flow comes at once."""
    assert wire.world is not None
    world = wire.world
    job_id = await world.value("SELECT job_id FROM trial WHERE id = split_part(:work, ':', 2)", work=work_id)
    await world.stop(job_id)
    await flows.end_running(world.tools, job_id)


async def build(database: Database, seeded: Seeded, root: Path, fault: Fault, first: int) -> tuple[World, Wire]:
    wire = Wire(fault, first)
    blobs = local_blobs(seeded.blobs)
    world = world_of(database, blobs, seeded.actor, root, PatientClock(), tools_database=WiredDatabase(database, wire))
    world.provider.wire = wire
    world.capacity = 1000
    wire.world = world
    return world, wire


async def begin(world: World, wire: Wire, source: dict[str, str]) -> str:
    """Submits the Job and gives each of its Trials the point at which it is hit. Images are built before."""
    await world.one(dataset=source)
    job = await world.submit(dataset=source, attempts=POINTS, runner=METERED, max_cost_usd=1000)
    await world.engine.run(f"job:{job['job_id']}")
    for row in await world.rows("SELECT id, attempt FROM trial WHERE state = 'pending'"):
        wire.points[f"trial:{row.id}:1"] = wire.first + row.attempt
    return job["job_id"]


async def finish(world: World) -> None:
    """Pumps, runs and reconciles, until nothing changes any more."""
    for _ in range(4):
        await world.engine.drain(world.pump.run_once)
        await world.recovery.reconcile()
        await world.recovery.reconcile()


async def judge(world: World, wire: Wire, job_id: str) -> None:
    """Everything has ended, was hit, and came to its reward all the same."""
    await all_has_ended(world)
    assert wire.hit.total() >= POINTS - 5, wire.hit
    job = await world.job(job_id)
    assert (job["status"], job["n_scored"], job["score"]) == ("completed", POINTS, 1.0)


SEPARATE = [(ONE, 0), (ONE, POINTS)]
SHARED = [(SHARED_ONE, 9)]
"""Shared mode differs from the seal on, in what is kept."""


@pytest.mark.parametrize(("source", "first"), SEPARATE)
async def test_an_error_at_any_point_ends_no_trial_without_a_reward(
    database: Database, seeded: Seeded, tmp_path: Path, source: dict[str, str], first: int
) -> None:
    world, wire = await build(database, seeded, tmp_path, raises, first)
    job_id = await begin(world, wire, source)
    await finish(world)
    # One fault is never the end: an internal error is tried once more, a lost step is taken up by the reconciler.
    await judge(world, wire, job_id)


@pytest.mark.parametrize(("source", "first"), SEPARATE)
async def test_a_shutdown_at_any_point_is_handed_back_and_counts_against_nobody(
    database: Database, seeded: Seeded, tmp_path: Path, source: dict[str, str], first: int
) -> None:
    world, wire = await build(database, seeded, tmp_path, is_cut, first)
    job_id = await begin(world, wire, source)
    await world.pump.run_once()
    await world.engine.run()
    cut = [row.id for row in await world.rows("SELECT id FROM work WHERE state = 'CANCELLED'")]
    await world.recovery.take_over(cut, lost=False)
    assert await world.value("SELECT max(losses) FROM trial") == 0
    await finish(world)
    await judge(world, wire, job_id)


@pytest.mark.requirement("G-EVAL-18.14", "G-EVAL-18.19", "G-ENG-17.zombie")
@pytest.mark.parametrize(("source", "first"), SEPARATE + SHARED)
async def test_a_zombie_at_any_point_writes_nothing_that_counts(
    database: Database, seeded: Seeded, tmp_path: Path, source: dict[str, str], first: int
) -> None:
    world, wire = await build(database, seeded, tmp_path, is_taken_over, first)
    job_id = await begin(world, wire, source)
    await finish(world)
    await judge(world, wire, job_id)


@pytest.mark.parametrize(("source", "first"), SEPARATE + SHARED)
async def test_a_stop_at_any_point_leaves_a_job_that_was_cancelled_or_was_done(
    database: Database, seeded: Seeded, tmp_path: Path, source: dict[str, str], first: int
) -> None:
    world, wire = await build(database, seeded, tmp_path, is_stopped, first)
    await world.one(dataset=source)
    for _ in range(POINTS):
        await world.submit(dataset=source, runner=METERED, max_cost_usd=1)
    await world.engine.run()
    for point, row in enumerate(await world.rows("SELECT id FROM trial WHERE state = 'pending'"), start=1):
        wire.points[f"trial:{row.id}:1"] = first + point
    await finish(world)
    await all_has_ended(world)
    assert wire.hit.total() >= POINTS - 5, wire.hit
    ended = Counter(row.state for row in await world.rows("SELECT state FROM job"))
    assert ended["cancelled"] + ended["completed"] == POINTS + 1
    assert ended["cancelled"] >= POINTS - 8
    pairs = "SELECT DISTINCT j.state, t.state AS trial FROM job j JOIN trial t ON t.job_id = j.id"
    assert {tuple(row) for row in await world.rows(pairs)} == {("completed", "succeeded"), ("cancelled", "cancelled")}
