"""The gateway as a worker has it, on a database of its own, and the bare reserve and settle beside it.

Run as a program: it prints its address, a key, and then for each line `bare SECONDS` how many pairs of reserve and
settle a second the same process does at 64 at once, nothing else in between.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.app.listeners import Listeners, loopback
from tollbar.budget import calls
from tollbar.budget import service as budget
from tollbar.budget.calls import Call, CallPurpose
from tollbar.budget.schemas import Chain, Level
from tollbar.db import migrate
from tollbar.db.embedded import EmbeddedServer
from tollbar.db.session import Database, open_database
from tollbar.gateway import keys
from tollbar.gateway.app import Gateway
from tollbar.gateway.books import Books
from tollbar.gateway.dispatch import Dispatch
from tollbar.gateway.keys import IssuedKey, KeyOrder
from tollbar.gateway.metering import Metering
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import DIALECTS, Provider, Providers, SecretRef
from tollbar.gateway.relay import Relays, upstream_client
from tollbar.gateway.scripts import read_scripts
from tollbar.gateway.traits import Kind, Traits
from tollbar.kit.clock import SystemClock
from tollbar.kit.ids import new_id

AT_ONCE: Final = 64
_CAP: Final = 10**15
_POOL: Final = 20
_CLOCK: Final = SystemClock()


class _Worst:
    """A call whose bound is known and is not lowered."""

    asked = least = 1

    def worst(self, limit: int) -> int:
        del limit
        return 10**9


async def _chain(database: Database) -> Chain:
    async with database.transaction() as session:
        job = await budget.open_budget(session, Level.JOB, new_id("job"), _CAP)
        return Chain("prj_1", (job,))


async def _key(database: Database, chain: Chain) -> IssuedKey:
    order = KeyOrder(
        workspace_id="ws_1",
        subject="trial:t:1",
        purpose=CallPurpose.AGENT,
        chain=chain,
        routes={"gpt-5-mini": "openai"},
        expires_at=_CLOCK.now() + timedelta(hours=1),
    )
    async with database.transaction() as session:
        return await keys.issue(session, order)


async def _bare(database: Database, chain: Chain, seconds: float) -> float:
    """Returns how many calls a second are reserved, marked as sent, and settled."""
    done, started = 0, time.perf_counter()

    async def pairs() -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            call = Call(
                id=new_id("call"), chain=chain, day=_CLOCK.now().date(), subject="trial:b:1",
                purpose=CallPurpose.AGENT, worker_id="w", sku="openai:gpt-5-mini", life_s=60,
            )  # fmt: skip
            await calls.reserve_patiently(database, _CLOCK, call, _Worst())
            async with database.transaction() as session:
                await calls.mark_sent(session, call.id)
            async with database.transaction() as session:
                await calls.settle(session, call.id, 10**8, {})
            done += 1

    await asyncio.gather(*(pairs() for _ in range(AT_ONCE)))
    return done / (time.perf_counter() - started)


async def _stop(session: AsyncSession, subject: str, stop: object) -> None:
    raise AssertionError(subject, stop, session)


async def _secret(provider: Provider, workspace_id: str) -> str | None:
    del workspace_id
    assert provider.secret.value is not None
    return provider.secret.value.get_secret_value()


async def _serve(folder: Path, upstream: str) -> None:
    server = await EmbeddedServer.start(folder)
    await asyncio.to_thread(migrate.upgrade, server.url)
    database = open_database(server.url, pool_size=_POOL, may_restart=False)
    traits = Traits(Kind.OPENAI, "openai")
    provider = Provider(
        "openai", upstream, traits, DIALECTS[Kind.OPENAI], SecretRef(value=SecretStr("sk-not-a-key-of-anybody"))
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        stack.push_async_callback(database.close)
        client = await stack.enter_async_context(upstream_client())
        metering = Metering(database, _CLOCK, "w", Books(database, PriceBook()), _stop)
        dispatch = Dispatch(metering, Providers.of([provider]), read_scripts(None), Relays(client), _secret)
        gateway = Gateway(dispatch)
        stack.push_async_callback(gateway.close, 5)
        chain = await _chain(database)
        key = await _key(database, chain)
        listening = stack.enter_context(loopback())
        serving = asyncio.create_task(Listeners(gateway).serve(listening, "trial:t:1"))
        stack.callback(serving.cancel)
        _tell({"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "key": key.secret})
        while (line := await asyncio.to_thread(sys.stdin.readline)).startswith("bare"):
            _tell({"per_second": await _bare(database, await _chain(database), float(line.split()[1]))})


def _tell(facts: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder:
        asyncio.run(_serve(Path(folder), sys.argv[1]))
