"""Lost workers, orphans, and an engine that forgot everything: every Trial moves on, every Job ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.checks import all_has_ended, outcome
from tests.jobs.standin import Call, ended
from tests.jobs.world import METERED, ONE, RATE_PUSD, SHARED_ONE, World
from tests.support import eventually

from tollbar.budget import service as budget
from tollbar.jobs import agent_phase
from tollbar.jobs.recovery import Recovery
from tollbar.sandboxes.interface import ExecResult

AGENT = "/solution/solve.sh"


async def admitted(world: World, **members: Any) -> tuple[str, str]:
    """Submits a Job of one Trial up to its admission; returns their ids."""
    job = await world.submit(**{"dataset": ONE, **members})
    await world.expand(job["job_id"])
    return job["job_id"], await world.value("SELECT id FROM trial WHERE job_id = :job", job=job["job_id"])


async def dies(world: World, trial_id: str, try_no: int = 1) -> None:
    """The worker of this try is declared dead: what the reaper does."""
    work_id = f"trial:{trial_id}:{try_no}"
    async with world.database.transaction() as session:
        await budget.write_off(session, workers=["worker-1"])
    await world.engine.cancel([work_id])
    await world.recovery.take_over([work_id], lost=True)


async def facts(world: World, trial_id: str) -> tuple[Any, ...]:
    statement = "SELECT state, try_no, losses, reason, reason_detail FROM trial WHERE id = :id"
    return tuple((await world.rows(statement, id=trial_id))[0])


def stuck(started: asyncio.Event) -> Any:
    """Returns an agent that runs until it is cancelled."""

    async def behave(call: Call) -> ExecResult:
        started.set()
        await asyncio.Event().wait()
        return ended()

    return behave


@pytest.mark.requirement("G-GW-GL33", "G-SBX-14.accounting_lost", "G-EVAL-18.20")
async def test_a_lost_try_goes_to_the_next_one_and_its_money_is_written_off(stepped: World) -> None:
    world, started = stepped, asyncio.Event()
    world.provider.agent = [stuck(started)]
    job_id, trial_id = await admitted(world, runner=METERED, max_cost_usd=5)
    task = world.engine.start(f"trial:{trial_id}:1")
    await started.wait()
    await dies(world, trial_id)
    await task
    assert (await facts(world, trial_id))[:3] == ("pending", 2, 1)
    job = await world.job(job_id)
    # One slice of 35 s: 30 s for the agent and 5 s beside it. A loss is never counted as zero.
    assert (job["budget"]["spent_usd"], job["budget"]["reserved_usd"]) == ("0.42", "0")
    assert await world.value("SELECT cost_pusd FROM ledger_call") == 35 * RATE_PUSD
    world.provider.agent = [lambda call: ended()]
    await world.engine.drain(world.pump.run_once)
    await all_has_ended(world)
    (trial,) = await world.trial_results(job_id)
    assert (trial["try_no"], trial["status"]) == (2, "succeeded")
    assert trial["cost"]["total_usd"] == (await world.job(job_id))["budget"]["spent_usd"]


@pytest.mark.requirement("G-EVAL-18.19")
async def test_a_sealed_trial_of_separate_mode_is_never_run_again(world: World) -> None:
    job_id, trial_id = await admitted(world)
    assert await agent_phase.run(world.tools, trial_id, 1) == "sealed"
    await dies(world, trial_id)
    await world.engine.drain(world.pump.run_once)
    (trial,) = await world.trial_results(job_id)
    assert (trial["try_no"], outcome(trial)) == (2, ("succeeded", 1.0, None, None))
    assert world.provider.runs_of(AGENT) == 1
    assert trial["timings_s"].keys() == {"prepare", "agent", "seal", "verifier"}
    await all_has_ended(world)


async def test_a_sealed_trial_of_shared_mode_runs_again_and_keeps_nothing_of_the_lost_try(world: World) -> None:
    def first(call: Call) -> ExecResult:
        call.write("/logs/artifacts/first.txt", "of the lost try")
        return ended(3)

    world.provider.agent = [first, lambda call: ended()]
    job_id, trial_id = await admitted(world, dataset=SHARED_ONE)
    assert await agent_phase.run(world.tools, trial_id, 1) == "sealed"
    await world.tools.waiting.pop((trial_id, 1)).sandbox.destroy()
    await dies(world, trial_id)
    await world.engine.drain(world.pump.run_once)
    (trial,) = await world.trial_results(job_id)
    assert (trial["try_no"], trial["agent_outcome"]) == (2, "completed")
    assert world.provider.runs_of(AGENT) == 2
    assert "first.txt" not in str(trial["artifacts"])
    await all_has_ended(world)


async def test_a_shared_trial_that_fails_after_a_lost_try_shows_no_seal_of_it(world: World) -> None:
    job_id, trial_id = await admitted(world, dataset=SHARED_ONE)
    assert await agent_phase.run(world.tools, trial_id, 1) == "sealed"
    await world.tools.waiting.pop((trial_id, 1)).sandbox.destroy()
    await dies(world, trial_id)
    world.provider.faults["create:agent"] = [RuntimeError("a bug")]
    await world.engine.drain(world.pump.run_once)
    (trial,) = await world.trial_results(job_id)
    assert outcome(trial) == ("failed", None, "INTERNAL_ERROR", None)
    assert (trial["sealed_sha256"], trial["agent_outcome"], trial["timings_s"]) == (None, None, {})
    assert trial["artifacts"]["items"] == []
    await all_has_ended(world)


async def test_the_third_loss_ends_a_trial(world: World) -> None:
    job_id, trial_id = await admitted(world)
    for try_no in (1, 2, 3):
        await world.pump.run_once()
        await world.rows("UPDATE trial SET state = 'running' WHERE state = 'admitted'")
        await dies(world, trial_id, try_no)
    assert await facts(world, trial_id) == ("failed", 3, 2, "SANDBOX_LOST", "worker")
    job = await world.job(job_id)
    assert (job["status"], job["error"]["code"]) == ("failed", "NO_TRIAL_SCORED")
    await all_has_ended(world)


async def test_a_hand_back_counts_against_nobody(world: World) -> None:
    _, trial_id = await admitted(world)
    for try_no in range(1, 6):
        await world.pump.run_once()
        await world.rows("UPDATE trial SET state = 'running' WHERE state = 'admitted'")
        await world.recovery.take_over([f"trial:{trial_id}:{try_no}"], lost=False)
    assert (await facts(world, trial_id))[:3] == ("pending", 6, 0)


async def test_a_trial_that_only_waited_for_a_slot_of_the_dead_worker_has_lost_nothing(world: World) -> None:
    _, trial_id = await admitted(world)
    for try_no in range(1, 6):
        await dies(world, trial_id, try_no)
        await world.pump.run_once()
    assert (await facts(world, trial_id))[:3] == ("admitted", 6, 0)


async def test_taking_over_twice_or_an_old_try_changes_nothing(world: World) -> None:
    _, trial_id = await admitted(world)
    await world.rows("UPDATE trial SET state = 'running'")
    for _ in range(3):
        await dies(world, trial_id)
    assert (await facts(world, trial_id))[:3] == ("pending", 2, 1)
    await world.recovery.take_over(["job:job_x", "trial:nothing:1", "stop:job_x", "trial:x:y"])
    await world.recovery.take_over([])


async def test_a_stopping_trial_of_a_dead_worker_is_cancelled(world: World) -> None:
    job_id, trial_id = await admitted(world)
    await world.rows("UPDATE trial SET state = 'running'")
    assert (await world.stop(job_id))["status"] == "stopping"
    await dies(world, trial_id)
    assert (await facts(world, trial_id))[:4] == ("cancelled", 1, 0, "CANCELLED")
    assert (await world.job(job_id))["status"] == "cancelled"


async def test_a_stop_beside_a_take_over_leaves_no_trial_behind(world: World) -> None:
    for _ in range(10):
        job_id, trial_id = await admitted(world)
        await world.rows("UPDATE trial SET state = 'running' WHERE id = :id", id=trial_id)
        await asyncio.gather(world.stop(job_id), dies(world, trial_id))
        job = await world.job(job_id)
        assert (job["status"], job["trial_counts"]["cancelled"]) == ("cancelled", 1)


# --- reconciliation


async def test_an_orphan_is_handed_on_by_the_second_pass(world: World) -> None:
    _, trial_id = await admitted(world)
    await world.rows("UPDATE trial SET state = 'running'")
    await world.engine.forget()
    await world.recovery.reconcile()
    assert (await facts(world, trial_id))[:2] == ("running", 1)
    await world.recovery.reconcile()
    assert (await facts(world, trial_id))[:3] == ("pending", 2, 1)


async def test_a_trial_whose_flow_just_ended_is_left_alone(world: World) -> None:
    _, trial_id = await admitted(world)
    await world.rows("UPDATE work SET state = 'SUCCESS'")
    await world.recovery.reconcile()
    await world.rows("UPDATE trial SET state = 'failed', reason = 'INTERNAL_ERROR', finished_at = now()")
    await world.recovery.reconcile()
    assert (await facts(world, trial_id))[:3] == ("failed", 1, 0)


async def test_what_the_engine_drives_is_never_touched(world: World) -> None:
    _, trial_id = await admitted(world)
    for _ in range(4):
        await world.recovery.reconcile()
    assert (await facts(world, trial_id))[:3] == ("admitted", 1, 0)


async def test_an_orphan_that_never_starts_ends_after_three_tries(world: World) -> None:
    _, trial_id = await admitted(world)
    for _ in range(3):
        await world.engine.forget()
        await world.recovery.reconcile()
        await world.recovery.reconcile()
        await world.pump.run_once()
    assert (await facts(world, trial_id))[:4] == ("failed", 3, 2, "SANDBOX_LOST")
    await all_has_ended(world)


@pytest.mark.parametrize("state", ["ENQUEUED", "ERROR", "CANCELLED", "SUCCESS", None])
async def test_a_job_that_was_never_expanded_is_expanded_when_nobody_drives_it(world: World, state: str | None) -> None:
    job = await world.submit()
    if state is None:
        await world.engine.forget()
    else:
        await world.rows("UPDATE work SET state = :state", state=state)
    await world.recovery.reconcile()
    driven = state == "ENQUEUED"
    assert (await world.job(job["job_id"]))["status"] == ("pending" if driven else "running")
    assert await world.value("SELECT count(*) FROM trial") == (0 if driven else 2)


@pytest.mark.requirement("G-ENG-17.emptied")
async def test_an_emptied_engine_still_lets_every_job_end(world: World) -> None:
    waiting = await world.submit(attempts=2)
    running, _ = await admitted(world)
    stopping, trial_id = await admitted(world)
    await world.rows("UPDATE trial SET state = 'running' WHERE id = :id", id=trial_id)
    await world.stop(stopping)
    await world.engine.forget()
    for _ in range(3):
        await world.recovery.reconcile()
        await world.engine.drain(world.pump.run_once)
    assert (await world.job(waiting["job_id"]))["status"] == (await world.job(running))["status"] == "completed"
    assert (await world.job(stopping))["status"] == "cancelled"
    await all_has_ended(world)


async def test_a_stop_flow_that_was_lost_is_made_up_for(world: World) -> None:
    started = asyncio.Event()
    world.provider.agent = [stuck(started)]
    job_id, trial_id = await admitted(world)
    task = world.engine.start(f"trial:{trial_id}:1")
    await started.wait()
    await world.stop(job_id)
    await world.rows("UPDATE work SET state = 'ERROR' WHERE flow = 'stop'")
    await world.recovery.reconcile()
    await asyncio.wait_for(task, 4)
    assert (await world.job(job_id))["status"] == "cancelled"
    await all_has_ended(world)


async def test_a_trial_that_waits_in_a_stopping_job_is_cancelled(world: World) -> None:
    job_id, _ = await admitted(world)
    await world.rows("UPDATE job SET state = 'stopping'")
    await world.recovery.reconcile()
    job = await world.job(job_id)
    assert (job["status"], job["trial_counts"]["cancelled"]) == ("cancelled", 1)


async def test_one_job_that_cannot_be_reconciled_stops_no_other(world: World) -> None:
    broken, fine = await world.submit(), await world.submit()
    await world.engine.forget()
    await world.rows(f"ALTER TABLE trial ADD CONSTRAINT planted CHECK (job_id <> '{broken['job_id']}')")
    await world.recovery.reconcile()
    assert (await world.job(broken["job_id"]))["status"] == "pending"
    assert (await world.job(fine["job_id"]))["status"] == "running"


async def test_two_reconcilers_at_once_hand_a_trial_on_once(world: World) -> None:
    _, trial_id = await admitted(world)
    await world.rows("UPDATE trial SET state = 'running'")
    await world.engine.forget()
    other = Recovery(world.database, world.engine, world.clock)
    for _ in range(2):
        await asyncio.gather(world.recovery.reconcile(), other.reconcile())
    assert (await facts(world, trial_id))[:3] == ("pending", 2, 1)


async def test_more_trials_than_one_part_are_all_looked_at(world: World) -> None:
    wide = replace(world, context=replace(world.context, max_running=2000))
    wide.capacity = world.capacity = 2000
    job = await wide.submit(attempts=100, dataset="team/set@1")
    job2 = [await wide.submit(attempts=100) for _ in range(3)]
    await world.engine.run(*(f"job:{one['job_id']}" for one in (job, *job2)))
    await world.rows("UPDATE trial SET state = 'running'")
    await world.engine.forget()
    for _ in range(2):
        await world.recovery.reconcile()
    assert await world.value("SELECT count(*) FROM trial WHERE state = 'pending' AND try_no = 2") == 800


async def test_a_zombies_meter_reserves_nothing_more(stepped: World) -> None:
    world, started = stepped, asyncio.Event()
    world.provider.agent = [stuck(started)]
    job_id, trial_id = await admitted(world, runner=METERED, max_cost_usd=5)
    task = world.engine.start(f"trial:{trial_id}:1")
    await started.wait()
    work_id = f"trial:{trial_id}:1"
    await world.rows("UPDATE work SET state = 'CANCELLED' WHERE id = :id", id=work_id)
    await world.recovery.take_over([work_id], lost=True)
    world.clock.advance_to(world.clock.due()[0])  # the renewal of the first slice
    await asyncio.wait_for(task, 4)

    async def gone() -> bool:
        return world.provider.living() == []

    await eventually(gone)
    assert await world.value("SELECT count(*) FROM ledger_call") == 1
    assert (await world.job(job_id))["budget"]["reserved_usd"] == "0"
    assert (await facts(world, trial_id))[:2] == ("pending", 2)
