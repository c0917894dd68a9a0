"""What the ledger guards: no reservation, no call; a reservation that ended, no call; a row for every attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from tests.gateway.world import StandIn, World, script, world_of

from tollbar.budget import calls
from tollbar.db.session import Database
from tollbar.gateway import keys
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import Provider

USD = 10**12
CHAT: dict[str, Any] = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
TURN = '\n[[case.turn]]\ntext = "All done."\nusage = { input = 1000, cached = 400, output = 50 }\n'
COST = 600 * 250_000 + 400 * 25_000 + 50 * 2_000_000


@pytest.fixture
async def provider() -> AsyncIterator[StandIn]:
    async with StandIn(script(TURN)).serving() as made:
        yield made


@pytest.fixture
async def world(database: Database, book: PriceBook, provider: StandIn) -> AsyncIterator[World]:
    async with world_of(database, book, provider.url) as made:
        yield made


@pytest.mark.requirement("G-GW-GL13", "G-TEAM-C6")
async def test_a_reservation_that_cannot_be_written_means_no_call(world: World, provider: StandIn) -> None:
    job = await world.budget(USD)
    async with world.client(await world.key(job)) as client:
        async with world.database.transaction() as session:
            await session.execute(text("ALTER TABLE ledger_call RENAME TO ledger_call_away"))
        refused = await client.post("/v1/chat/completions", json=CHAT)
        async with world.database.transaction() as session:
            await session.execute(text("ALTER TABLE ledger_call_away RENAME TO ledger_call"))
        assert (refused.status_code, refused.headers["x-tollbar-code"]) == (503, "LEDGER_UNAVAILABLE")
        assert provider.asked == []
        assert await world.money(job) == (0, 0)
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert await world.money(job) == (COST, 0)


@pytest.mark.requirement("G-GW-GL29")
async def test_a_worker_that_slept_past_its_reservation_sends_nothing(world: World, provider: StandIn) -> None:
    job, ready = await world.budget(USD), world.gateway.dispatch.secret_of

    async def slept(record: Provider, workspace_id: str) -> str | None:
        """Stands for a sleep between the reservation and the call: somebody else released it meanwhile."""
        (row,) = await world.rows()
        async with world.database.transaction() as session:
            assert await calls.release(session, row["id"], "expired", {})
        return await ready(record, workspace_id)

    world.gateway.dispatch.secret_of = slept
    async with world.client(await world.key(job)) as client:
        refused = await client.post("/v1/chat/completions", json=CHAT)
    assert (refused.status_code, refused.headers["x-tollbar-code"]) == (503, "LEDGER_UNAVAILABLE")
    assert provider.asked == []
    assert [row["state"] for row in await world.rows()] == ["released"]
    assert await world.money(job) == (0, 0)


@pytest.mark.requirement("G-GW-GL17")
async def test_each_attempt_of_a_client_that_tries_again_is_a_row_of_its_own(
    database: Database, book: PriceBook
) -> None:
    busy = script(TURN.rstrip() + "\nfault = { status = 529 }\n")
    async with StandIn(busy).serving() as provider, world_of(database, book, provider.url) as world:
        job = await world.budget(USD)
        async with world.client(await world.key(job)) as client:
            for _ in range(2):
                assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 529
            provider.script = script(TURN)
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        rows = await world.rows()
        assert [(row["state"], row["outcome"]) for row in rows] == [("released", "http_error")] * 2 + [
            ("settled", "ok")
        ]
        assert len(provider.asked) == len({row["id"] for row in rows}) == 3, "the gateway itself tries nothing again"
        assert await world.money(job) == (COST, 0)


@pytest.mark.requirement("G-GW-GL42")
async def test_a_call_is_clamped_to_what_its_cap_leaves_and_the_ledger_says_so(world: World, provider: StandIn) -> None:
    # (n + 2,048) bytes at 250,000, and 2,000,000 for each token of output: the cap leaves 1,000 of 16,000.
    body = {**CHAT, "max_completion_tokens": 16_000}
    job = await world.budget(3_000_000_000)
    async with world.client(await world.key(job)) as client:
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    (row,) = await world.rows()
    ((_, _, sent),) = provider.asked
    bound = row["input_bound"] * 250_000
    assert row["clamped"] is True
    assert sent["max_completion_tokens"] == (3_000_000_000 - bound) // 2_000_000
    assert row["worst_pusd"] == bound + sent["max_completion_tokens"] * 2_000_000 <= 3_000_000_000
    async with world.database.session() as session:
        assert await session.scalar(text("SELECT clamped_calls FROM budget WHERE id = :id"), {"id": job}) == 1


@pytest.mark.requirement("G-GW-GL4", "G-EVAL-18.24")
async def test_usage_that_contradicts_itself_costs_the_worst_case(world: World, provider: StandIn) -> None:
    contradicting = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 900}, "completion_tokens": 5}
    provider.instead = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": contradicting,
    }
    job = await world.budget(USD)
    async with world.client(await world.key(job)) as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    (row,) = await world.rows()
    assert (row["outcome"], row["cost_pusd"], row["priced"]) == ("unmetered", row["worst_pusd"], False)
    assert row["cost_pusd"] > 0
    assert await world.money(job) == (row["worst_pusd"], 0)


async def test_a_key_that_is_over_is_forgotten_and_a_living_one_is_not(world: World) -> None:
    job = await world.budget(USD)
    await world.key(job, subject="trial:old:1", expires_in_s=-90_000)
    living = await world.key(job)
    async with world.database.transaction() as session:
        assert await keys.forget(session, world.clock.now() - timedelta(days=1)) == 1
    async with world.client(living) as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_a_call_that_cannot_be_sent_gives_back_what_it_reserved(world: World, provider: StandIn) -> None:
    job, ready = await world.budget(USD), world.gateway.dispatch.secret_of

    async def nothing(record: Provider, workspace_id: str) -> str | None:
        raise Refused(Code.MODEL_NOT_ALLOWED, "the vault has no secret ACME")

    async def broken(record: Provider, workspace_id: str) -> str | None:
        raise RuntimeError

    async with world.client(await world.key(job)) as client:
        for secret_of, status in ((nothing, 400), (broken, 500), (ready, 200)):
            world.gateway.dispatch.secret_of = secret_of
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == status
    assert [(row["state"], row["outcome"]) for row in await world.rows()] == [
        ("released", "not_sent"), ("released", "not_sent"), ("settled", "ok"),
    ]  # fmt: skip
    assert len(provider.asked) == 1
    assert await world.money(job) == (COST, 0)
