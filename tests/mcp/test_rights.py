"""Who may call what. A refusal of rights is the tool's result; only an unknown caller is turned away by HTTP."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.mcp.conftest import ERAS, Call, body_of, connected, json_text, request_of, rpc
from tests.mcp.test_listing import ORDER
from tests.mcp.world import AUTOMATION, READ_ONLY, STRANGER, http_client, running

from tollbar.access import service as access

NEEDS = {"envloop_job_submit": "jobs.run", "envloop_job_stop": "jobs.stop"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_missing_right_is_named_before_anything_is_said_of_the_arguments(call: Call, era):
    wrong = ({}, {"nonsense": 1, "job_id": 5, "max_cost_usd": "x"})
    for name, arguments in itertools.product(ORDER, wrong):
        refused = await call(name, READ_ONLY, era, **arguments)
        if name in NEEDS:
            assert (refused["code"], refused["status"]) == ("ACCESS_DENIED", 403)
            assert refused["missing_capability"] == NEEDS[name]
            assert "Project automation" in refused["hint"]
        else:
            assert refused.get("code") != "ACCESS_DENIED"
        allowed = await call(name, AUTOMATION, era, **arguments)
        assert allowed.get("code") != "ACCESS_DENIED"


@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_tool_is_a_result_that_lists_the_tools(app, world, era):
    async with connected(app, world.secrets[READ_ONLY], era) as client:
        result = await client.call_tool("ENVLOOP_SECRET_WORD", {"job_id": "x"})
    assert result.is_error
    body = body_of(result)
    assert (body["code"], body["status"]) == ("NOT_FOUND", 404)
    assert all(name in body["hint"] for name in ORDER)
    assert "SECRET_WORD" not in result.content[0].text


async def test_a_request_that_names_another_project_may_list_and_not_call(app, world):
    for header, code in (("X-Project-ID", "PROJECT_ACCESS_DENIED"), ("X-Workspace-ID", "WORKSPACE_ACCESS_DENIED")):
        async with connected(app, world.secrets[AUTOMATION], "auto", **{header: "other"}) as client:
            assert (await client.list_tools()).tools
            body = body_of(await client.call_tool("envloop_datasets_list", {}))
            assert (body["code"], body["status"]) == (code, 403)
            assert body_of(await client.call_tool("no_such_tool", {}))["code"] == code


async def test_what_belongs_to_another_project_does_not_exist(world, call: Call):
    job = await call("envloop_job_submit", dataset="demo/mini@1", request_id="mine", max_cost_usd=1)
    for name in ("envloop_job_status", "envloop_job_result", "envloop_job_stop"):
        refused = await call(name, STRANGER, job_id=job["job_id"])
        assert (refused["code"], refused["status"]) == ("JOB_NOT_FOUND", 404)
        assert set(refused) == {"code", "message", "status"}
    assert (await call("envloop_trial_result", STRANGER, trial_id="trial_x"))["code"] == "TRIAL_NOT_FOUND"


async def test_calls_at_the_same_time_never_mix_their_callers(app, world, call: Call):
    mine = await call("envloop_job_submit", dataset="demo/mini@1", request_id="same", max_cost_usd=1)

    async def ask(number: int) -> tuple[str, dict[str, object]]:
        key = STRANGER if number % 2 else AUTOMATION
        body, headers = request_of(
            ERAS[number // 2 % 2], "tools/call", {"name": "envloop_job_status", "arguments": {"job_id": mine["job_id"]}}
        )
        async with http_client(app, world.secrets[key]) as http:
            answer = await http.post("/v1/mcp", json={**body, "id": number}, headers=headers)
        assert answer.json()["id"] == number
        return key, answer.json()["result"]["structuredContent"]

    for key, body in await asyncio.gather(*(ask(number) for number in range(16))):
        assert (body["code"] if key == STRANGER else body["job_id"]) in {"JOB_NOT_FOUND", mine["job_id"]}
        assert ("code" in body) == (key == STRANGER)


@pytest.mark.requirement("G-MCP-20.15", "G-MCP-20.22")
@pytest.mark.parametrize("header", [None, "Bearer tbp_wrong", "Basic dTpw", "Bearer two words"])
async def test_without_a_good_key_every_method_is_401(app, header):
    headers = {} if header is None else {"Authorization": header}
    presented = header is not None and header.startswith("Bearer")
    async with http_client(app, headers=headers) as http:
        for method in ("POST", "GET", "DELETE", "PUT"):
            answer = await http.request(method, "/v1/mcp", **json_text(rpc("tools/list")))
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert ('error="invalid_token"' in answer.headers["www-authenticate"]) == presented
            assert answer.json()["code"] == "UNAUTHENTICATED"
            assert answer.json().get("error") == ("invalid_token" if presented else None)


async def test_a_revoked_key_is_401_at_its_next_request(app, world):
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        assert (await http.post("/v1/mcp", json=rpc("tools/list"))).status_code == 200
        async with world.database.transaction() as session:
            await access.revoke_key(session, world.actor, world.key_ids[AUTOMATION], world.clock)
        assert (await http.post("/v1/mcp", json=rpc("tools/list"))).status_code == 401


@pytest.mark.requirement("G-MCP-20.43")
async def test_the_rate_limit_is_a_json_rpc_error_and_counts_http_too(world):
    async with running(world.changed(requests_per_minute=3).app()) as app:
        async with http_client(app, world.secrets[AUTOMATION]) as http:
            assert (await http.get("/v1/me")).status_code == 200
            for _ in range(2):
                assert (await http.post("/v1/mcp", json=rpc("tools/list"))).status_code == 200
            answer = await http.post("/v1/mcp", json=rpc("tools/list"))
        assert answer.status_code == 429
        error = answer.json()["error"]
        assert (error["data"]["code"], error["data"]["status"]) == ("RATE_LIMITED", 429)
        assert 1 <= error["data"]["retry_after"] == int(answer.headers["retry-after"]) <= 60
        async with http_client(app, world.secrets[READ_ONLY]) as http:
            assert (await http.post("/v1/mcp", json=rpc("tools/list"))).status_code == 200
