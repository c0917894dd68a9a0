"""A submission is the same one over HTTP and over MCP, however often it is made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.mcp.conftest import Call, request_of
from tests.mcp.world import AUTOMATION, STRANGER, http_client

REQUEST = {"request_id": "nightly", "attempts": 3, "tag": "nightly"}
HTTP = {**REQUEST, "dataset": {"name": "demo/mini", "version": "1"}, "max_cost_usd": "5.00"}
MCP = {**REQUEST, "dataset": "demo/mini@1", "max_cost_usd": 5}


async def over_http(app: Any, secret: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with http_client(app, secret) as http:
        answer = await http.post("/v1/job", json=body)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("http_first", [True, False])
async def test_the_second_interface_returns_the_job_of_the_first(app, world, call: Call, http_first):
    secret = world.secrets[AUTOMATION]
    if http_first:
        status, first = await over_http(app, secret, HTTP)
        second = await call("envloop_job_submit", **MCP)
    else:
        first = await call("envloop_job_submit", **MCP)
        status, second = await over_http(app, secret, HTTP)
    assert status == (202 if http_first else 200)
    assert second == first
    assert await world.count("job") == 1
    assert [work.id for work in world.engine.works] == [f"job:{first['job_id']}"]


async def test_other_arguments_under_the_same_id_are_refused_and_named(app, world, call: Call):
    _, first = await over_http(app, world.secrets[AUTOMATION], HTTP)
    error = await call("envloop_job_submit", **{**MCP, "attempts": 4, "max_cost_usd": 6})
    assert (error["code"], error["status"]) == ("JOB_REQUEST_CONFLICT", 409)
    assert (error["job_id"], error["differs"]) == (first["job_id"], ["attempts", "max_cost_usd"])
    missing = await call("envloop_job_submit", **{**MCP, "max_cost_usd": None})
    assert missing["code"] == "INVALID_AMOUNT"


async def test_of_many_equal_submissions_over_both_interfaces_one_is_new(app, world):
    secret = world.secrets[AUTOMATION]

    async def over_mcp(era: str) -> dict[str, Any]:
        body, headers = request_of(era, "tools/call", {"name": "envloop_job_submit", "arguments": MCP})
        async with http_client(app, secret) as http:
            return (await http.post("/v1/mcp", json=body, headers=headers)).json()["result"]["structuredContent"]

    tasks = [over_http(app, secret, HTTP) for _ in range(6)]
    found = await asyncio.gather(*tasks, *(over_mcp(era) for era in ("auto", "legacy") * 3))
    answers = found[:6]
    jobs = [body for _, body in answers] + found[6:]
    assert len({job["job_id"] for job in jobs}) == 1
    assert sorted(status for status, _ in answers) in ([200] * 5 + [202], [200] * 6)
    assert await world.count("job") == await world.count("budget") == len(world.engine.works) == 1


async def test_the_same_id_in_another_project_is_another_job(world, call: Call):
    mine = await call("envloop_job_submit", **MCP)
    refused = await call("envloop_job_submit", STRANGER, **MCP)
    assert refused["code"] == "INVALID_JOB", "the stranger's project has no default profile"
    assert mine["job_id"] not in str(refused)
