"""The cap of a Job: never passed, whoever meets it and however many at once; what was scored stays scored."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from tests.jobs.checks import all_has_ended
from tests.jobs.standin import Behaviour, Call, judges, solves
from tests.jobs.world import METERED, ONE, SHARED_ONE, World

from tollbar.budget.schemas import Lease, Level, Purpose, Reached
from tollbar.jobs import agent_phase, phase, store
from tollbar.jobs.leases import CapReached
from tollbar.jobs.tools import WorkingSet
from tollbar.sandboxes.interface import ExecResult


def takes(world: World, seconds: float, does: Behaviour) -> Behaviour:
    """Returns a behaviour that lasts so long on the world's clock."""

    def behave(call: Call) -> Any:
        world.clock.advance(seconds)
        return does(call)

    return behave


def cost(trials: list[dict[str, Any]]) -> Decimal:
    return sum((Decimal(trial["cost_usd"]) for trial in trials), Decimal(0))


@pytest.mark.parametrize("source", [ONE, SHARED_ONE])
async def test_a_job_that_meets_its_cap_keeps_what_was_scored(patient: World, source: dict[str, str]) -> None:
    world = patient
    for _ in range(3):
        await world.tools.slots.acquire()  # one Trial after the other
    world.provider.agent = [takes(world, 1, solves)]
    world.provider.verifier = [takes(world, 1, judges)]
    job = await world.run(dataset=source, attempts=7, runner=METERED, max_cost_usd="0.5")
    assert (job["status"], job["phase"], job["final"]) == ("cancelled", "done", True)
    assert (job["error"]["code"], job["error"]["scope"]) == ("BUDGET_EXCEEDED", "job")
    assert "0.5 USD" in job["error"]["message"]
    # A Trial costs 0.024 and needs 0.42 to begin, so four of them fit.
    assert (job["n_scored"], job["trial_counts"]["cancelled"], job["score"]) == (4, 3, 1.0)
    trials = (await world.result(job["job_id"]))["trials"]["items"]
    assert {trial["reason"] for trial in trials if trial["status"] == "cancelled"} == {"BUDGET_EXCEEDED"}
    assert (job["budget"]["state"], job["budget"]["spent_usd"]) == ("exceeded", "0.096")
    assert cost(trials) == Decimal("0.096")
    parts = [Decimal(job["cost"][name]) for name in ("model_usd", "sandbox_usd", "verifier_usd", "total_usd")]
    assert parts == [Decimal(0), Decimal("0.048"), Decimal("0.048"), Decimal("0.096")]
    await all_has_ended(world)


async def test_a_cap_that_several_trials_meet_side_by_side_holds(patient: World) -> None:
    world = patient
    world.provider.agent = [takes(world, 3, solves)]
    world.provider.verifier = [takes(world, 3, judges)]
    job = await world.run(dataset=ONE, attempts=8, runner=METERED, max_cost_usd="0.6")
    trials = (await world.result(job["job_id"]))["trials"]["items"]
    assert (job["status"], job["error"]["code"]) == ("cancelled", "BUDGET_EXCEEDED")
    assert {trial["reason"] for trial in trials if trial["status"] == "cancelled"} == {"BUDGET_EXCEEDED"}
    assert cost(trials) == Decimal(job["budget"]["spent_usd"]) <= Decimal("0.6")
    assert job["n_scored"] == sum(trial["reward"] is not None for trial in trials)
    await all_has_ended(world)


async def test_what_stopped_a_job_is_named_and_kept(patient: World) -> None:
    world = patient
    job = await world.run(dataset=ONE, runner=METERED, max_cost_usd="0.01")
    (trial,) = await world.trial_results(job["job_id"])
    assert job["budget"] == {
        "max_cost_usd": "0.01",
        "spent_usd": "0",
        "reserved_usd": "0",
        "remaining_usd": "0.01",
        "state": "exceeded",
        "stopped_by": {
            "call": f"lease_{trial['trial_id']}_1_agent_1_1",
            "trial_id": trial["trial_id"],
            "worst_usd": "0.42",
        },
        "warning": None,
        "max_cost_per_trial_usd": None,
    }
    refused = await world.rows("SELECT id, state, outcome, cost_pusd, worst_pusd FROM ledger_call")
    call = job["budget"]["stopped_by"]["call"]
    assert [tuple(row) for row in refused] == [(call, "refused", "exceeded", None, 42 * 10**10)]
    assert (trial["status"], trial["reason"], trial["cost"]["total_usd"]) == ("cancelled", "BUDGET_EXCEEDED", "0")
    assert world.provider.made == []
    await all_has_ended(world)


async def test_the_cap_met_by_the_verifier_leaves_the_seal_and_no_reward(patient: World) -> None:
    world = patient
    world.provider.agent = [takes(world, 20, solves)]
    # 0.42 for the agent's slice, of which 0.24 is used; the verifier's needs 0.3.
    job = await world.run(dataset=ONE, runner=METERED, max_cost_usd="0.45")
    (trial,) = await world.trial_results(job["job_id"])
    assert (trial["status"], trial["reward"], trial["reason"]) == ("cancelled", None, "BUDGET_EXCEEDED")
    assert trial["sealed_sha256"] is not None
    assert (job["budget"]["spent_usd"], job["cost"]["sandbox_usd"], job["cost"]["verifier_usd"]) == (
        "0.24",
        "0.24",
        "0",
    )
    await all_has_ended(world)


