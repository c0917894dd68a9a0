"""A server without a socket, spoken to by the official client in both protocol eras and by plain requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from fastapi import FastAPI
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from tests.mcp.world import AUTOMATION, ORIGIN, World, build_world, http_client, running
from tests.support import ManualClock

from mcp import Client
from tollbar.db.session import Database
from tollbar.jobs import store as jobs_store
from tollbar.jobs.states import TrialState
from tollbar.kit.ids import new_id

URL = f"{ORIGIN}/v1/mcp"
ERAS = ("auto", "legacy")
MODERN = "2026-07-28"


@pytest.fixture
async def world(database: Database, clock: ManualClock, tmp_path: Path) -> World:
    return await build_world(database, clock, tmp_path)


@pytest.fixture
async def app(world: World) -> AsyncIterator[FastAPI]:
    async with running(world.app()) as running_app:
        yield running_app


@pytest.fixture
def log_lines() -> Iterator[list[dict[str, Any]]]:
    """What was logged, as dictionaries."""
    with structlog.testing.capture_logs() as lines:
        yield lines


@asynccontextmanager
async def connected(app: FastAPI, secret: str, era: str, **headers: str) -> AsyncIterator[Client]:
    """Yields the official client with a key; `era` is `auto` (2026-07-28) or `legacy` (the handshake)."""
    async with (
        http_client(app, secret, headers=headers) as http,
        Client(streamable_http_client(URL, http_client=http), mode=era) as client,
    ):
        yield client


def body_of(result: CallToolResult) -> dict[str, Any]:
    """Returns the object of a result; its text and its structured content must be the same."""
    assert len(result.content) == 1
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def call(app: FastAPI, world: World) -> Call:
    """Calls a tool in the era and with the key of that name; returns its object, errors included."""

    async def run(tool: str, /, key: str = AUTOMATION, era: str = "auto", **arguments: Any) -> dict[str, Any]:
        async with connected(app, world.secrets[key], era) as client:
            return body_of(await client.call_tool(tool, arguments))

    return run


def rpc(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def modern(method: str, params: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns body and headers of a request as the revision of 2026 has it."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if params and "name" in params:
        headers["Mcp-Name"] = params["name"]
    return rpc(method, {**(params or {}), "_meta": meta}), headers


def request_of(era: str, method: str, params: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    return modern(method, params) if era == "auto" else (rpc(method, params), {})


def json_text(body: Any) -> dict[str, Any]:
    """Returns a body as the arguments of a plain request; unlike the client's own it may hold NaN."""
    return {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}


def refusal(answer: httpx2.Response) -> dict[str, Any]:
    """Returns the JSON-RPC error of an answer whose form is checked on the way."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert (body["jsonrpc"], "result" in body) == ("2.0", False)
    assert body["error"]["data"]["status"] == answer.status_code
    return body["error"]


async def ended_trials(world: World, job_id: str, rewards: dict[str, list[float | str]]) -> None:
    """Ends a Job's Trials as a worker does: per task a list of rewards, or of reasons where there is none."""
    now, seq = world.clock.now(), 0
    async with world.database.transaction() as session:
        tasks = {task.task_id: task for task in await jobs_store.tasks(session, job_id)}
        for task_id, outcomes in rewards.items():
            for attempt, outcome in enumerate(outcomes, start=1):
                task, scored = tasks[task_id], not isinstance(outcome, str)
                seq += 1
                state = TrialState.SUCCEEDED if scored else TrialState.FAILED
                row = {
                    "id": new_id("trial"), "job_id": job_id, "project_id": world.actor.project_id, "seq": seq,
                    "task_seq": task.seq, "task_name": task.name, "task_id": task_id, "task_digest": task.digest,
                    "attempt": attempt, "state": state.value, "reward": outcome if scored else None,
                    "passed": outcome >= task.threshold if scored else None, "reason": None if scored else outcome,
                    "agent_outcome": "completed" if scored else None, "created_at": now, "started_at": now,
                    "finished_at": now,
                }  # fmt: skip
                await jobs_store.add_trials(session, [row])
                await jobs_store.add_to_task(
                    session, job_id, task.seq, state, row["reward"], passed=bool(row["passed"])
                )
        await jobs_store.mark_expanded(session, job_id)
