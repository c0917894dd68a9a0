"""What `tools/list` says: all tools, to everybody, in one order, in a form that every client's API takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from jsonschema.validators import Draft202012Validator
from tests.mcp.conftest import ERAS, connected, request_of
from tests.mcp.world import AUTOMATION, READ_ONLY, STRANGER, World, http_client, running

ORDER = [
    "envloop_datasets_list",
    "envloop_dataset_get",
    "envloop_job_submit",
    "envloop_job_status",
    "envloop_job_result",
    "envloop_job_stop",
    "envloop_trial_result",
]
HINTS = {
    "envloop_job_submit": (False, False, True, True),
    "envloop_job_stop": (False, True, True, False),
}
"""Read-only, destructive, idempotent, open world; every other tool reads."""
READS = (True, False, True, False)


async def listed(app: Any, world: World, era: str = "auto", key: str = AUTOMATION) -> list[dict[str, Any]]:
    body, headers = request_of(era, "tools/list")
    async with http_client(app, world.secrets[key]) as http:
        answer = await http.post("/v1/mcp", json=body, headers=headers)
    assert answer.status_code == 200
    return answer.json()["result"]["tools"]


def nodes(schema: Any) -> list[dict[str, Any]]:
    """Returns a schema and every schema inside it."""
    if isinstance(schema, list):
        return [node for member in schema for node in nodes(member)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(node for member in schema.values() for node in nodes(member))]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("key", [AUTOMATION, READ_ONLY, STRANGER])
async def test_everybody_sees_the_same_tools_in_the_same_order(app, world, era, key):
    async with connected(app, world.secrets[key], era) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ORDER
    assert all(tool.title and tool.description for tool in tools)
    assert await listed(app, world, era, key) == await listed(app, world, era)


async def test_a_key_without_its_project_still_sees_the_list(app, world):
    async with connected(app, world.secrets[AUTOMATION], "auto", **{"X-Project-ID": "prj_other"}) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ORDER


async def test_each_tool_says_what_it_does_to_the_world(app, world):
    for tool in await listed(app, world):
        hints = tool["annotations"]
        found = tuple(hints[f"{hint}Hint"] for hint in ("readOnly", "destructive", "idempotent", "openWorld"))
        assert found == HINTS.get(tool["name"], READS), tool["name"]


async def test_tools_that_return_what_a_run_wrote_call_it_untrusted(app, world):
    untrusted = {tool["name"] for tool in await listed(app, world) if "untrusted" in tool["description"]}
    assert untrusted == {"envloop_job_result", "envloop_trial_result"}
    async with connected(app, world.secrets[AUTOMATION], "auto") as client:
        assert "untrusted data" in client.instructions
        assert len(client.instructions) < 2000


@pytest.mark.requirement("G-MCP-20.12", "G-MCP-20.13")
@pytest.mark.parametrize("era", ERAS)
async def test_schemas_are_what_the_apis_of_models_take(app, world, era):
    tools = await listed(app, world, era)
    for tool in tools:
        assert re.fullmatch(r"[a-zA-Z0-9_]{1,40}", tool["name"])
        for side in ("inputSchema", "outputSchema"):
            schema = tool[side]
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object", (tool["name"], side)
            assert not {"oneOf", "anyOf", "allOf"} & set(schema), (tool["name"], side)
            for node in nodes(schema):
                assert not {"$ref", "$defs", "definitions"} & set(node), (tool["name"], side)
                for name in node.get("properties", {}):
                    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name), (tool["name"], name)
    sizes = [len(json.dumps({key: tool[key] for key in ("name", "description", "inputSchema")})) for tool in tools]
    assert sum(sizes) < 16 * 1024


async def test_each_argument_is_described_and_no_other_is_taken(app, world):
    for tool in await listed(app, world):
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False
        assert all(found["description"].strip() for found in schema["properties"].values()), tool["name"]
        assert set(schema.get("required", ())) <= set(schema["properties"])
    submit = next(tool for tool in await listed(app, world) if tool["name"] == "envloop_job_submit")
    assert submit["inputSchema"]["required"] == ["request_id", "max_cost_usd"]
    assert submit["inputSchema"]["properties"]["dataset"]["type"] == ["string", "object"]


async def test_the_list_has_the_same_bytes_in_every_server(world):
    async def raw() -> bytes:
        body, headers = request_of("auto", "tools/list")
        async with running(world.app()) as app, http_client(app, world.secrets[AUTOMATION]) as http:
            return (await http.post("/v1/mcp", json=body, headers=headers)).content

    assert await raw() == await raw()


def test_the_list_does_not_depend_on_the_order_of_hashes():
    code = "import json; from tollbar.mcp.tools import TOOLS; print(json.dumps([[t.name, t.title, t.description, "
    code += "t.arguments, t.result, t.annotations.model_dump()] for t in TOOLS]))"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": value},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for value in ("0", "1")
    ]
    assert found[0] == found[1]


async def test_clients_may_keep_the_list_for_five_minutes(app, world):
    for method in ("tools/list", "server/discover"):
        body, headers = request_of("auto", method)
        async with http_client(app, world.secrets[AUTOMATION]) as http:
            result = (await http.post("/v1/mcp", json=body, headers=headers)).json()["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (300_000, "private")


async def test_prompts_and_resources_are_empty_lists_and_nothing_can_be_subscribed(app, world):
    async with http_client(app, world.secrets[AUTOMATION]) as http:
        for method, name in (("prompts/list", "prompts"), ("resources/list", "resources")):
            for era in ERAS:
                body, headers = request_of(era, method)
                assert (await http.post("/v1/mcp", json=body, headers=headers)).json()["result"][name] == []
        body, headers = request_of("auto", "subscriptions/listen", {"notifications": {}})
        answer: httpx2.Response = await http.post("/v1/mcp", json=body, headers=headers)
    assert answer.json()["error"]["code"] == -32601