async def test_the_verifiers_time_is_paid_in_its_own_column(patient: World) -> None:
    world = patient
    world.provider.agent = [takes(world, 3, solves)]
    world.provider.verifier = [takes(world, 4.5, judges)]
    job = await world.run(dataset=ONE, runner=METERED, max_cost_usd=1)
    (trial,) = await world.trial_results(job["job_id"])
    parts = ("total_usd", "model_usd", "sandbox_usd", "verifier_usd")
    assert [trial["cost"][part] for part in parts] == ["0.096", "0", "0.036", "0.06"]
    assert {name: job["cost"][name] for name in trial["cost"]} == trial["cost"]
    assert job["budget"]["remaining_usd"] == "0.904"


@pytest.mark.requirement("G-ENG-17.clock")
@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_clock_that_is_set_by_an_hour_ends_no_agent_and_costs_nothing(patient: World, step_s: int) -> None:
    world = patient

    def works(call: Call) -> ExecResult:
        world.clock.step_wall(step_s)
        return solves(call)

    world.provider.agent = [takes(world, 3, works)]
    trial = await world.one(dataset=ONE, runner=METERED, max_cost_usd=1)
    assert (trial["reward"], trial["agent_outcome"], trial["try_no"]) == (1.0, "completed", 1)
    assert (trial["timings_s"]["agent"], trial["cost"]["sandbox_usd"]) == (3.0, "0.036")


async def test_all_tries_of_a_trial_cost(patient: World) -> None:
    world = patient

    def lost(call: Call) -> ExecResult:
        world.clock.advance(5)
        raise RuntimeError

    world.provider.agent = [lost, takes(world, 2, solves)]
    trial = await world.one(dataset=ONE, runner=METERED, max_cost_usd=1)
    assert (trial["try_no"], trial["cost"]["sandbox_usd"]) == (2, "0.084")


async def test_a_free_runner_meets_no_cap(patient: World) -> None:
    world = patient
    world.provider.agent = [takes(world, 3000, solves)]
    job = await world.run(dataset=ONE, attempts=5, max_cost_usd="0.000001")
    assert (job["status"], job["n_scored"], job["budget"]["spent_usd"]) == ("completed", 5, "0")


async def test_a_job_without_a_cap_only_counts(patient: World) -> None:
    world = patient
    world.provider.agent = [takes(world, 30, solves)]
    job = await world.run(dataset=ONE, attempts=10, runner=METERED)
    assert (job["status"], job["budget"]["max_cost_usd"], job["budget"]["remaining_usd"]) == ("completed", None, None)
    assert Decimal(job["budget"]["spent_usd"]) >= Decimal("3.6")
    await all_has_ended(world)


# --- many at once


async def working(world: World, attempts: int, **members: Any) -> tuple[str, list[WorkingSet]]:
    """Returns a Job whose Trials all run."""
    job = await world.submit(dataset=ONE, attempts=attempts, max_cost_usd=1, **members)
    await world.engine.run(f"job:{job['job_id']}")
    await world.rows("UPDATE trial SET state = 'running' WHERE job_id = :j", j=job["job_id"])
    sets = []
    async with world.database.session() as session:
        for row in await world.rows("SELECT id FROM trial WHERE job_id = :j ORDER BY seq", j=job["job_id"]):
            found = await store.working_set(session, row.id)
            assert found is not None
            sets.append(WorkingSet(*found, 1))
    return job["job_id"], sets


def reached(found: WorkingSet) -> CapReached:
    lease = Lease(
        f"lease_{found.trial.id}", found.chain, date(2026, 11, 30), f"trial:{found.trial.id}:1", "envhub/metered",
        Purpose.AGENT, "w", 10**10, 60,
    )  # fmt: skip
    return CapReached(Reached(found.job.budget_id, Level.JOB, lease.worst_pusd), lease)


async def test_many_trials_that_meet_the_cap_at_once_stop_the_job_once(world: World) -> None:
    job_id, sets = await working(world, attempts=12)
    await asyncio.gather(*(phase.cap_reached(world.tools, found, reached(found)) for found in sets))
    job = await world.job(job_id)
    assert (job["status"], job["error"]["code"]) == ("cancelled", "BUDGET_EXCEEDED")
    assert job["trial_counts"]["cancelled"] == 12
    assert await world.value("SELECT count(*) FROM ledger_call WHERE state = 'refused'") == 1
    assert len([row for row in await world.engine.waiting() if row.flow == "stop"]) == 1
    await world.engine.run()
    await all_has_ended(world)


async def test_a_trial_that_meets_the_cap_of_a_job_that_a_person_stops_is_cancelled_by_the_person(world: World) -> None:
    job_id, (found,) = await working(world, attempts=1)
    await world.stop(job_id)
    await phase.cap_reached(world.tools, found, reached(found))
    job = await world.job(job_id)
    assert (job["status"], job["error"], job["budget"]["state"]) == ("cancelled", None, "closed")
    assert await world.value("SELECT reason FROM trial") == "CANCELLED"


async def test_a_zombie_that_meets_a_cap_stops_no_job_that_has_ended(world: World) -> None:
    job_id, (found,) = await working(world, attempts=1)
    await world.rows("UPDATE trial SET state = 'succeeded', reward = 1, finished_at = now()")
    await world.rows("UPDATE job_task SET n_succeeded = 1")
    await world.recovery.reconcile()
    before = await world.job(job_id)
    await phase.cap_reached(world.tools, found, reached(found))
    assert await world.job(job_id) == before


async def test_a_trial_that_is_stopped_before_its_agent_begins_runs_none(world: World) -> None:
    job = await world.submit(dataset=ONE)
    await world.expand(job["job_id"])
    trial_id = await world.value("SELECT id FROM trial")

    async def stops(where: str) -> None:
        if where == "create:agent":
            await world.stop(job["job_id"])

    world.provider.wire = stops
    assert await agent_phase.run(world.tools, trial_id, 1) == "gone"
    assert world.provider.calls == []
    assert world.provider.living() == []
