"""Small parts by themselves: pauses and bounds, limits and prices, clean-up that is not cut, logs, the task cache."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.world import ONE, World

from tollbar.artifacts.blobs import local_blobs
from tollbar.jobs import evidence, limits, refusals, retries
from tollbar.jobs.retries import Failure
from tollbar.jobs.sinks import Sink
from tollbar.jobs.states import Reason
from tollbar.kit.cleanup import to_the_end
from tollbar.sandboxes.interface import Limits
from tollbar.vault.redactor import Redactor

PRICES = {"vcpu_second_pusd": 10**10, "gib_second_pusd": 10**9}
RUNNER = {
    "limits": {"cpus": 1.0, "memory_mb": 2048, "disk_mb": 10240, "pids": 512, "nofile": 4096},
    "maxima": {"cpus": 4.0, "memory_mb": 8192, "disk_mb": 20480, "pids": 4096, "nofile": 65536},
    "prices": PRICES,
}

# --- retries


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 8), (3, 32), (4, 60), (9, 60)])
def test_pauses_grow_fourfold_up_to_a_minute_with_a_fifth_of_jitter(failures: int, seconds: float) -> None:
    found = [retries.pause_s(failures, f"trial_{number}") for number in range(200)]
    assert all(0.8 * seconds <= pause <= min(60.0, 1.2 * seconds) for pause in found)
    assert max(found) - min(found) > 0.3 * seconds or seconds == 60
    assert found == [retries.pause_s(failures, f"trial_{number}") for number in range(200)]


@pytest.mark.parametrize(
    ("reason", "tries"),
    [
        (Reason.ENVIRONMENT_REFUSED, 1),
        (Reason.ENVIRONMENT_BUILD_FAILED, 3),
        (Reason.ENVIRONMENT_START_FAILED, 3),
        (Reason.AGENT_SETUP_FAILED, 3),
        (Reason.SANDBOX_OOM, 3),
        (Reason.SANDBOX_LOST, 3),
        (Reason.VERIFIER_TIMEOUT, 1),
        (Reason.REWARD_MISSING, 1),
        (Reason.INTERNAL_ERROR, 2),
    ],
)
def test_each_reason_has_its_number_of_tries(reason: Reason, tries: int) -> None:
    assert [Failure(reason).is_final(losses) for losses in range(4)] == [losses + 1 >= tries for losses in range(4)]


def test_a_failure_passes_through_a_steps_result_unchanged() -> None:
    failure = Failure(Reason.SANDBOX_LOST, "worker", "It was lost.")
    assert Failure.of(failure.facts()) == failure


# --- limits and prices


def test_a_second_costs_vcpus_and_gib_at_their_prices_rounded_up_once() -> None:
    assert limits.rate_of(Limits(cpus=1, memory_mb=2048), PRICES) == 12 * 10**9
    # 0.1 is exactly a tenth here, although no float is.
    assert limits.rate_of(Limits(cpus=0.1, memory_mb=1024), PRICES) == 2 * 10**9
    assert limits.rate_of(Limits(cpus=1.1, memory_mb=0), PRICES) == 11 * 10**9
    third = {"vcpu_second_pusd": 0, "gib_second_pusd": 1}
    assert limits.rate_of(Limits(cpus=1, memory_mb=1), third) == 1
    assert limits.rate_of(Limits(), {"vcpu_second_pusd": 0, "gib_second_pusd": 0}) == 0


def test_a_task_gets_what_it_asks_for_up_to_the_runners_maxima() -> None:
    silent = {"cpus": None, "memory_mb": None, "storage_mb": None}
    assert limits.limits_of(silent, RUNNER) == Limits(1.0, 2048, 10240, 512, 4096)
    greedy = {"cpus": 64, "memory_mb": 999999, "storage_mb": 999999}
    assert limits.limits_of(greedy, RUNNER) == Limits(4.0, 8192, 20480, 512, 4096)
    assert limits.limits_of({**silent, "memory_mb": 256}, RUNNER).memory_mb == 256


@pytest.mark.parametrize(
    ("task_s", "job_s", "expected"),
    [(None, None, 3600), (30, None, 30), (30, 10, 10), (30, 99, 30), (9999, None, 3600), (None, 5, 5)],
)
def test_the_agents_time_is_the_least_of_task_job_and_maximum(
    task_s: float | None, job_s: float | None, expected: float
) -> None:
    assert limits.agent_timeout_s(task_s, job_s) == expected


def test_the_worst_case_is_both_phases_at_their_limits() -> None:
    asked = {"cpus": None, "memory_mb": None, "storage_mb": None}
    needs = {
        "agent_timeout_s": [30], "verifier_timeout_s": [20.5], "environment": asked,
        "verifier_environment": {**asked, "cpus": 2},
    }  # fmt: skip
    assert limits.worst_case_pusd(needs, RUNNER, None) == 35 * 12 * 10**9 + 26 * 22 * 10**9
    assert limits.worst_case_pusd(needs, RUNNER, 10) == 15 * 12 * 10**9 + 26 * 22 * 10**9


def test_a_task_that_is_silent_about_its_network_shows_what_it_gets() -> None:
    network = {"phase": "agent", "mode": None, "baseline": None, "changes": False}
    assert refusals.substitutions({"networks": [network]}) == [
        {"kind": "network", "declared": "public", "used": "none"}
    ]
    assert refusals.substitutions({"networks": [{**network, "mode": "no-network"}]}) == []


# --- clean-up


async def test_clean_up_is_awaited_to_its_end_however_often_its_caller_is_cancelled() -> None:
    going, done = asyncio.Event(), asyncio.Event()

    async def clean() -> str:
        await going.wait()
        done.set()
        return "clean"

    async def caller() -> None:
        await to_the_end(clean())

    task = asyncio.create_task(caller())
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    assert not task.done()
    going.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_clean_up_gives_back_what_it_returns_and_raises() -> None:
    async def answers() -> int:
        return 5

    async def breaks() -> None:
        raise KeyError

    assert await to_the_end(answers()) == 5
    with pytest.raises(KeyError):
        await to_the_end(breaks())


async def test_a_cancellation_in_the_turn_in_which_the_clean_up_ends_is_not_lost() -> None:
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[None] = loop.create_future()

    async def clean() -> None:
        await gate

    task = asyncio.create_task(to_the_end(clean()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_clean_up_that_is_cancelled_itself_says_so() -> None:
    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(to_the_end(cancels()), 2)


# --- logs


async def test_a_log_is_stored_and_its_file_is_gone(tmp_path: Path) -> None:
    blobs, path = local_blobs(tmp_path / "blobs"), tmp_path / "log"
    sink = Sink(blobs, Redactor())
    path.write_bytes(b"said\n")
    log = await evidence.take_log(sink, "agent/x.txt", path)
    assert log is not None
    assert (log.name, log.size, await blobs.get(log.sha256 or "")) == ("agent/x.txt", 5, b"said\n")
    assert not path.exists()
    assert await evidence.take_log(sink, "agent/x.txt", path) is None


async def test_a_log_that_cannot_be_stored_is_gone_too(tmp_path: Path) -> None:
    class Full:
        def put_fd(self, descriptor: int, size: int) -> str:
            raise OSError(28, "No space left on device")

    full: Any = Full()
    path = tmp_path / "log"
    path.write_bytes(b"said\n")
    with pytest.raises(OSError, match="No space"):
        await evidence.take_log(Sink(full, Redactor()), "agent/x.txt", path)
    assert not path.exists()


async def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    secret, path = tmp_path / "secret", tmp_path / "log"
    secret.write_text("mine")
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        await evidence.take_log(Sink(local_blobs(tmp_path / "blobs"), Redactor()), "agent/x.txt", path)
    assert secret.read_text() == "mine"


async def test_a_new_try_removes_the_logs_of_lost_ones(world: World) -> None:
    job = await world.submit(dataset=ONE)
    await world.expand(job["job_id"])
    trial_id = await world.value("SELECT id FROM trial")
    for name in (f"{trial_id}-1-agent", f"{trial_id}-1-verifier", "trial_other-1-agent"):
        (world.tools.logs / name).write_text("left by a crash")
    await world.engine.drain(world.pump.run_once)
    assert world.log_files() == ["trial_other-1-agent"]


async def test_the_log_of_a_phase_that_came_to_nothing_is_kept(world: World) -> None:
    world.provider.faults["seal:agent"] = [RuntimeError("a bug")] * 2
    trial = await world.one(dataset=ONE)
    assert trial["reason"] == "INTERNAL_ERROR"
    (log,) = trial["artifacts"]["items"]
    assert (log["name"], log["kind"]) == ("agent/oracle.txt", "log")
    assert await world.blobs.get(log["sha256"]) == b"log of agent 2\n"


# --- the task cache


async def test_a_task_is_unpacked_once_and_its_images_are_built_once(world: World) -> None:
    await world.run(attempts=6)
    # Both tasks have the same files, so they are one content: unpacked once, one environment, one verifier.
    assert len([path for path in (world.root / "tasks").iterdir() if path.is_dir()]) == 1
    assert len(world.provider.built) == 2


async def test_a_build_that_fails_is_built_again_by_the_next_that_needs_it(world: World) -> None:
    world.provider.faults["build"] = [RuntimeError("a bug")]
    job = await world.run(dataset=ONE, attempts=3)
    assert (job["status"], job["n_scored"]) == ("completed", 3)


async def test_a_cancelled_unpacking_is_over_before_the_next_one_begins(world: World) -> None:
    files = await world.value("SELECT files_sha256 FROM dataset_task LIMIT 1")
    for _ in range(10):
        cache = type(world.tools.tasks)(world.root / "again", world.blobs, world.tools.provider)
        first = asyncio.create_task(cache.load(files, "team/one"))
        for _ in range(3):
            await asyncio.sleep(0)
        second = asyncio.create_task(cache.load(files, "team/one"))
        await asyncio.sleep(0)
        first.cancel()
        local = await second
        await asyncio.gather(first, return_exceptions=True)
        assert (local.folder / "task.toml").is_file()
        assert (local.folder / "tests" / "test.sh").read_text() == "#!/bin/sh\n"
