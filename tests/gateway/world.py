"""A gateway on a real database and a real socket, before a provider that a test starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx2
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.app.listeners import Listeners, loopback
from tollbar.budget import service as budget
from tollbar.budget.calls import CallPurpose
from tollbar.budget.schemas import Chain, Level
from tollbar.db.session import Database
from tollbar.gateway import asks, keys
from tollbar.gateway.app import Gateway
from tollbar.gateway.books import Books
from tollbar.gateway.dialects import route
from tollbar.gateway.dispatch import Dispatch
from tollbar.gateway.keys import IssuedKey, KeyOrder
from tollbar.gateway.metering import Metering
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import WELL_KNOWN, Provider, Providers, SecretRef, from_environment
from tollbar.gateway.relay import Drains, Relays, upstream_client
from tollbar.gateway.scripted import Facts, Script, answer, load
from tollbar.gateway.scripts import Scripts, read_scripts
from tollbar.kit.clock import Clock, SystemClock
from tollbar.kit.ids import new_id

REAL_KEY = "sk-real-provider-key-0123456789"
MODELS = {"gpt-5-mini": "openai", "claude-sonnet-4-5": "anthropic", "gemini-2.5-pro": "google"}


@dataclass
class StandIn:
    """A provider on loopback that answers from a script, over HTTP like a real one; it keeps what it was asked."""

    script: Script
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list[Any])
    url: str = ""
    hold: asyncio.Event | None = None
    """Answers wait for it."""
    instead: dict[str, Any] | None = None
    """A document that every call is answered with, whatever the script says."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[StandIn]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._one(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        path, _, query = target.partition("?")
        body = json.loads(raw)
        self.asked.append((target, headers, body))
        if self.hold is not None:
            await self.hold.wait()
        found = route(method, path, query, headers)
        assert found is not None, target
        if self.instead is not None:
            said = json.dumps(self.instead).encode()
            head_of = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(said)}\r\n\r\n"
            writer.write(head_of.encode() + said)
            await writer.drain()
            return
        made = answer(self.script, asks.read(found, body, len(raw)), body, Facts(), created=1)
        lines = [f"HTTP/1.1 {made.status} X", "transfer-encoding: chunked", "set-cookie: a=b"]
        lines += [f"{name}: {value}" for name, value in made.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        sent = 0
        for index, chunk in enumerate(made.chunks):
            if index == len(made.chunks) - 1 and made.stall_s:
                await asyncio.sleep(made.stall_s)
            elif index and made.delay_ms:
                await asyncio.sleep(made.delay_ms / 1000)
            if made.reset_after_bytes is not None and sent + len(chunk) > made.reset_after_bytes:
                writer.transport.abort()
                raise ConnectionResetError
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
            sent += len(chunk)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def script(turns: str, priced_as: str = "openai:gpt-5-mini") -> Script:
    """Returns a script with these turns in one case."""
    head = f'schema = "tollbar.script/1"\nname = "t"\nversion = 1\npriced_as = "{priced_as}"\n[[case]]\n'
    return load(head + turns)


@dataclass
class Stops:
    """What stands above the budgets: it remembers what was stopped."""

    subjects: list[str] = field(default_factory=list[str])

    async def __call__(self, session: AsyncSession, subject: str, stop: Any) -> None:
        self.subjects.append(subject)
        if stop is not None:
            await stop()


@dataclass
class World:
    """A gateway, its budget, and ways to ask it."""

    database: Database
    gateway: Gateway
    listeners: Listeners
    stops: Stops
    clock: Clock
    project_id: str = "prj_1"

    async def budget(self, cap_pusd: int | None, level: Level = Level.JOB) -> str:
        async with self.database.transaction() as session:
            return await budget.open_budget(session, level, new_id("x"), cap_pusd)

    async def key(
        self,
        *budgets: str,
        subject: str = "trial:t:1",
        routes: Mapping[str, str] = MODELS,
        expires_in_s: float = 3600,
        **facts: Any,
    ) -> IssuedKey:
        order = KeyOrder(
            workspace_id="ws_1",
            subject=subject,
            purpose=CallPurpose.AGENT,
            chain=Chain(self.project_id, budgets),
            routes=routes,
            expires_at=self.clock.now() + timedelta(seconds=expires_in_s),
            **facts,
        )
        async with self.database.transaction() as session:
            return await keys.issue(session, order)

    @asynccontextmanager
    async def client(self, key: IssuedKey | None, subject: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """Yields a client of a listener of that subject; the key goes where OpenAI's clients put it."""
        headers = {} if key is None else {"authorization": f"Bearer {key.secret}"}
        with loopback() as listening:
            serving = asyncio.create_task(self.listeners.serve(listening, subject))
            base = f"http://127.0.0.1:{listening.getsockname()[1]}"
            try:
                async with httpx2.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=30) as client:
                    yield client
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def rows(self) -> list[dict[str, Any]]:
        """Returns the model calls of the ledger, the oldest first."""
        async with self.database.transaction() as session:
            found = await session.execute(
                text("SELECT * FROM ledger_call WHERE kind = 'model' ORDER BY created_at, id")
            )
            return [dict(row) for row in found.mappings()]

    async def money(self, budget_id: str) -> tuple[int, int]:
        """Returns settled and reserved pUSD of a budget."""
        async with self.database.transaction() as session:
            row = (
                await session.execute(
                    text("SELECT settled_pusd, reserved_pusd FROM budget WHERE id = :id"), {"id": budget_id}
                )
            ).one()
            return row[0], row[1]


@asynccontextmanager
async def world_of(
    database: Database,
    book: PriceBook,
    url: str,
    *,
    scripts: Mapping[str, Script] | None = None,
    drains: Drains | None = None,
    clock: Clock | None = None,
    worker_id: str = "w",
    whole_call_s: float = 900,
    **changes: Any,
) -> AsyncIterator[World]:
    """Yields a gateway before the provider at `url`; `changes` are members of every provider's record."""
    clock, stops = clock or SystemClock(), Stops()
    metering = Metering(database, clock, worker_id, Books(database, book), stops, whole_call_s)
    packaged = read_scripts(None)
    library = Scripts({**packaged.by_name, **(scripts or {})})
    async with upstream_client() as client:
        relays = Relays(client, drains or Drains(), whole_call_s)
        dispatch = Dispatch(metering, providers_at(url, **changes), library, relays, secret_of)
        gateway = Gateway(dispatch)
        try:
            yield World(database, gateway, Listeners(gateway), stops, clock)
        finally:
            await gateway.close(0)


def providers_at(url: str, **changes: Any) -> Providers:
    """Returns the well-known providers, all of them at one address."""
    environ = {known.variables[0]: REAL_KEY for known in WELL_KNOWN.values()}
    records = [
        Provider(**{**vars(record), "base_url": url, "secret": SecretRef(SecretStr(REAL_KEY)), **changes})
        for record in from_environment(environ)
    ]
    return Providers.of(records)


async def secret_of(provider: Provider, workspace_id: str) -> str | None:
    return None if provider.secret.value is None else provider.secret.value.get_secret_value()
