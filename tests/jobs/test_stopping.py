"""A stop against everything that can happen at the same moment: one of them wins, and the numbers fit."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.jobs.checks import all_has_ended, money_is_in_order, sums_equal_a_recount
from tests.jobs.world import METERED, ONE, World
from tests.support import eventually

from tollbar.budget import service as budget
from tollbar.budget.schemas import Chain, Lease, Purpose
from tollbar.jobs import endings, flows
from tollbar.jobs.endings import Ending
from tollbar.jobs.errors import JobNotFound
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import Reason, TrialState
from tollbar.kit.ids import new_id


async def verifying(world: World, attempts: int = 1, **members: Any) -> tuple[str, list[str]]:
    """Returns a Job all of whose Trials are being verified."""
    job = await world.submit(dataset=ONE, attempts=attempts, **members)
    await world.engine.run(f"job:{job['job_id']}")
    rows = await world.rows("UPDATE trial SET state = 'verifying' WHERE job_id = :j RETURNING id", j=job["job_id"])
    return job["job_id"], [row.id for row in rows]


async def copies(world: World, count: int) -> list[tuple[str, str]]:
    """Returns so many Jobs of one Trial, all being verified; they are copied, because submitting each takes long."""
    first, _ = await verifying(world)
    pairs = [(new_id("job"), new_id("trial")) for _ in range(count)]
    values = {"first": first, "jobs": [job for job, _ in pairs], "trials": [trial for _, trial in pairs]}
    new = "unnest(CAST(:jobs AS text[]), CAST(:trials AS text[])) AS new(job, trial)"
    for table, owner, changes in (
        ("budget", "id = (SELECT budget_id FROM job WHERE id = :first)", "'id', new.job, 'subject', new.job"),
        ("job", "id = :first", "'id', new.job, 'budget_id', new.job"),
        ("job_task", "job_id = :first", "'job_id', new.job"),
        ("trial", "job_id = :first", "'id', new.trial, 'job_id', new.job"),
    ):
        await world.rows(
            f"INSERT INTO {table} SELECT made.* FROM {table} AS old, {new},"
            f" jsonb_populate_record(old, jsonb_build_object({changes})) AS made WHERE old.{owner}",
            **{name: value for name, value in values.items() if f":{name}" in new + owner},
        )
    await world.stop(first)
    await flows.leave(world.tools, await world.value("SELECT id FROM trial WHERE job_id = :j", j=first), 1)
    return pairs


async def scores(world: World, job_id: str, trial_id: str, reward: float = 1.0) -> bool:
    """Ends a Trial with a reward, as grading does, and then its flow."""
    values: dict[str, Any] = {"passed": reward >= 1}
    ending = Ending(TrialState.SUCCEEDED, values, reward, reward >= 1)
    async with world.database.transaction() as session:
        done = await endings.end_trial(session, job_id, trial_id, 1, 0, ending, world.clock.now())
    await flows.leave(world.tools, trial_id, 1)
    return done


async def fails(world: World, job_id: str, trial_id: str) -> bool:
    ending = endings.unscored(Failure(Reason.REWARD_MISSING, "absent"))
    async with world.database.transaction() as session:
        done = await endings.end_trial(session, job_id, trial_id, 1, 0, ending, world.clock.now())
    await flows.leave(world.tools, trial_id, 1)
    return done


async def shuffled(*work: Awaitable[Any]) -> None:
    """Runs these at once, begun in any order and a few turns of the loop apart."""

    async def late(one: Awaitable[Any]) -> None:
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)
        await one

    order = list(work)
    random.shuffle(order)
    await asyncio.gather(*map(late, order))


@pytest.mark.requirement("G-HTTP-16.7")
@pytest.mark.parametrize("last", [scores, fails])
async def test_a_stop_against_the_last_trial_fifty_times(world: World, last: Any) -> None:
    found: Counter[str] = Counter()
    for job_id, trial_id in await copies(world, 50):
        await shuffled(world.stop(job_id), last(world, job_id, trial_id))
        job = await world.job(job_id)
        counts = job["trial_counts"]
        won = "succeeded" if last is scores else "failed"
        ended = "completed" if last is scores else "failed"
        assert (job["status"], counts[won], counts["cancelled"]) in {(ended, 1, 0), ("cancelled", 0, 1)}
        assert counts["total"] == counts[won] + counts["cancelled"] == 1
        assert job["budget"]["state"] == "closed"
        found[job["status"]] += 1
    assert len(found) == 2, f"both must have won now and then: {found}"
    await sums_equal_a_recount(world)
    await all_has_ended(world)


async def test_a_stop_against_many_ends_at_once(world: World) -> None:
    for _ in range(5):
        job_id, trials = await verifying(world, attempts=8)
        await shuffled(world.stop(job_id), *(scores(world, job_id, trial_id) for trial_id in trials))
        job = await world.job(job_id)
        counts = job["trial_counts"]
        assert counts["succeeded"] + counts["cancelled"] == 8
        assert job["status"] == ("completed" if counts["cancelled"] == 0 else "cancelled")
        assert job["n_scored"] == counts["succeeded"]
    await all_has_ended(world)


async def test_a_stop_against_the_pump_leaves_nothing_admitted(world: World) -> None:
    for _ in range(10):
        job = await world.submit(attempts=10)
        await world.engine.run(f"job:{job['job_id']}")
        await shuffled(world.stop(job["job_id"]), world.pump.run_once(), world.pump.run_once())
        assert (await world.job(job["job_id"]))["status"] == "cancelled"
    await all_has_ended(world)


async def test_a_stop_against_a_claim_leaves_the_trial_to_one_of_them(world: World) -> None:
    for _ in range(15):
        job = await world.submit(dataset=ONE)
        await world.expand(job["job_id"])
        trial_id = await world.value("SELECT id FROM trial WHERE job_id = :j", j=job["job_id"])
        await shuffled(world.stop(job["job_id"]), world.engine.run(f"trial:{trial_id}:1"))
        await world.engine.drain(world.pump.run_once)
        ended = await world.job(job["job_id"])
        assert ended["status"] in {"cancelled", "completed"}
    await all_has_ended(world)


async def test_a_stop_against_the_expansion_leaves_every_slot_with_its_end(world: World) -> None:
    for _ in range(10):
        job = await world.submit(attempts=5)
        await shuffled(world.stop(job["job_id"]), world.engine.run(f"job:{job['job_id']}"))
        ended = await world.job(job["job_id"])
        assert (ended["status"], ended["trial_counts"]["cancelled"]) == ("cancelled", 10)
    await all_has_ended(world)


async def test_a_job_that_is_stopped_before_its_trials_were_made_still_has_them_all(world: World) -> None:
    job = await world.submit(attempts=3)
    stopped = await world.stop(job["job_id"])
    assert (stopped["status"], stopped["phase"], stopped["error"]) == ("cancelled", "done", None)
    assert stopped["trial_counts"]["cancelled"] == stopped["trial_counts"]["total"] == 6
    assert (stopped["trial_counts"]["pending"], stopped["started_at"]) == (0, None)
    items = (await world.result(job["job_id"]))["trials"]["items"]
    assert {(item["status"], item["reason"]) for item in items} == {("cancelled", "CANCELLED")}
    await world.engine.drain(world.pump.run_once)
    assert await world.job(job["job_id"]) == stopped
    await all_has_ended(world)


async def test_stopping_twice_or_what_has_ended_changes_nothing(world: World) -> None:
    job_id, _ = await verifying(world, attempts=2)
    first = await world.stop(job_id)
    assert (first["status"], first["trial_counts"]["stopping"]) == ("stopping", 2)
    assert await world.stop(job_id) == first
    assert len([row for row in await world.engine.waiting() if row.flow == "stop"]) == 1
    done = await world.run(dataset=ONE)
    assert await world.stop(done["job_id"]) == done


async def test_ten_stops_at_once_are_one(world: World) -> None:
    job_id, _ = await verifying(world, attempts=2)
    answers = await asyncio.gather(*(world.stop(job_id) for _ in range(10)))
    assert {answer["status"] for answer in answers} == {"stopping"}
    assert len([row for row in await world.engine.waiting() if row.flow == "stop"]) == 1


@pytest.mark.parametrize("job_id", ["job_x", "job_" + "0" * 26, "x\x00", ""])
async def test_an_unknown_job_cannot_be_stopped(world: World, job_id: str) -> None:
    with pytest.raises(JobNotFound):
        await world.stop(job_id)


async def test_ends_and_losses_of_one_job_at_once_do_not_wait_for_each_other_for_ever(world: World) -> None:
    """The last end closes the budget while a take-over writes off on it: both lock the Job first."""
    for _ in range(8):
        job_id, trials = await verifying(world, attempts=6, runner=METERED, max_cost_usd=100)
        chain = Chain("prj_1", (await world.value("SELECT budget_id FROM job WHERE id = :j", j=job_id),))
        day = world.clock.now().date()
        async with world.database.transaction() as session:
            for trial_id in trials:
                lease = Lease(
                    f"lease_{trial_id}", chain, day, f"trial:{trial_id}:1", "r", Purpose.VERIFIER, "w", 10**9, 60
                )
                await budget.reserve_lease(session, lease)
        lost, ended = trials[:3], trials[3:]

        async def settles(trial_id: str, job_id: str = job_id) -> None:
            async with world.database.transaction() as session:
                await budget.settle_lease(session, f"lease_{trial_id}", 10**9)
            await scores(world, job_id, trial_id)

        await shuffled(
            *(settles(trial_id) for trial_id in ended),
            world.recovery.take_over([f"trial:{trial_id}:1" for trial_id in reversed(lost)]),
            world.recovery.take_over([f"trial:{trial_id}:1" for trial_id in lost]),
        )
        counts = (await world.job(job_id))["trial_counts"]
        assert (counts["succeeded"], counts["pending"]) == (3, 3)
        assert (await world.job(job_id))["budget"]["spent_usd"] == "0.183"
        await world.stop(job_id)
    await money_is_in_order(world)


async def test_a_trial_that_pauses_before_its_next_try_is_stopped_at_once(stepped: World) -> None:
    world = stepped
    world.provider.faults["create:agent"] = [RuntimeError("a bug")]
    job = await world.submit(dataset=ONE, runner=METERED, max_cost_usd=5)
    await world.expand(job["job_id"])
    task = world.engine.start(f"trial:{await world.value('SELECT id FROM trial')}:1")

    async def pauses() -> bool:
        return any(1.6 <= moment <= 2.4 for moment in world.clock.due())

    await eventually(pauses, within_s=4)
    assert (await world.job(job["job_id"]))["trial_counts"]["starting"] == 1
    await world.stop(job["job_id"])
    await flows.end_running(world.tools, job["job_id"])
    await asyncio.wait_for(task, 4)
    assert (await world.job(job["job_id"]))["status"] == "cancelled"
    await world.engine.run()
    await all_has_ended(world)


async def test_a_pause_holds_no_slot(stepped: World) -> None:
    world = stepped
    world.provider.faults["create:agent"] = [RuntimeError("a bug")] * 4
    job = await world.submit(dataset=ONE, attempts=5)
    await world.expand(job["job_id"])
    tasks = [world.engine.start(row.id) for row in await world.engine.waiting()]

    async def one_is_scored() -> bool:
        return (await world.job(job["job_id"]))["n_scored"] == 1

    # Four fail and pause, all slots had been theirs; the fifth runs to its end meanwhile.
    await eventually(one_is_scored, within_s=4)
    assert len(world.clock.due()) == 4
    world.clock.advance_to(3.0)
    await asyncio.gather(*tasks)
    await world.engine.drain(world.pump.run_once)
    assert (await world.job(job["job_id"]))["n_scored"] == 5
    await all_has_ended(world)
