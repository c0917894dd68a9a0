"""Real workers on the real engine: Jobs run, are stopped, and outlive a worker that is killed or told to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.checks import money_is_in_order, sums_equal_a_recount
from tests.jobs.standin import Call, FolderProvider, ended, solves
from tests.jobs.worker import working
from tests.jobs.world import METERED, ONE, World
from tests.support import eventually

from tollbar.budget import limits
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.interface import ExecResult

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
AGENT = "/solution/solve.sh"


@pytest.fixture
async def real(world: World) -> AsyncIterator[World]:
    """The world, submitting to the real engine."""
    engine = DbosEngine(world.database.url, "submits")
    yield replace(world, context=replace(world.context, engine=engine))
    await engine.stop()


@pytest.fixture
async def other(real: World, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Starts a worker process whose agents run until they are ended; returns once one does."""
    processes: list[asyncio.subprocess.Process] = []

    async def start() -> asyncio.subprocess.Process:
        facts = {
            "url": real.database.url, "blobs": str(tmp_path / "blobs"), "root": str(tmp_path / "other"),
            "executor_id": "other", "blocks": True,
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.jobs.worker", json.dumps(facts), stdout=asyncio.subprocess.PIPE, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        processes.append(process)
        await hears(process, "agent")
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def hears(process: asyncio.subprocess.Process, event: str) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while json.loads(await process.stdout.readline())["event"] != event:
            pass


async def final(world: World, job_id: str) -> dict[str, Any]:
    """Returns a Job once it has ended."""

    async def ended_job() -> dict[str, Any] | None:
        job = await world.job(job_id)
        return job if job["final"] else None

    found = await eventually(ended_job, within_s=20)
    assert found is not None
    return found


def agents(*behaviours: Any) -> Callable[[FolderProvider], None]:
    def prepare(provider: FolderProvider) -> None:
        provider.agent = list(behaviours)

    return prepare


async def test_jobs_run_are_tried_again_and_are_stopped_by_a_real_worker(real: World, tmp_path: Path) -> None:
    started = asyncio.Event()

    async def waits(call: Call) -> ExecResult:
        started.set()
        await asyncio.Event().wait()
        return ended()

    def prepare(provider: FolderProvider) -> None:
        provider.faults["create:agent"] = [EnvironmentStartFailed("start", "It was not up.")]

    async with working(real.database, real.blobs, tmp_path / "mine", "mine", prepare) as worker:
        job = await final(real, (await real.submit(attempts=2, runner=METERED, max_cost_usd=5))["job_id"])
        assert (job["status"], job["n_scored"], job["score"]) == ("completed", 4, 1.0)
        assert max(trial["try_no"] for trial in await real.trial_results(job["job_id"])) == 2
        worker.provider.agent = [waits]
        stopped = (await real.submit(dataset=ONE, runner=METERED, max_cost_usd=5))["job_id"]
        async with asyncio.timeout(10):
            await started.wait()
        assert (await real.stop(stopped))["status"] == "stopping"
        job = await final(real, stopped)
        assert (job["status"], job["budget"]["reserved_usd"]) == ("cancelled", "0")
        # At the intervals of tests the reconciler may tell the end before the worker has looked up from its step.
        await eventually(lambda: asyncio.sleep(0, not worker.provider.living()))
        assert [path.name for path in (tmp_path / "mine" / "logs").iterdir()] == ["empty"] or not list(
            (tmp_path / "mine" / "logs").iterdir()
        )
    await sums_equal_a_recount(real)
    await money_is_in_order(real)


async def test_a_worker_that_is_killed_costs_a_try_and_its_reservation(
    real: World, other: Callable[[], Awaitable[Any]], tmp_path: Path
) -> None:
    job_id = (await real.submit(dataset=ONE, runner=METERED, max_cost_usd=5))["job_id"]
    process = await other()
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with working(real.database, real.blobs, tmp_path / "mine", "mine", agents(solves)) as worker:
        job = await final(real, job_id)
        assert worker.provider.runs_of(AGENT) == 1
    assert (job["status"], job["score"]) == ("completed", 1.0)
    assert [tuple(row) for row in await real.rows("SELECT try_no, losses FROM trial")] == [(2, 1)]
    written = "SELECT cost_pusd = worst_pusd FROM ledger_call WHERE state = 'written_off'"
    assert await real.value(written)
    await money_is_in_order(real)


async def test_what_a_killed_worker_had_reserved_is_charged_to_the_day_the_job_and_the_trials_share(
    real: World, other: Callable[[], Awaitable[Any]], tmp_path: Path
) -> None:
    async with real.database.transaction() as session:
        await limits.set_limits(session, real.actor, {"daily_cap_usd": "3"}, real.clock)
    caps = {"max_cost_usd": 2, "max_cost_per_trial_usd": 1}
    job_id = (await real.submit(dataset=ONE, attempts=3, runner=METERED, **caps))["job_id"]
    process = await other()
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with working(real.database, real.blobs, tmp_path / "mine", "mine", agents(solves)):
        await final(real, job_id)
    lost = await real.value("SELECT sum(cost_pusd) FROM ledger_call WHERE state = 'written_off'")
    assert lost > 0
    rows = await real.rows("SELECT level, sum(settled_pusd) AS spent FROM budget GROUP BY level ORDER BY level")
    assert [row.level for row in rows] == [0, 1, 2]
    (spent,) = {row.spent for row in rows}
    assert spent >= lost
    await money_is_in_order(real)


async def test_a_worker_that_is_told_to_end_hands_its_trial_back(
    real: World, other: Callable[[], Awaitable[Any]], tmp_path: Path
) -> None:
    job_id = (await real.submit(dataset=ONE, runner=METERED, max_cost_usd=5))["job_id"]
    process = await other()
    process.send_signal(signal.SIGTERM)
    await hears(process, "stopped")
    assert await process.wait() == 0
    async with working(real.database, real.blobs, tmp_path / "mine", "mine", agents(solves)):
        job = await final(real, job_id)
    assert (job["status"], job["score"]) == ("completed", 1.0)
    assert [tuple(row) for row in await real.rows("SELECT try_no, losses FROM trial")] == [(2, 0)]
    # What it had used until then was settled, not written off.
    assert await real.value("SELECT count(*) FROM ledger_call WHERE state = 'written_off'") == 0
    await money_is_in_order(real)
