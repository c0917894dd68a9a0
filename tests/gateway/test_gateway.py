"""Calls through the gateway: metered, passed on byte for byte, refused in the client's own form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import text
from tests.gateway.world import MODELS, REAL_KEY, StandIn, World, script, world_of
from tests.support import eventually

from tollbar.budget.schemas import Level
from tollbar.db.session import Database
from tollbar.gateway import keys
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.relay import Drains

USD = 10**12
TURN = """
  [[case.turn]]
  text = "All done."
  usage = { input = 1000, cached = 400, output = 50 }
"""
COST_OPENAI = 260_000_000
"""600 x 250,000 + 400 x 25,000 + 50 x 2,000,000."""
COST_ANTHROPIC = 600 * 3_000_000 + 400 * 300_000 + 50 * 15_000_000
COST_GEMINI = 600 * 1_250_000 + 400 * 125_000 + 50 * 10_000_000
CHAT: dict[str, Any] = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
RESPONSES: dict[str, Any] = {"model": "gpt-5-mini", "input": "Hi"}
MESSAGES: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 500, **{k: CHAT[k] for k in ("messages",)}}
GEMINI: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
PATHS = {
    "chat": ("/v1/chat/completions", CHAT, COST_OPENAI),
    "responses": ("/v1/responses", RESPONSES, COST_OPENAI),
    "messages": ("/v1/messages", MESSAGES, COST_ANTHROPIC),
    "gemini": ("/v1beta/models/gemini-2.5-pro:generateContent", GEMINI, COST_GEMINI),
}


@pytest.fixture
async def provider() -> AsyncIterator[StandIn]:
    async with StandIn(script(TURN)).serving() as made:
        yield made


@pytest.fixture
async def world(database: Database, book: PriceBook, provider: StandIn) -> AsyncIterator[World]:
    async with world_of(database, book, provider.url) as made:
        yield made


def streamed(dialect: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    path = PATHS[dialect][0]
    if dialect == "gemini":
        return path.replace("generateContent", "streamGenerateContent") + "?alt=sse", body
    return path, {**body, "stream": True}


@pytest.mark.requirement("G-GW-GL3", "G-GW-GL9", "G-GW-GL19")
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
async def test_a_call_costs_what_its_usage_says_streamed_or_not(
    world: World, provider: StandIn, dialect: str, is_streamed: bool
) -> None:
    job = await world.budget(USD)
    path, body, cost = PATHS[dialect]
    if is_streamed:
        path, body = streamed(dialect, body)
    async with world.client(await world.key(job)) as client:
        found = await client.post(path, json=body)
    assert found.status_code == 200, found.text
    assert is_streamed or "All done." in found.text
    (row,) = await world.rows()
    assert (row["state"], row["outcome"], row["cost_pusd"]) == ("settled", "ok", cost)
    assert (row["dialect"], row["streamed"], row["subject"]) == (dialect, is_streamed, "trial:t:1")
    assert row["worst_pusd"] > cost
    assert row["price_snapshot"].startswith("genai-prices/")
    assert await world.money(job) == (cost, 0)
    assert "set-cookie" not in found.headers
    assert world.stops.subjects == []


@pytest.mark.requirement("G-GW-GL25")
async def test_the_provider_sees_the_real_key_and_nothing_of_the_client_that_says_who_pays(
    world: World, provider: StandIn
) -> None:
    key = await world.key(await world.budget(USD))
    sent = {"openai-organization": "org-1", "cookie": "a=b", "x-stainless-lang": "python", "user-agent": "test/1"}
    async with world.client(key) as client:
        await client.post("/v1/chat/completions", json=CHAT, headers=sent)
        answered = await client.post(
            "/v1/messages?beta=true&key=x", json=MESSAGES, headers={"x-api-key": key.secret, "authorization": ""}
        )
    assert answered.status_code == 200
    (_, openai, chat), (target, anthropic, _) = provider.asked
    assert openai["authorization"] == f"Bearer {REAL_KEY}"
    assert (openai["x-stainless-lang"], openai["user-agent"], openai["accept-encoding"]) == (
        "python", "test/1", "identity",
    )  # fmt: skip
    assert not {"openai-organization", "cookie"} & set(openai)
    assert (anthropic["x-api-key"], anthropic.get("authorization")) == (REAL_KEY, None)
    assert target == "/v1/messages?beta=true"
    assert chat["max_completion_tokens"] == 16_384
    assert chat["service_tier"] == "default"
    assert key.secret not in repr(provider.asked)


@pytest.mark.requirement("G-GW-GL21")
async def test_a_key_works_only_through_the_listener_of_its_subject_and_only_until_its_end(world: World) -> None:
    job = await world.budget(USD)
    key, other = await world.key(job), await world.key(job, subject="trial:u:1")
    async with world.client(key, subject="trial:t:1") as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        foreign = await client.post(
            "/v1/chat/completions", json=CHAT, headers={"authorization": f"Bearer {other.secret}"}
        )
        nothing = await client.post("/v1/messages", json=MESSAGES, headers={"authorization": "Bearer sk-x"})
        async with world.database.transaction() as session:
            assert await keys.revoke(session, ["trial:t:1"]) == 1
        over = await client.post("/v1/chat/completions", json=CHAT)
    assert [one.status_code for one in (foreign, nothing, over)] == [401, 401, 401]
    assert nothing.json()["error"]["message"].startswith("KEY_INVALID: ")
    assert nothing.json()["type"] == "error"
    assert {one.headers["x-tollbar-code"] for one in (foreign, nothing, over)} == {"KEY_INVALID"}
    assert {one.headers["x-should-retry"] for one in (foreign, nothing, over)} == {"false"}
    assert len(await world.rows()) == 1


async def test_an_expired_key_is_no_key(world: World) -> None:
    key = await world.key(await world.budget(USD), expires_in_s=-1)
    async with world.client(key) as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 401


async def test_what_is_no_route_is_404_and_what_is_free_costs_nothing(world: World, provider: StandIn) -> None:
    key = await world.key(await world.budget(USD))
    async with world.client(key) as client:
        assert (await client.head("/")).status_code == 200
        lost = [await client.post(path, json={}) for path in ("/v1/embeddings", "/v1/completions", "/v1/batches")]
        lost.append(await client.get("/v1/responses/resp_1"))
        listed = (await client.get("/v1/models")).json()
    assert [one.status_code for one in lost] == [404] * 4
    assert [one["id"] for one in listed["data"]] == sorted(MODELS)
    assert provider.asked == []
    assert await world.rows() == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"model": "gpt-5-mini", "model": "gpt-99", "messages": []}', 400, "INVALID_REQUEST"),
        (b"not json", 400, "INVALID_REQUEST"),
        (json.dumps({**CHAT, "model": "gpt-99"}).encode(), 400, "MODEL_NOT_ALLOWED"),
        (json.dumps({**CHAT, "web_search_options": {}}).encode(), 400, "REQUEST_UNBOUNDED"),
        (json.dumps({**CHAT, "web_search_options": {"x": 1}}).encode(), 400, "EGRESS_REFUSED"),
    ],
)
@pytest.mark.requirement("G-GW-GL22", "G-GW-GL24")
async def test_a_refused_request_never_reaches_the_provider_and_leaves_the_budget_open(
    world: World, provider: StandIn, body: bytes, status: int, code: str
) -> None:
    job = await world.budget(USD)
    async with world.client(await world.key(job)) as client:
        found = await client.post("/v1/chat/completions", content=body)
        fine = await client.post("/v1/chat/completions", json=CHAT)
    assert (found.status_code, found.headers["x-tollbar-code"]) == (status, code)
    assert found.json()["error"]["message"].startswith(f"{code}: ")
    assert fine.status_code == 200
    assert len(provider.asked) == 1


@pytest.mark.requirement("G-GW-GL41")
async def test_a_cap_below_one_call_stops_at_the_first_and_says_the_numbers(world: World, provider: StandIn) -> None:
    job = await world.budget(1_000)
    async with world.client(await world.key(job)) as client:
        chat = await client.post("/v1/chat/completions", json=CHAT)
        messages = await client.post("/v1/messages", json=MESSAGES)
    assert (chat.status_code, messages.status_code) == (400, 402)
    assert chat.json()["error"]["message"].startswith("BUDGET_EXCEEDED: this call needs at least 0.00")
    assert messages.json()["error"]["type"] == "billing_error"
    assert provider.asked == []
    assert world.stops.subjects == ["trial:t:1"] * 2
    assert await world.money(job) == (0, 0)
    assert {row["state"] for row in await world.rows()} == {"refused"}


@pytest.mark.requirement("G-GW-GL6")
async def test_a_model_without_a_price_is_refused_under_a_cap_and_counted_without_one(
    world: World, provider: StandIn
) -> None:
    provider.script = script(TURN, "openai:gpt-99")
    capped, free = await world.budget(USD), await world.budget(None)
    body = {**CHAT, "model": "gpt-99"}
    routes = {"gpt-99": "openai"}
    async with world.client(await world.key(capped, routes=routes)) as client:
        refused = await client.post("/v1/chat/completions", json=body)
    assert (refused.status_code, refused.headers["x-tollbar-code"]) == (400, "BUDGET_UNMETERED")
    assert (provider.asked, world.stops.subjects) == ([], ["trial:t:1"])
    async with world.client(await world.key(free, routes=routes, subject="trial:f:1")) as client:
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    row = (await world.rows())[-1]
    assert (row["priced"], row["cost_pusd"], row["model_asked"]) == (False, 0, "gpt-99")


async def test_the_scripted_provider_is_metered_like_any_other_and_marked(world: World, provider: StandIn) -> None:
    job = await world.budget(USD)
    key = await world.key(job, routes={"gpt-5-mini": "scripted:hello"})
    async with world.client(key) as client:
        told = await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert "Hello." in "".join(
        choice["delta"].get("content") or ""
        for line in told.text.splitlines()
        if line.startswith("data: {")
        for choice in json.loads(line[6:])["choices"]
    )
    (row,) = await world.rows()
    assert (row["simulated"], row["state"], row["sku"]) == (True, "settled", "scripted:gpt-5-mini")
    assert row["cost_pusd"] > 0
    assert (await world.money(job))[0] == row["cost_pusd"]
    assert provider.asked == []


FAULTS = {
    "{ no_usage = true }": ("settled", "unmetered", "worst", True),
    "{ reset_after_bytes = 20 }": ("settled", "reset", "worst", False),
    "{ status = 429 }": ("released", "http_error", "zero", False),
    "{ status = 529 }": ("released", "http_error", "zero", False),
    "{ status = 504 }": ("settled", "http_gateway", "worst", False),
    "{ bad_json = true }": ("settled", "unmetered", "worst", True),
    "{ usage_over = true }": ("settled", "overrun", "worst", True),
}


@pytest.mark.requirement("G-GW-GL26", "G-GW-GL34", "G-GW-GL7", "G-GW-GL8")
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_goes_wrong_at_the_provider_is_charged_by_what_is_known(
    database: Database, book: PriceBook, fault: str
) -> None:
    state, outcome, cost, stops = FAULTS[fault]
    broken = script(TURN.rstrip() + f"\n  fault = {fault}\n")
    async with StandIn(broken).serving() as provider, world_of(database, book, provider.url) as world:
        job = await world.budget(USD)
        async with world.client(await world.key(job)) as client:
            try:
                await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
            except httpx2.RemoteProtocolError:
                assert "reset" in fault

        async def settled() -> bool:
            return [row["state"] for row in await world.rows()] == [state]

        await eventually(settled)
        (row,) = await world.rows()
        wanted = row["worst_pusd"] if cost == "worst" else 0
        assert (row["outcome"], row["cost_pusd"]) == (outcome, wanted)
        assert (row["overrun_pusd"] > 0) is (outcome == "overrun")
        assert await world.money(job) == (wanted, 0)
        assert bool(world.stops.subjects) is stops


@pytest.mark.requirement("G-GW-GL11")
@pytest.mark.parametrize("most", [64, 0])
async def test_a_client_that_leaves_is_billed_in_full_or_at_worst_where_nobody_may_drain(
    database: Database, book: PriceBook, most: int
) -> None:
    slow = script(TURN.rstrip() + "\n  delay_ms = 30\n  chunk_chars = 2\n")
    async with (
        StandIn(slow).serving() as provider,
        world_of(database, book, provider.url, drains=Drains(most=most)) as world,
    ):
        job = await world.budget(USD)
        async with (
            world.client(await world.key(job)) as client,
            client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer,
        ):
            async for _ in answer.aiter_raw():
                break

        async def settled() -> bool:
            return [row["state"] for row in await world.rows()] == ["settled"]

        await eventually(settled)
        (row,) = await world.rows()
        assert row["client_gone"] is True
        assert row["outcome"] == ("ok" if most else "drain_cut")
        assert row["cost_pusd"] == (COST_OPENAI if most else row["worst_pusd"])
        assert await world.money(job) == (row["cost_pusd"], 0)


@pytest.mark.requirement("G-GW-GL20")
async def test_a_call_that_only_outstanding_ones_block_waits_and_then_goes(world: World, provider: StandIn) -> None:
    job = await world.budget(60_000_000_000)
    provider.hold = asyncio.Event()
    async with world.client(await world.key(job)) as client:
        first = asyncio.create_task(client.post("/v1/chat/completions", json={**CHAT, "max_completion_tokens": 16_000}))

        async def sent() -> bool:
            return len(provider.asked) == 1

        await eventually(sent)
        second = asyncio.create_task(
            client.post("/v1/chat/completions", json={**CHAT, "max_completion_tokens": 16_000})
        )
        waiting = "SELECT waiting_until > clock_timestamp() FROM budget WHERE waiting_until IS NOT NULL"

        async def waits() -> bool:
            async with world.database.transaction() as session:
                return bool(await session.scalar(text(waiting)))

        await eventually(waits)
        assert (len(provider.asked), second.done()) == (1, False)
        provider.hold.set()
        assert {(await first).status_code, (await second).status_code} == {200}
    assert await world.money(job) == (2 * COST_OPENAI, 0)
    assert world.stops.subjects == []


async def test_a_share_of_a_trial_is_charged_with_its_job(world: World) -> None:
    job, trial = await world.budget(USD), await world.budget(USD, Level.TRIAL)
    async with world.client(await world.key(job, trial)) as client:
        await client.post("/v1/responses", json=RESPONSES)
    assert await world.money(job) == await world.money(trial) == (COST_OPENAI, 0)


async def test_counting_tokens_is_free_and_needs_a_key(world: World, provider: StandIn) -> None:
    job = await world.budget(0)
    key = await world.key(job, routes={"claude-sonnet-4-5": "scripted:counts"})
    async with world.client(key) as client:
        unknown = await client.post("/v1/messages/count_tokens", json=MESSAGES)
    assert unknown.status_code == 400
    key = await world.key(job, routes={"gpt-5-mini": "scripted:hello"})
    async with world.client(key) as client:
        counted = await client.post("/v1/messages/count_tokens", json={**MESSAGES, "model": "gpt-5-mini"})
    assert counted.json()["input_tokens"] > 0
    assert await world.rows() == []
