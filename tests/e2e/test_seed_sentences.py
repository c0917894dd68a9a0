"""The sentences of the evaluation seed on connecting and on each tool, over MCP, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from tests.e2e.conftest import Running
from tests.e2e.keys import call, new_key
from tollbar.access.principal import PROJECT_AUTOMATION

NEEDS: Final = {
    "envloop_datasets_list": "datasets.read",
    "envloop_dataset_get": "datasets.read",
    "envloop_job_submit": "jobs.run",
    "envloop_job_status": "jobs.read",
    "envloop_job_result": "jobs.read",
    "envloop_job_stop": "jobs.stop",
    "envloop_trial_result": "jobs.read",
}
TASKS: Final = ("count-words", "fix-config", "greeting", "order-report", "repair-script", "sort-list")


async def submitted(server: Running, request_id: str, **more: Any) -> dict[str, Any]:
    return await call(
        server,
        "envloop_job_submit",
        **{"dataset": "demo/mini@1", "request_id": request_id, "max_cost_usd": 1, **more},
    )


async def followed(server: Running, job_id: str) -> list[dict[str, Any]]:
    """Polls the status tool as the server asks, and returns every answer up to the final one."""
    seen, deadline = [], time.monotonic() + 110
    while True:
        seen.append(await call(server, "envloop_job_status", job_id=job_id))
        if seen[-1]["final"]:
            return seen
        assert seen[-1]["poll_after_s"] > 0
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


# Connect


@pytest.fixture
def config(server: Running, monkeypatch: pytest.MonkeyPatch) -> str:
    """A client configuration in JSON that names an environment variable in place of the key."""
    monkeypatch.setenv("TOLLBAR_TEST_KEY", server.key)
    header = {"Authorization": "Bearer ${TOLLBAR_TEST_KEY}"}
    servers = {"tollbar": {"type": "http", "url": f"{server.url}/v1/mcp", "headers": header}}
    return json.dumps({"mcpServers": servers}, indent=2)


@pytest.mark.requirement(
    "EV-CONN-type", "EV-CONN-url", "EV-CONN-header", "EV-CONN-carries", "EV-KEY-project", "EV-WORK-browse"
)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_json_configuration_of_type_http_with_a_project_key_connects_and_browses(
    config: str, mode: str
) -> None:
    (entry,) = json.loads(config)["mcpServers"].values()
    assert entry["type"] == "http"
    headers = {
        name: re.sub(r"\$\{(\w+)\}", lambda match: os.environ[match[1]], value)
        for name, value in entry["headers"].items()
    }
    assert set(headers) == {"Authorization"}, "the key carries its project"
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(entry["url"], http_client=http), mode=mode) as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == list(NEEDS)
        listed = (await client.call_tool("envloop_datasets_list", {})).structured_content
    assert {item["name"] for item in listed["items"]} >= {"demo/mini", "tests/hello-world"}


@pytest.mark.requirement("EV-KEY-project", "G-MCP-20.22")
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer tbp_wrong"}])
def test_without_a_projects_key_nothing_connects(server: Running, header: dict[str, str]) -> None:
    answer = httpx2.post(f"{server.url}/v1/mcp", json=LIST, headers=header, trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
    assert answer.headers["content-type"] == "application/json"


LIST: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def tool_call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@pytest.fixture
def raw(server: Running) -> Iterator[httpx2.Client]:
    """A plain HTTP client with the key."""
    with server.http() as http:
        yield http


@pytest.mark.requirement("EV-CONN-stateless", "EV-CONN-json", "EV-CONN-url")
def test_requests_need_no_session_and_every_answer_is_json(raw: httpx2.Client) -> None:
    for body in (LIST, tool_call(2, "envloop_datasets_list"), LIST):
        for accept in ("application/json, text/event-stream", "application/json", "text/event-stream, */*"):
            answer = raw.post("/v1/mcp", json=body, headers={"Accept": accept})
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["result"]
            assert "mcp-session-id" not in answer.headers
    assert raw.post("/mcp", json=LIST).status_code == 404


@pytest.mark.requirement("EV-CONN-poll", "EV-WORK-submit", "EV-WORK-follow")
async def test_a_submission_returns_at_once_with_the_id_that_is_polled(server: Running) -> None:
    started = time.monotonic()
    job = await submitted(server, "polled", attempts=10)
    assert time.monotonic() - started < 5
    assert job["job_id"].startswith("job_")
    assert (job["status"], job["final"]) == ("pending", False)
    seen = await followed(server, job["job_id"])
    assert len(seen) > 2
    assert (seen[-1]["status"], seen[-1]["score"]) == ("completed", 1.0)


@pytest.mark.requirement("EV-SAFE-one_call", "EV-SAFE-batch", "G-MCP-20.29")
@pytest.mark.parametrize("before", ["", " \n\t", "\ufeff"])
@pytest.mark.parametrize("era", [{}, {"MCP-Protocol-Version": "2026-07-28"}])
def test_a_batch_is_refused_and_none_of_its_calls_runs(raw: httpx2.Client, before: str, era: dict[str, str]) -> None:
    arguments = {"dataset": "demo/mini@1", "request_id": "batch", "max_cost_usd": 1}
    calls = [tool_call(number, "envloop_job_submit", **arguments) for number in (1, 2)]
    jobs = raw.get("/v1/job").json()["items"]
    for batch in (calls, calls[:1], []):
        content = (before + json.dumps(batch)).encode()
        answer = raw.post("/v1/mcp", content=content, headers={"Content-Type": "application/json", **era})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
    assert raw.get("/v1/job").json()["items"] == jobs


# Rights


@pytest.mark.requirement(
    "EV-NEED-datasets_list", "EV-NEED-dataset_get", "EV-NEED-job_submit", "EV-NEED-job_status", "EV-NEED-job_result",
    "EV-NEED-job_stop", "EV-NEED-trial_result", "EV-SAFE-denied",
)  # fmt: skip
@pytest.mark.parametrize(("tool", "right"), NEEDS.items())
async def test_each_tool_needs_its_capability_and_no_other(server: Running, tool: str, right: str) -> None:
    without = await new_key(server, rights=PROJECT_AUTOMATION - {right})
    alone = await new_key(server, rights={right})
    refused = await call(server, tool, without)
    assert (refused["code"], refused["status"], refused["missing_capability"]) == ("ACCESS_DENIED", 403, right)
    arguments: dict[str, Any] = {
        "envloop_dataset_get": {"name": "demo/mini"},
        "envloop_job_submit": {"dataset": "tests/hello-world@1", "request_id": "rights", "max_cost_usd": 1},
        "envloop_trial_result": {"trial_id": "trial_none"},
    }.get(tool, {"job_id": "job_none"} if "job" in tool else {})
    answer = await call(server, tool, alone, **arguments)
    assert answer.get("code") in {None, "JOB_NOT_FOUND", "TRIAL_NOT_FOUND"}


@pytest.mark.requirement("EV-KEY-read_only_submits")
async def test_a_read_only_key_reads_and_cannot_submit_or_stop(server: Running) -> None:
    key = await new_key(server, "Read only")
    assert (await call(server, "envloop_dataset_get", key, name="demo/mini"))["name"] == "demo/mini"
    jobs = len(await jobs_of(server))
    for tool, arguments in (
        ("envloop_job_submit", {"dataset": "demo/mini@1", "request_id": "forbidden", "max_cost_usd": 1}),
        ("envloop_job_submit", {"nonsense": True}),
        ("envloop_job_stop", {"job_id": "job_none"}),
    ):
        refused = await call(server, tool, key, **arguments)
        assert (refused["code"], refused["missing_capability"]) == ("ACCESS_DENIED", NEEDS[tool])
    assert len(await jobs_of(server)) == jobs


async def jobs_of(server: Running) -> list[dict[str, Any]]:
    with server.http() as http:
        return http.get("/v1/job?limit=100").json()["items"]


# Datasets


@pytest.mark.requirement(
    "EV-TOOL-datasets_list", "EV-LIST-name", "EV-LIST-type", "EV-LIST-versions", "EV-LIST-visibility",
    "EV-LIST-splits",
)  # fmt: skip
async def test_each_listed_dataset_has_name_type_versions_visibility_and_splits(server: Running) -> None:
    listed = await call(server, "envloop_datasets_list")
    shown = {
        item["name"]: (item["type"], item["versions"], item["visibility"], item["splits"]) for item in listed["items"]
    }
    assert shown == {
        "demo/mini": ("environment", ["1"], "public", ["dev", "test"]),
        "tests/hello-world": ("environment", ["1"], "public", []),
    }


@pytest.mark.requirement(
    "EV-TOOL-dataset_get", "EV-GET-revision", "EV-GET-name", "EV-GET-digest", "EV-GET-task_ref", "EV-GET-split",
    "EV-GET-no_files", "EV-ARG-task_ref",
)  # fmt: skip
async def test_a_dataset_has_its_versions_and_a_version_a_page_of_its_tasks(server: Running) -> None:
    whole = await call(server, "envloop_dataset_get", name="demo/mini")
    assert [item["version"] for item in whole["versions"]["items"]] == ["1"]
    first = await call(server, "envloop_dataset_get", name="demo/mini", version="1", limit=4)
    rest = await call(
        server, "envloop_dataset_get", name="demo/mini", version="1", limit=4, cursor=first["tasks"]["next_cursor"]
    )
    tasks = [*first["tasks"]["items"], *rest["tasks"]["items"]]
    assert first["revision"] == whole["versions"]["items"][0]["revision"]
    assert [task["name"] for task in tasks] == [f"demo/{name}" for name in TASKS]
    assert {task["split"] for task in tasks} == {"dev", "test"}
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", task["digest"]) for task in tasks)
    job = await call(
        server, "envloop_job_submit", task_ref=tasks[2]["task_ref"], request_id="by task_ref", max_cost_usd=1
    )
    assert (job["total_tasks"], job["selection"]["task_id"]) == (1, "greeting")
    assert (await followed(server, job["job_id"]))[-1]["score"] == 1.0
    text = json.dumps([whole, first, rest])
    for path in ("instruction.md", "tests/test.sh", "solution/solve.sh", "environment/Dockerfile", "task.toml"):
        content = files("tollbar.app").joinpath("demo", "mini", "order-report", path).read_text()
        assert json.dumps(content)[1:40] not in text, path
    assert not {"files", "manifest", "instruction"} & set(first)
    assert not {"files", "manifest", "instruction"} & set(tasks[0])


# Jobs and Trials


@pytest.mark.requirement(
    "EV-TOOL-job_submit", "EV-TOOL-job_status", "EV-STATUS-status", "EV-STATUS-phase", "EV-STATUS-scores",
    "EV-STATUS-counts",
)  # fmt: skip
async def test_the_status_has_status_phase_scores_so_far_and_counts(server: Running) -> None:
    job = await submitted(server, "status", attempts=20)
    seen = await followed(server, job["job_id"])
    assert {answer["status"] for answer in seen} >= {"running", "completed"}
    assert {answer["phase"] for answer in seen} <= {"queued", "preparing", "running", "scoring", "done"}
    under_way = [answer for answer in seen if 0 < answer["n_scored"] < answer["n_total"]]
    assert under_way, "scores are there before the end"
    assert all((answer["score"], answer["pass"]) == (1.0, 1.0) for answer in under_way)
    for answer in seen:
        counts = answer["trial_counts"]
        assert counts["scored"] == answer["n_scored"] == counts["succeeded"]
        assert counts["total"] == answer["n_total"] == 120
        assert sum(counts.values()) == counts["total"] * 2 + counts["scored"] == 240 + counts["scored"]


@pytest.mark.requirement(
    "EV-TOOL-job_result", "EV-RESULT-score", "EV-RESULT-pass", "EV-RESULT-pass@k", "EV-RESULT-pass^k",
    "EV-RESULT-budget", "EV-RESULT-cost", "EV-RESULT-trials", "EV-CAP-shows", "EV-TOOL-trial_result",
    "EV-TRIAL-status", "EV-TRIAL-reward", "EV-TRIAL-structured", "EV-TRIAL-artifacts", "G-EVAL-18.13",
)  # fmt: skip
async def test_the_result_has_scores_budget_cost_and_trials_with_their_rewards(server: Running) -> None:
    job = await submitted(server, "result", attempts=4, runner="envhub/metered@main", max_cost_usd="7.5")
    await followed(server, job["job_id"])
    result = await call(server, "envloop_job_result", job_id=job["job_id"], trials_limit=100)
    assert (result["score"], result["pass"]) == (1.0, 1.0)
    assert result["pass@k"] == result["pass^k"] == {"1": 1.0, "2": 1.0, "3": 1.0, "4": 1.0}
    assert (result["budget"]["max_cost_usd"], result["budget"]["reserved_usd"]) == ("7.5", "0")
    assert 0 < float(result["cost"]["total_usd"]) == float(result["budget"]["spent_usd"]) < 7.5
    trials = result["trials"]["items"]
    assert [(trial["task_id"], trial["attempt"]) for trial in trials] == [
        (task, attempt) for task in TASKS for attempt in (1, 2, 3, 4)
    ]
    assert {trial["reward"] for trial in trials} == {1.0}
    chosen = next(trial for trial in trials if trial["task_id"] == "order-report")
    one = await call(server, "envloop_trial_result", trial_id=chosen["trial_id"])
    assert (one["status"], one["reward"]) == ("succeeded", 1.0)
    assert one["structured_result"]["dimensions"] == {"correctness": 1.0, "format": 1.0}
    assert one["structured_result"]["composite"] == 1.0
    outputs = [item for item in one["artifacts"]["items"] if item["kind"] == "output"]
    assert [(item["name"], item["state"]) for item in outputs] == [("app/report.txt", "available")]


@pytest.mark.requirement("EV-TOOL-job_stop")
async def test_the_stop_tool_stops_a_job(server: Running) -> None:
    job = await submitted(server, "stopped", attempts=100)
    stopped = await call(server, "envloop_job_stop", job_id=job["job_id"])
    assert stopped["status"] in {"stopping", "cancelled"}
    ended = (await followed(server, job["job_id"]))[-1]
    assert (ended["status"], ended["error"]) == ("cancelled", None)
    assert ended["trial_counts"]["cancelled"] > 500
