"""Keys with chosen rights for a running server, and the official MCP client with such a key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from sqlalchemy import text

from mcp import Client
from tests.e2e.conftest import Running
from tollbar.access import service as access
from tollbar.db.datadir import read_server_facts
from tollbar.db.session import open_database
from tollbar.kit.clock import SystemClock


async def new_key(server: Running, preset: str = "Project automation", rights: Collection[str] | None = None) -> str:
    """Makes a key of the first project, as its owner does, and returns its secret; `rights` replace the preset's."""
    facts = read_server_facts(server.data_dir)
    assert facts is not None
    database = open_database(facts["database_url"])
    async with database.transaction() as session:
        clock = SystemClock()
        actor = await access.ensure_first_project(session, clock)
        key = await access.create_key(session, actor, preset=preset, name="test", clock=clock)
        if rights is not None:
            change = text("UPDATE api_key SET capabilities = :rights WHERE id = :id")
            await session.execute(change, {"rights": list(rights), "id": key.key_id})
    await database.close()
    return key.secret


@asynccontextmanager
async def connected(server: Running, key: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    """Yields a client of the evaluation tools; `mode` is `auto` (2026-07-28) or `legacy` (the handshake)."""
    headers = {"Authorization": f"Bearer {key or server.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(f"{server.url}/v1/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def call(server: Running, tool: str, key: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Calls one tool and returns its object, an error's too; text and structured content must be the same."""
    async with connected(server, key) as client:
        result = await client.call_tool(tool, arguments)
    assert json.loads(result.content[0].text) == result.structured_content
    assert result.is_error == ("code" in result.structured_content)
    return result.structured_content
