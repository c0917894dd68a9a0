"""When something breaks inside: an id to look up, no word of what happened, and nothing half done."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from sqlalchemy.exc import OperationalError
from tests.mcp.conftest import ERAS, Call, body_of
from tests.mcp.world import AUTOMATION, http_client

from tollbar.app.assembly import build_app
from tollbar.mcp.endpoint import build_mcp
from tollbar.mcp.server import EvaluationServer
from tollbar.mcp.tools import ToolDeps

SUBMIT = {"dataset": "demo/mini@1", "request_id": "r1", "max_cost_usd": 1}
SECRET = "hunter2 at /srv/secret.py"


@pytest.mark.parametrize("era", ERAS)
async def test_a_crash_gives_an_id_that_the_log_has_and_nothing_else(world, call: Call, log_lines, era):
    world.engine.fault = RuntimeError(SECRET)
    error = await call("envloop_job_submit", era=era, **SUBMIT)
    assert set(error) == {"code", "message", "status", "error_id"}
    assert (error["code"], error["status"]) == ("INTERNAL_ERROR", 500)
    assert "hunter2" not in str(error)
    assert "Traceback" not in str(error)
    [line] = [line for line in log_lines if line.get("error_id") == error["error_id"]]
    assert (line["log_level"], line["tool"], line["exc_info"]) == ("error", "envloop_job_submit", True)
    assert await world.count("job") == await world.count("budget") == 0


async def test_after_a_crash_the_same_request_id_is_free(world, call: Call, log_lines):
    world.engine.fault = RuntimeError(SECRET)
    assert (await call("envloop_job_submit", **SUBMIT))["code"] == "INTERNAL_ERROR"
    world.engine.fault = None
    assert (await call("envloop_job_submit", **SUBMIT))["status"] == "pending"


async def test_a_database_that_is_away_is_said_to_be_so(world, call: Call, log_lines):
    world.engine.fault = OperationalError("SELECT 1", {}, RuntimeError(SECRET))
    error = await call("envloop_job_submit", **SUBMIT)
    assert (error["code"], error["status"]) == ("SERVICE_UNAVAILABLE", 503)
    assert "hunter2" not in str(error)
    assert await world.count("job") == 0


async def test_a_tool_that_takes_too_long_is_given_up_and_writes_nothing(world, log_lines):
    world.engine.gate = asyncio.Event()
    server = EvaluationServer(ToolDeps(world.database, world.context, time_limit_s=0.05), lambda _: world.actor)
    result = await server.call_tool("envloop_job_submit", dict(SUBMIT), _Asked())
    assert (body_of(result)["code"], body_of(result)["status"]) == ("SERVICE_UNAVAILABLE", 503)
    assert await world.count("job") == 0
    world.engine.gate.set()
    patient = EvaluationServer(ToolDeps(world.database, world.context), lambda _: world.actor)
    assert body_of(await patient.call_tool("envloop_job_submit", dict(SUBMIT), _Asked()))["status"] == "pending"


async def test_tools_are_given_half_a_minute_by_default(world):
    assert ToolDeps(world.database, world.context).time_limit_s == 30


async def test_a_fault_outside_of_tools_is_a_json_rpc_error(world, log_lines):
    """An app whose lifespan does not run cannot serve MCP, and says so in its own form."""
    app = build_app(
        world.settings, world.database, world.blobs, world.context, world.clock, world.origin, world.folder / "uploads"
    )
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        answer = await http.post("/v1/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert answer.status_code == 500
    data = answer.json()["error"]["data"]
    assert (data["code"], data["status"]) == ("INTERNAL_ERROR", 500)
    assert any(line.get("error_id") == data["error_id"] for line in log_lines)


async def test_each_server_keeps_its_callers_apart(world):
    """The principal comes with the request, never from the server."""
    endpoint = build_mcp(
        ToolDeps(world.database, world.context), lambda _: world.stranger, allowed_hosts=[], allowed_origins=[]
    )
    result = await endpoint.server.call_tool("envloop_datasets_list", {}, _Asked())
    assert {item["name"] for item in body_of(result)["items"]} == {"demo/mini", "tests/hello-world"}


class _Asked:
    """As much of a request's context as the server reads."""

    class request_context:  # noqa: N801 - the attribute of the library
        class request:  # noqa: N801 - the attribute of the library
            scope: ClassVar[dict[str, Any]] = {}
