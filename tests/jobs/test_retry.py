"""Retry of what has no reward: the rest of a Job again, and nothing that was scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.standin import Call, ended, judges
from tests.jobs.world import METERED, ONE, World

from tollbar.jobs import flows
from tollbar.jobs.errors import InvalidJob, JobNotFound, JobRequestConflict
from tollbar.kit.errors import TollbarError


async def half_scored(world: World, **members: Any) -> dict[str, Any]:
    """Runs a Job of two tasks, two attempts: 1, no reward, 0, no reward."""
    answers = iter(["1", None, "0", None])

    def judge(call: Call) -> Any:
        reward = next(answers)
        if reward is not None:
            call.write("/logs/verifier/reward.txt", reward)
        return ended()

    world.provider.verifier = [judge]
    world.capacity = 1
    return await world.run(attempts=2, **members)


async def retry(world: World, source: dict[str, Any], **members: Any) -> dict[str, Any]:
    job = await world.submit(dataset=None, retry_of=source["job_id"], **members)
    await world.engine.drain(world.pump.run_once)
    return await world.job(job["job_id"])


@pytest.mark.requirement("G-EVAL-18.18")
async def test_a_retry_runs_only_what_has_no_reward_and_keeps_scored_zeros(world: World) -> None:
    source = await half_scored(world)
    before = await world.rows("SELECT * FROM trial ORDER BY job_id, seq")
    unscored = await world.rows("SELECT task_seq, attempt FROM trial WHERE reward IS NULL ORDER BY attempt, task_seq")
    world.provider.verifier = [judges]
    agents = world.provider.runs_of("/solution/solve.sh")
    job = await retry(world, source)
    assert world.provider.runs_of("/solution/solve.sh") == agents + 2
    rows = await world.rows(
        "SELECT task_seq, attempt FROM trial WHERE job_id = :j ORDER BY attempt, task_seq", j=job["job_id"]
    )
    assert rows == unscored
    assert (job["status"], job["n_scored"], job["n_total"], job["retry_of"]) == ("completed", 2, 2, source["job_id"])
    assert job["trial_counts"]["total"] == 2
    kept = await world.rows("SELECT * FROM trial WHERE job_id = :j ORDER BY seq", j=source["job_id"])
    assert kept == before
    for name in ("dataset_ref", "profile", "runner", "agent", "params"):
        assert job[name] == source[name]


async def test_the_result_of_a_retry_shows_both_jobs_together(world: World) -> None:
    source = await half_scored(world, runner=METERED, max_cost_usd="5")
    assert (source["n_scored"], source["n_total"]) == (2, 4)
    world.provider.verifier = [judges]
    job = await retry(world, source, max_cost_usd="5")
    merged = (await world.result(job["job_id"]))["merged"]
    assert merged["job_ids"] == [source["job_id"], job["job_id"]]
    assert (merged["n_scored"], merged["n_total"], merged["score"]) == (4, 4, 0.75)
    total = await world.value("SELECT sum(settled_pusd) FROM budget WHERE level = (SELECT level FROM budget LIMIT 1)")
    spent = [(await world.job(one))["cost"]["total_usd"] for one in merged["job_ids"]]
    assert float(merged["cost"]["total_usd"]) == pytest.approx(sum(map(float, spent)))
    assert total is not None
    assert "merged" not in await world.result(source["job_id"])


async def test_a_retry_has_its_own_cap_and_request_id(world: World) -> None:
    source = await half_scored(world)
    world.provider.verifier = [judges]
    first = await world.submit(dataset=None, retry_of=source["job_id"], request_id="again", max_cost_usd="0.5")
    assert first["budget"]["max_cost_usd"] == "0.5"
    same = await world.submit(dataset=None, retry_of=source["job_id"], request_id="again", max_cost_usd="0.50")
    assert same["job_id"] == first["job_id"]
    with pytest.raises(JobRequestConflict):
        await world.submit(dataset=None, retry_of=source["job_id"], request_id="again", max_cost_usd="0.6")


async def test_a_retry_of_a_retry_goes_on_with_what_is_still_open(world: World) -> None:
    source = await half_scored(world)
    answers = iter(["1", None])

    def judge(call: Call) -> Any:
        reward = next(answers)
        if reward is not None:
            call.write("/logs/verifier/reward.txt", reward)
        return ended()

    world.provider.verifier = [judge]
    second = await retry(world, source)
    assert (second["n_scored"], second["n_total"]) == (1, 2)
    world.provider.verifier = [judges]
    third = await retry(world, second)
    assert (third["n_scored"], third["n_total"]) == (1, 1)
    merged = (await world.result(third["job_id"]))["merged"]
    assert (len(merged["job_ids"]), merged["n_scored"], merged["n_total"]) == (3, 4, 4)


async def test_what_cannot_be_retried_is_refused_and_writes_nothing(world: World) -> None:
    running = await world.submit(dataset=ONE)
    await flows.expand(world.tools, running["job_id"])
    with pytest.raises(InvalidJob, match="not ended"):
        await world.submit(dataset=None, retry_of=running["job_id"])
    await world.engine.drain(world.pump.run_once)
    with pytest.raises(InvalidJob, match="nothing is left"):
        await world.submit(dataset=None, retry_of=running["job_id"])
    with pytest.raises(JobNotFound):
        await world.submit(dataset=None, retry_of="job_01KDC4P2R8N5W3T7H9K1M6Q0VZ")
    stranger = replace(world, actor=replace(world.actor, project_id="prj_other"))
    with pytest.raises(JobNotFound):
        await stranger.submit(dataset=None, retry_of=running["job_id"])
    for member in ({"dataset": ONE}, {"profile_name": "tollbar/nop"}, {"runner": METERED}, {"attempts": 2}):
        with pytest.raises(TollbarError) as refused:
            await world.submit(**{"dataset": None, "retry_of": running["job_id"], **member})
        assert refused.value.status == 422
    assert await world.value("SELECT count(*) FROM job") == 1
