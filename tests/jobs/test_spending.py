"""Caps around and inside a Job: the project's day, the project's default, a Trial's own share."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.jobs.checks import all_has_ended
from tests.jobs.standin import Behaviour, Call, judges, solves
from tests.jobs.world import METERED, ONE, World

from tollbar.budget import limits
from tollbar.budget.errors import InsufficientBalance
from tollbar.jobs import service
from tollbar.jobs.errors import JobRequestConflict
from tollbar.kit.errors import InvalidAmount


def takes(world: World, *seconds: float, does: Behaviour) -> list[Behaviour]:
    """Returns behaviours that last so long on the world's clock, one run after the other, then like the last."""

    def lasting(length: float) -> Behaviour:
        def behave(call: Call) -> Any:
            world.clock.advance(length)
            return does(call)

        return behave

    return [lasting(length) for length in seconds]


async def limit(world: World, **given: Any) -> None:
    async with world.database.transaction() as session:
        await limits.set_limits(session, world.actor, given, world.clock)


async def one_by_one(world: World) -> None:
    for _ in range(3):
        await world.tools.slots.acquire()


@pytest.mark.requirement("G-GW-GL31")
async def test_the_share_of_a_trial_ends_that_trial_and_no_other(patient: World) -> None:
    world = patient
    await one_by_one(world)
    # 0.012 a second: the agent's slice of 35 s needs 0.42 of 0.5, the verifier's of 25 s another 0.3.
    world.provider.agent = takes(world, 1, 20, 1, does=solves)
    world.provider.verifier = takes(world, 1, does=judges)
    job = await world.run(dataset=ONE, attempts=3, runner=METERED, max_cost_usd=5, max_cost_per_trial_usd="0.5")
    assert (job["status"], job["error"], job["n_scored"]) == ("completed", None, 2)
    trials = sorted(await world.trial_results(job["job_id"]), key=lambda trial: trial["status"])
    second, *others = trials
    assert [trial["status"] for trial in others] == ["succeeded", "succeeded"]
    assert (second["status"], second["reason"], second["reward"]) == ("cancelled", "BUDGET_EXCEEDED", None)
    assert "share of this Trial of 0.5 USD" in second["message"]
    assert second["sealed_sha256"] is not None
    assert (second["cost"]["total_usd"], job["budget"]["spent_usd"]) == ("0.24", "0.288")
    assert (job["budget"]["max_cost_per_trial_usd"], job["budget"]["state"]) == ("0.5", "closed")
    await all_has_ended(world)
    states = [row.state for row in await world.rows("SELECT state FROM budget WHERE level = 2 ORDER BY state")]
    assert states == ["closed", "closed", "exceeded"]


async def test_the_tries_of_a_trial_have_one_share_together(patient: World) -> None:
    world = patient

    def lost(call: Call) -> Any:
        world.clock.advance(20)
        raise RuntimeError

    world.provider.agent = [lost, *takes(world, 1, does=solves)]
    trial = await world.one(dataset=ONE, runner=METERED, max_cost_usd=5, max_cost_per_trial_usd="0.5")
    # 0.24 of the share went with the first try; the second one's slice of 0.42 does not fit.
    assert (trial["status"], trial["reason"], trial["try_no"]) == ("cancelled", "BUDGET_EXCEEDED", 2)
    assert trial["cost"]["total_usd"] == "0.24"
    await all_has_ended(world)


@pytest.mark.requirement("G-GW-GL31")
async def test_the_projects_day_ends_the_job_that_meets_it_and_says_so(patient: World) -> None:
    world = patient
    await limit(world, daily_cap_usd="0.5")
    await one_by_one(world)
    world.provider.agent = takes(world, 1, does=solves)
    world.provider.verifier = takes(world, 1, does=judges)
    job = await world.run(dataset=ONE, attempts=7, runner=METERED, max_cost_usd=5)
    assert (job["status"], job["error"]["code"], job["error"]["scope"]) == (
        "cancelled", "BUDGET_EXCEEDED", "project_day",
    )  # fmt: skip
    assert "0.5 USD" in job["error"]["message"]
    # A Trial costs 0.024 and needs 0.42 to begin, so four of them fit.
    assert (job["n_scored"], job["trial_counts"]["cancelled"]) == (4, 3)
    assert (job["budget"]["state"], job["budget"]["spent_usd"]) == ("exceeded", "0.096")
    await all_has_ended(world)
    # What is left of the day is there for whoever needs less; the Job's own cap was not touched by it.
    assert await world.value("SELECT state FROM budget WHERE level = 0") == "open"


async def test_a_submission_is_refused_when_the_day_is_used_up_and_works_again_the_next_day(patient: World) -> None:
    world = patient
    await limit(world, daily_cap_usd="0.42")
    world.provider.agent = takes(world, 35, does=solves)
    job = await world.run(dataset=ONE, runner=METERED)
    assert job["error"]["scope"] == "project_day"
    with pytest.raises(InsufficientBalance) as caught:
        await world.submit(dataset=ONE, runner=METERED, request_id="again")
    assert caught.value.status == 402
    assert caught.value.body()["spent_today_usd"] == caught.value.body()["daily_cap_usd"] == "0.42"
    assert await world.value("SELECT count(*) FROM job") == 1
    world.clock.advance(24 * 3600)
    assert (await world.submit(dataset=ONE, runner=METERED, request_id="again"))["status"] == "pending"


