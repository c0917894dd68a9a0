"""The page of settings: a person sees what is spent and sets what may be spent; nobody else does."""

from __future__ import annotations

import re
from typing import Any

import httpx2
from sqlalchemy import text
from tests.console.conftest import OWN, submit
from tests.mcp.world import World

from tollbar.budget import limits, service
from tollbar.budget.schemas import Chain, Lease, Purpose, Reserved

USD = 10**12


async def page(browser: httpx2.AsyncClient, path: str = "/settings") -> str:
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.text))


async def save(browser: httpx2.AsyncClient, *, headers: dict[str, str] = OWN, **fields: str) -> httpx2.Response:
    token = re.search(r'name="token" value="([^"]+)"', (await browser.get("/settings")).text)
    assert token is not None
    return await browser.post("/settings", data={"token": token[1], **fields}, headers=headers)


async def limits_of(world: World) -> limits.SpendLimits:
    async with world.database.session() as session:
        return await limits.limits_of(session, world.actor.project_id)


async def spend(world: World, usd: float, *, job_id: str | None = None, **changes: Any) -> None:
    async with world.database.transaction() as session:
        if job_id is None:
            budget_id = await service.open_budget(session, service.Level.JOB, "other", None)
        else:
            budget_id = (await session.execute(_budget_of(job_id))).scalar_one()
        lease = Lease(
            "lease_1", Chain(world.actor.project_id, (budget_id,)), world.clock.now().date(), "trial:t:1",
            "envhub/metered", Purpose.AGENT, "w", round(usd * USD), 1,
        )  # fmt: skip
        assert isinstance(await service.reserve_lease(session, lease), Reserved)
        await service.settle_lease(session, lease.id, lease.worst_pusd)


def _budget_of(job_id: str) -> Any:
    return text("SELECT budget_id FROM job WHERE id = :job").bindparams(job=job_id)


async def test_a_person_sets_the_limits_and_takes_them_away_again(world: World, browser: httpx2.AsyncClient) -> None:
    assert "no limit" in await page(browser)
    answer = await save(browser, daily_cap_usd="2.50", default_job_cap_usd=" 0.5 ")
    assert (answer.status_code, answer.headers["location"]) == (303, "/settings")
    assert await limits_of(world) == limits.SpendLimits(25 * USD // 10, USD // 2)
    shown = await page(browser)
    assert "0.00 USD of 2.50 USD, left 2.50 USD" in shown
    assert (await save(browser, daily_cap_usd="", default_job_cap_usd="")).status_code == 303
    assert await limits_of(world) == limits.SpendLimits()


async def test_an_amount_that_is_none_changes_nothing_and_stays_in_the_form(
    world: World, browser: httpx2.AsyncClient
) -> None:
    answer = await save(browser, daily_cap_usd='a lot"><b>', default_job_cap_usd="1")
    assert answer.status_code == 422
    assert "Nothing was changed" in answer.text
    assert 'value="a lot&#34;&gt;&lt;b&gt;"' in answer.text
    assert await limits_of(world) == limits.SpendLimits()


async def test_limits_are_set_by_no_foreign_form_and_by_nobody_who_is_not_signed_in(
    world: World, browser: httpx2.AsyncClient, visitor: httpx2.AsyncClient
) -> None:
    foreign = await save(browser, headers={"Origin": "https://evil.example"}, daily_cap_usd="1000")
    without = await browser.post("/settings", data={"daily_cap_usd": "1000"}, headers=OWN)
    stranger = await visitor.post("/settings", data={"daily_cap_usd": "1000"}, headers=OWN)
    assert [answer.status_code for answer in (foreign, without, stranger)] == [403, 403, 401]
    assert await limits_of(world) == limits.SpendLimits()


async def test_the_page_shows_what_was_spent_and_what_runners_cost(world: World, browser: httpx2.AsyncClient) -> None:
    await spend(world, 1.25)
    shown = await page(browser)
    assert "Today (UTC)1.25 USD, no limit" in shown.replace(" Today", "Today")
    assert "envhub/metered0.01 USD a vCPU-second, 0.001 USD a GiB-second" in shown
    assert "envhub/basefree (declared so)" in shown


async def test_most_of_a_day_and_most_of_a_cap_is_said_where_a_person_looks(
    world: World, browser: httpx2.AsyncClient
) -> None:
    await save(browser, daily_cap_usd="1")
    job_id = await submit(world, max_cost_usd="1", max_cost_per_trial_usd="0.25")
    assert "is spent" not in await page(browser, "/jobs")
    await spend(world, 0.8, job_id=job_id)
    assert "! 0.80 USD of the 1.00 USD of this UTC day is spent." in await page(browser, "/jobs")
    assert "! 80 % of this day's limit is spent." in (await page(browser)).replace("&#39;", "'")
    shown = await page(browser, f"/jobs/{job_id}")
    assert "! 80 % of the cap is spent" in shown
    assert "each Trial up to 0.25 USD" in shown
    assert "--max-cost 1/0.25" in shown
