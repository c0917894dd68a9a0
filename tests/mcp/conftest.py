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
