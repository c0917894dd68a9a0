"""Billing, limits and the project, as they are read over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from tests.http.conftest import READ_ONLY, STRANGER, code_of

from tollbar.budget import limits, service
from tollbar.budget.schemas import Chain, Lease, Purpose, Reserved
from tollbar.http.limiting import memory_limiter

USD = 10**12


async def spend(world, usd, *, day=None, name="a", purpose=Purpose.AGENT, sku="envhub/metered", end=True):
    """Charges (or only reserves) so much to a Job of the project."""
    async with world.deps.database.transaction() as session:
        budget_id = await service.open_budget(session, service.Level.JOB, f"job_{name}", None)
        day = day or world.deps.clock.now().date()
        pusd = round(usd * USD)
        lease = Lease(
            f"lease_{name}", Chain(world.actor.project_id, (budget_id,)), day, f"trial:trial_{name}:1", sku, purpose,
            "w", pusd, 1,
        )  # fmt: skip
        assert isinstance(await service.reserve_lease(session, lease), Reserved)
        if end:
            await service.settle_lease(session, lease.id, pusd)


async def limit(world, **given):
    async with world.deps.database.transaction() as session:
        await limits.set_limits(session, world.actor, given, world.deps.clock)


def project(world):
    return f"/v1/workspaces/{world.actor.workspace_id}/projects/{world.actor.project_id}"


async def test_the_account_says_what_was_spent_today_and_this_month_and_what_is_left(world, ask):
    today = world.deps.clock.now().date()
    await spend(world, 3, name="earlier", day=today - timedelta(days=9))
    await spend(world, 7, name="last_month", day=today - timedelta(days=40))
    await limit(world, daily_cap_usd="2", default_job_cap_usd="0.5")
    await spend(world, 1.25, name="today")
    await spend(world, 0.25, name="held", end=False)
    answer = await ask("GET", "/v1/billing/account", key=READ_ONLY)
    assert answer.json() == {
        "project_id": world.actor.project_id,
        "currency": "USD",
        "daily_cap_usd": "2",
        "spent_today_usd": "1.25",
        "reserved_usd": "0.25",
        "remaining_today_usd": "0.5",
        "resets_at": "2026-12-01T00:00:00.000Z",
        "warning": None,
        "spent_this_month_usd": "4.25",
        "default_job_cap_usd": "0.5",
    }


async def test_a_project_that_spent_most_of_its_day_says_so_in_its_account_and_its_limits(world, ask):
    await limit(world, daily_cap_usd="2")
    await spend(world, 1.6)
    account = (await ask("GET", "/v1/billing/account")).json()
    assert account["warning"]["percent"] == 80
    items = (await ask("GET", f"{project(world)}/limits")).json()["items"]
    (daily,) = [item for item in items if item["name"] == "daily_spend"]
    assert daily["warning"] == account["warning"]


async def test_a_project_without_limits_says_null(world, ask):
    account = (await ask("GET", "/v1/billing/account")).json()
    assert (account["daily_cap_usd"], account["remaining_today_usd"], account["spent_today_usd"]) == (None, None, "0")


async def test_limits_are_listed_with_what_is_used_of_them(world):
    server = world.changed(limiter=memory_limiter(per_key=7, per_address=100))
    await limit(server, daily_cap_usd="2")
    await spend(server, 0.5)
    async with server.client() as client:
        await client.get("/v1/me")
        items = {item["name"]: item for item in (await client.get(f"{project(server)}/limits")).json()["items"]}
    assert list(items) == ["requests_per_minute", "concurrent_trials", "daily_spend", "default_job_cap"]
    requests = items["requests_per_minute"]
    assert (requests["limit"], requests["used"], requests["unit"]) == (7, 2, "requests")
    assert requests["resets_at"] is not None
    assert (items["concurrent_trials"]["limit"], items["concurrent_trials"]["used"]) == (256, 0)
    daily = items["daily_spend"]
    assert (daily["limit"], daily["used"], daily["unit"], daily["resets_at"]) == (
        "2", "0.5", "USD", "2026-12-01T00:00:00.000Z",
    )  # fmt: skip


async def test_a_project_is_shown_to_its_own_keys_alone(world, ask):
    answer = await ask("GET", project(world))
    assert answer.json() == {
        "project_id": world.actor.project_id, "workspace_id": world.actor.workspace_id, "name": "Default",
        "slug": "default", "version": 1,
    }  # fmt: skip
    for path in (project(world), f"{project(world)}/limits"):
        assert code_of(await ask("GET", path, key=STRANGER)) == "WORKSPACE_ACCESS_DENIED"
    other = f"/v1/workspaces/{world.actor.workspace_id}/projects/prj_other"
    assert code_of(await ask("GET", other)) == "PROJECT_ACCESS_DENIED"


async def test_no_key_may_change_limits(world, ask):
    for method in ("PUT", "PATCH"):
        answer = await ask(method, f"{project(world)}/limits", json={"daily_cap_usd": "1"})
        assert (answer.status_code, code_of(answer)) == (403, "HUMAN_SESSION_REQUIRED")


async def test_the_ledger_pages_through_every_charge_newest_first_and_through_no_other_projects(world, ask):
    for number in range(5):
        await spend(world, 0.1, name=f"n{number}", purpose=Purpose.VERIFIER if number == 4 else Purpose.AGENT)
    await spend(world, 0, name="free")
    await spend(world, 1, name="open", end=False)
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await ask("GET", "/v1/billing/ledger", params=params)).json()
        seen += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [item["entry_id"] for item in seen] == [f"lease_n{number}" for number in (4, 3, 2, 1, 0)]
    moment = seen[0].pop("occurred_at")
    assert moment.endswith("Z")
    assert seen[0] == {
        "entry_id": "lease_n4", "kind": "charge", "product": "sandbox", "sku": "envhub/metered", "purpose": "verifier",
        "amount_usd": "0.1", "reference": "trial_n4",
    }  # fmt: skip
    assert (await ask("GET", "/v1/billing/ledger", key=STRANGER)).json() == {"items": [], "next_cursor": None}
    for bad in ("x", "e30"):
        assert code_of(await ask("GET", "/v1/billing/ledger", params={"cursor": bad})) == "INVALID_CURSOR"


async def test_a_lost_lease_is_a_write_off_in_the_ledger(world, ask):
    await spend(world, 0.3, name="lost", end=False)
    async with world.deps.database.transaction() as session:
        await service.write_off(session, workers=["w"])
    (item,) = (await ask("GET", "/v1/billing/ledger")).json()["items"]
    assert (item["kind"], item["amount_usd"]) == ("write_off", "0.3")


async def test_usage_is_summed_by_day_product_article_or_endpoint(world, ask):
    today = world.deps.clock.now().date()
    await spend(world, 0.5, name="a")
    await spend(world, 0.25, name="b", sku="team/big")
    await spend(world, 1, name="c", day=today - timedelta(days=1))
    (entry, *_) = (await ask("GET", "/v1/billing/ledger")).json()["items"]
    ended = datetime.fromisoformat(entry["occurred_at"])  # on the database's clock
    start, end = (ended + timedelta(hours=sign) for sign in (-1, 1))
    window = {"start": start.isoformat(), "end": end.isoformat()}

    async def by(group):
        params = window | ({"group_by": group} if group else {})
        return (await ask("GET", "/v1/billing/usage", params=params)).json()["items"]

    blank = {"day": None, "product": None, "endpoint_id": None, "sku": None}
    assert await by(None) == await by("day") == [
        {**blank, "day": "2026-11-29", "amount_usd": "1"}, {**blank, "day": "2026-11-30", "amount_usd": "0.75"},
    ]  # fmt: skip
    assert await by("product") == [{**blank, "product": "sandbox", "amount_usd": "1.75"}]
    assert await by("sku") == [
        {**blank, "sku": "envhub/metered", "amount_usd": "1.5"}, {**blank, "sku": "team/big", "amount_usd": "0.25"},
    ]  # fmt: skip
    assert await by("endpoint") == [{**blank, "amount_usd": "1.75"}]
    window = {"end": "0001-01-02T00:00:00Z", "start": "0001-01-01T12:00:00Z"}
    assert await by("day") == []
    window = {"start": "2020-01-01T00:00:00+02:00", "end": "2020-02-01T00:00:00Z"}
    assert await by("day") == await by("endpoint") == []


@pytest.mark.parametrize(
    "window",
    [
        {"start": "yesterday"},
        {"end": "2026-11-30"},
        {"start": "2026-11-30T00:00:00"},
        {"start": "2026-11-30T00:00:00Z", "end": "2026-11-30T00:00:00Z"},
        {"start": "2024-11-30T00:00:00Z", "end": "2026-11-30T00:00:00Z"},
        {"start": "0001-01-01T00:00:00+23:59", "end": "2026-11-30T00:00:00Z"},
    ],
)
async def test_a_window_that_is_none_is_refused(ask, window):
    answer = await ask("GET", "/v1/billing/usage", params=window)
    assert (answer.status_code, code_of(answer)) == (422, "INVALID_BILLING_WINDOW")


async def test_usage_is_grouped_by_nothing_else(ask):
    answer = await ask("GET", "/v1/billing/usage", params={"group_by": "hour"})
    assert (answer.status_code, code_of(answer)) == (422, "INVALID_GROUP_BY")


async def test_prices_are_those_of_the_runners(ask):
    items = (await ask("GET", "/v1/billing/prices")).json()["items"]
    shown = {(item["sku"], item["unit"]): item["amount_usd"] for item in items}
    assert shown == {
        ("envhub/base", "vcpu_second"): "0",
        ("envhub/base", "gib_second"): "0",
        ("envhub/docker", "vcpu_second"): "0",
        ("envhub/docker", "gib_second"): "0",
        ("envhub/metered", "vcpu_second"): "0.01",
        ("envhub/metered", "gib_second"): "0.001",
    }
    assert {item["product"] for item in items} == {"sandbox"}
    assert all(len(item["snapshot"]) == 64 for item in items)


async def test_a_submission_on_a_day_that_is_used_up_is_a_402(world, ask):
    await world.publish()
    await limit(world, daily_cap_usd="0.5")
    await spend(world, 0.5)
    answer = await ask("POST", "/v1/job", json={"dataset": "team/hello@1"})
    assert (answer.status_code, code_of(answer)) == (402, "INSUFFICIENT_BALANCE")
    assert answer.json()["resets_at"] == "2026-12-01T00:00:00.000Z"


async def test_a_models_prices_are_shown_by_tier_and_service_tier(ask):
    found = (await ask("GET", "/v1/billing/model-prices?model=openai:gpt-5-mini", key=READ_ONLY)).json()
    assert found["snapshot"].startswith("genai-prices/0.2.3/")
    assert (found["priced_as"], found["free"], found["context_window"]) == ("openai:gpt-5-mini", False, 400_000)
    standard = found["prices"][0]
    assert standard == {
        "when": None, "above_input_tokens": 0, "input_usd": "0.25", "cache_read_usd": "0.025", "cache_write_usd": None,
        "cache_write_1h_usd": None, "output_usd": "2",
    }  # fmt: skip
    priority = next(price for price in found["prices"] if price["when"] == {"service_tier": "priority"})
    assert (priority["input_usd"], priority["output_usd"]) == ("0.45", "3.6")
    tiers = (await ask("GET", "/v1/billing/model-prices?model=anthropic:claude-sonnet-4-5")).json()["prices"]
    assert [(tier["above_input_tokens"], tier["input_usd"], tier["output_usd"]) for tier in tiers] == [
        (0, "3", "15"), (200_000, "6", "22.5"),
    ]  # fmt: skip


@pytest.mark.parametrize("model", ["openai:gpt-99", "openai:whisper-1", "gpt-5-mini", "nobody:x", ""])
async def test_a_model_without_both_prices_has_none(ask, model):
    answer = await ask("GET", f"/v1/billing/model-prices?model={model}")
    assert (answer.status_code, code_of(answer)) == (404, "PRICE_NOT_FOUND")
