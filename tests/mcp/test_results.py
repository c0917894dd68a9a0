"""What the tools return: the objects of HTTP, as text and as structured content, in the published form."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator
from tests.mcp.conftest import ERAS, body_of, connected
from tests.mcp.worked import worked
from tests.mcp.world import AUTOMATION, World, http_client

REWARDS = {
    "count-words": [1.0, 0.0, 1.0],
    "fix-config": [1.0, "VERIFIER_TIMEOUT", 1.0],
    "greeting": [0.0, 0.0, 0.5],
}


async def submitted(world: World, app: Any, **more: Any) -> str:
    """Submits a Job over HTTP and ends some of its Trials."""
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        body = {"dataset": "demo/mini@1", "attempts": 3, "max_cost_usd": 1, **more}
        job_id = (await http.post("/v1/job", json=body)).json()["job_id"]
    await worked(world, job_id, REWARDS)
    return job_id


async def over_http(world: World, app: Any, path: str) -> dict[str, Any]:
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        return (await http.get(path)).json()


@pytest.mark.parametrize("era", ERAS)
async def test_every_tool_answers_in_its_published_form(app, world, era):
    job_id = await submitted(world, app)
    async with connected(app, world.secrets[AUTOMATION], era) as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        trials = body_of(await client.call_tool("envloop_job_result", {"job_id": job_id}))["trials"]
        calls: list[tuple[str, dict[str, Any]]] = [
            ("envloop_datasets_list", {}),
            ("envloop_dataset_get", {"name": "demo/mini"}),
            ("envloop_dataset_get", {"name": "demo/mini", "version": "1", "limit": 2}),
            ("envloop_job_submit", {"dataset": "demo/mini@1", "request_id": "r", "max_cost_usd": "0.5"}),
            ("envloop_job_status", {"job_id": job_id}),
            ("envloop_job_result", {"job_id": job_id}),
            *(("envloop_trial_result", {"trial_id": trial["trial_id"]}) for trial in trials["items"]),
            ("envloop_job_stop", {"job_id": job_id}),
        ]
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, (name, result)
            Draft202012Validator(schemas[name]).validate(body_of(result))
            assert len(result.content[0].text) < 40_000
    assert {name for name, _ in calls} == set(schemas)


async def test_a_job_reads_over_mcp_as_over_http(app, world, call):
    job_id = await submitted(world, app)
    assert await call("envloop_job_status", job_id=job_id) == await over_http(world, app, f"/v1/job/{job_id}")
    result = await call("envloop_job_result", job_id=job_id)
    paged = await over_http(world, app, f"/v1/job/{job_id}/result?trials_limit=50")
    assert result == paged
    trial_id = result["trials"]["items"][0]["trial_id"]
    assert await call("envloop_trial_result", trial_id=trial_id) == await over_http(
        world, app, f"/v1/trials/{trial_id}/result"
    )


@pytest.mark.requirement("G-EVAL-18.9")
async def test_scores_come_with_coverage_interval_and_what_is_missing(app, world, call):
    job_id = await submitted(world, app)
    job = await call("envloop_job_status", job_id=job_id)
    assert (job["n_scored"], job["n_total"]) == (8, 18)
    # per task the mean over its scored attempts: 2/3, 1 and 1/6
    assert job["score"] == pytest.approx((2 / 3 + 1 + 1 / 6) / 3, abs=1e-6)
    assert job["pass"] == pytest.approx((2 / 3 + 1 + 0) / 3, abs=1e-6)
    assert job["pass_tasks"] == {"1": 3, "2": 3, "3": 2}
    assert job["intervals"]["score"] is not None
    items = (await call("envloop_job_result", job_id=job_id))["trials"]["items"]
    unscored = [trial for trial in items if trial["reward"] is None]
    assert [trial["reason"] for trial in unscored] == ["VERIFIER_TIMEOUT"]


async def test_pages_follow_each_other_and_end(app, world, call):
    job_id = await submitted(world, app)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await call("envloop_job_result", job_id=job_id, trials_limit=4, **cursor))["trials"]
        seen += [trial["trial_id"] for trial in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"trials_cursor": page["next_cursor"]}
    assert len(seen) == len(set(seen)) == 9
    first = await call("envloop_dataset_get", name="demo/mini", version="1", limit=5)
    assert [task["task_id"] for task in first["tasks"]["items"]] == sorted(
        ["count-words", "fix-config", "greeting", "order-report", "repair-script"]
    )
    cursor = {"cursor": first["tasks"]["next_cursor"]}
    second = await call("envloop_dataset_get", name="demo/mini", version="1", **cursor)
    assert [task["task_id"] for task in second["tasks"]["items"]] == ["sort-list"]
    foreign = await call("envloop_datasets_list", **cursor)
    assert foreign["code"] == "INVALID_CURSOR"


async def test_a_task_ref_from_the_list_can_be_submitted_as_it_is(world, call):
    found = await call("envloop_dataset_get", name="demo/mini", version="1", limit=1)
    job = await call(
        "envloop_job_submit", task_ref=found["tasks"]["items"][0]["task_ref"], request_id="one", max_cost_usd=1
    )
    assert (job["total_tasks"], job["n_total"]) == (1, 1)
    assert [work.id for work in world.engine.works] == [f"job:{job['job_id']}"]


async def test_a_stop_is_repeatable_and_ends_what_waits(app, world, call):
    job_id = await submitted(world, app)
    first = await call("envloop_job_stop", job_id=job_id)
    assert first["status"] == "cancelled"
    assert await call("envloop_job_stop", job_id=job_id) == first
    assert first["poll_after_s"] is None


async def test_a_result_of_a_hundred_attempts_stays_small(app, world, call):
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        body = {"dataset": "demo/mini@1", "attempts": 100}
        job_id = (await http.post("/v1/job", json=body)).json()["job_id"]
    await worked(world, job_id, {"greeting": [1.0] * 60 + ["REWARD_MISSING"] * 40})
    async with connected(app, world.secrets[AUTOMATION], "auto") as client:
        result = await client.call_tool("envloop_job_result", {"job_id": job_id})
    assert len(body_of(result)["trials"]["items"]) == 50
    assert len(result.content[0].text) < 40_000