async def test_a_submission_that_was_made_before_is_found_although_the_day_is_used_up(patient: World) -> None:
    world = patient
    job = await world.submit(dataset=ONE, request_id="mine")
    await limit(world, daily_cap_usd="0")
    assert (await world.submit(dataset=ONE, request_id="mine"))["job_id"] == job["job_id"]
    with pytest.raises(InsufficientBalance):
        await world.submit(dataset=ONE, request_id="other")


async def test_the_projects_default_cap_holds_where_a_submission_names_none(patient: World) -> None:
    world = patient
    await limit(world, default_job_cap_usd="0.5")
    first = await world.submit(dataset=ONE, runner=METERED, request_id="mine")
    assert first["budget"]["max_cost_usd"] == "0.5"
    own = await world.submit(dataset=ONE, runner=METERED, max_cost_usd=2)
    assert own["budget"]["max_cost_usd"] == "2"
    # A default that moves changes no Job, and a repeated submission is still the same.
    await limit(world, default_job_cap_usd=None)
    again = await world.submit(dataset=ONE, runner=METERED, request_id="mine")
    assert (again["job_id"], again["budget"]["max_cost_usd"]) == (first["job_id"], "0.5")
    assert (await world.submit(dataset=ONE, runner=METERED))["budget"]["max_cost_usd"] is None


async def test_a_share_belongs_to_what_a_repeated_submission_must_agree_in(patient: World) -> None:
    world = patient
    share = {"dataset": ONE, "request_id": "mine", "max_cost_usd": 1}
    job = await world.submit(**share, max_cost_per_trial_usd=0.5)
    assert (await world.submit(**share, max_cost_per_trial_usd="0.50"))["job_id"] == job["job_id"]
    with pytest.raises(JobRequestConflict):
        await world.submit(**share, max_cost_per_trial_usd="0.6")
    with pytest.raises(InvalidAmount):
        await world.submit(dataset=ONE, max_cost_per_trial_usd=0)


async def test_a_dry_run_says_what_everything_costs_at_most_and_what_is_left_of_the_day(patient: World) -> None:
    world = patient
    await limit(world, daily_cap_usd="1", default_job_cap_usd="3")
    asked = {"dataset": ONE, "attempts": 4, "runner": METERED, "dry_run": True}
    found = await world.submit(**asked)
    # 35 s of the agent and 25 s of the verifier at 0.012 a second.
    assert (found["worst_case_usd"], found["worst_case_total_usd"], found["max_cost_usd"]) == ("0.72", "2.88", "3")
    assert (found["project_day"]["daily_cap_usd"], found["project_day"]["remaining_today_usd"]) == ("1", "1")
    assert found["warnings"] == ["The project's default cap holds: 3 USD."]
    shared = await world.submit(**asked, max_cost_usd=2, max_cost_per_trial_usd="0.6")
    assert (shared["worst_case_total_usd"], shared["max_cost_per_trial_usd"]) == ("2", "0.6")
    assert shared["warnings"] == ["One try of a Trial can cost more than a Trial may."]
    await limit(world, daily_cap_usd="0.5")
    assert "daily cap has left" in (await world.submit(**asked))["warnings"][-1]
    await limit(world, daily_cap_usd="0")
    assert "used up" in (await world.submit(**asked))["warnings"][-1]
    assert await world.value("SELECT count(*) FROM job") == 0


@pytest.mark.requirement("G-EVAL-18.27")
async def test_the_verifier_has_its_own_account_inside_the_jobs_cap_and_can_meet_it(patient: World) -> None:
    world = patient
    world.provider.agent = takes(world, 10, does=solves)
    world.provider.verifier = takes(world, 5, does=judges)
    job = await world.run(dataset=ONE, attempts=1, runner=METERED, max_cost_usd="0.42")
    # 0.12 of 0.42 went to the agent, and the verifier's slice of 0.3 fits exactly.
    (trial,) = await world.trial_results(job["job_id"])
    assert (job["status"], trial["cost"]["sandbox_usd"], trial["cost"]["verifier_usd"]) == ("completed", "0.12", "0.06")
    assert Decimal(job["budget"]["spent_usd"]) == Decimal(job["cost"]["total_usd"]) == Decimal("0.18")
    world.provider.agent = takes(world, 11, does=solves)
    job = await world.run(dataset=ONE, attempts=1, runner=METERED, max_cost_usd="0.42")
    (trial,) = await world.trial_results(job["job_id"])
    assert (job["error"]["code"], trial["reward"], trial["cost"]["verifier_usd"]) == ("BUDGET_EXCEEDED", None, "0")
    await all_has_ended(world)


async def test_a_job_that_has_spent_most_of_its_cap_says_so(patient: World) -> None:
    world = patient
    world.provider.agent = takes(world, 33, does=solves)
    world.provider.verifier = takes(world, 1, does=judges)
    job = await world.run(dataset=ONE, runner=METERED, max_cost_usd="0.5")
    assert job["budget"]["warning"] is None
    assert job["error"]["code"] == "BUDGET_EXCEEDED"  # 0.396 is below 80 % of 0.5; the verifier's slice does not fit
    job = await world.run(dataset=ONE, runner=METERED, max_cost_usd="0.494")
    assert job["budget"]["warning"]["percent"] == 80
    async with world.database.session() as session:
        listed = (await service.status(session, world.context, world.actor, job["job_id"]))["budget"]["warning"]
    assert listed == job["budget"]["warning"]
