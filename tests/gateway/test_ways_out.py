"""How a provider is reached: through its own proxy, by its own certificates, and by nobody else's."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.certificates import self_signed
from tests.gateway.world import world_of

from tollbar.db.session import Database
from tollbar.gateway.prices import PriceBook

CHAT: dict[str, Any] = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
ANSWER = json.dumps(
    {
        "id": "x", "object": "chat.completion", "created": 1, "model": "gpt-5-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
).encode()  # fmt: skip


@asynccontextmanager
async def answering(lines: list[str], context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yields the port of a server that notes the first line of each request and answers it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length:")[2].partition("\r\n")[0])
        await reader.readexactly(length)
        lines.append(head.partition("\r\n")[0])
        head_of = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(ANSWER)}\r\n\r\n"
        writer.write(head_of.encode() + ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def status(database: Database, book: PriceBook, url: str, **record: Any) -> int:
    async with world_of(database, book, url, **record) as world:
        key = await world.key(await world.budget(10**12))
        async with world.client(key) as client:
            return (await client.post("/v1/chat/completions", json=CHAT)).status_code


async def test_a_provider_is_asked_through_its_own_proxy(database: Database, book: PriceBook) -> None:
    lines: list[str] = []
    async with answering(lines) as port:
        proxy = f"http://127.0.0.1:{port}"
        assert await status(database, book, "http://llm.invalid/v1", proxy=proxy) == 200
    assert lines == ["POST http://llm.invalid/v1/chat/completions HTTP/1.1"]


async def test_a_provider_is_trusted_by_its_own_certificates_and_not_without_them(
    database: Database, book: PriceBook, tmp_path: Path
) -> None:
    both = self_signed(tmp_path / "both.pem", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    lines: list[str] = []
    async with answering(lines, context) as port:
        url = f"https://localhost:{port}/v1"
        assert await status(database, book, url) == 502
        assert lines == []
        assert await status(database, book, url, ca_file=str(both)) == 200
    assert lines == ["POST /v1/chat/completions HTTP/1.1"]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
async def test_the_servers_own_environment_sends_no_call_elsewhere(
    database: Database, book: PriceBook, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    lines: list[str] = []
    async with answering(lines) as port:
        assert await status(database, book, f"http://127.0.0.1:{port}") == 200
    assert len(lines) == 1
