"""What the project has spent, entry by entry and in sums, and what things cost. Amounts are decimal text of USD."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse

from tollbar.access.principal import Capability, Principal
from tollbar.budget import billing
from tollbar.gateway.shown import price_document
from tollbar.http.answers import answer, page_answer
from tollbar.http.authorise import needs
from tollbar.http.deps import Deps
from tollbar.http.parameters import PageQuery
from tollbar.kit.paging import Page
from tollbar.sandboxes import service as runners

router = APIRouter(prefix="/billing", tags=["project and money"])

Reader = Annotated[Principal, needs(Capability.BILLING_READ)]


@router.get("/account")
async def get_account(deps: Deps, actor: Reader) -> JSONResponse:
    """What was spent today and this month (UTC), what is reserved, and the daily cap."""
    async with deps.database.session() as session:
        return answer(await billing.account(session, actor, deps.clock.now()))


@router.get("/usage")
async def get_usage(
    deps: Deps,
    actor: Reader,
    start: Annotated[str | None, Query(description="From this time on, with offset; 30 days before the end.")] = None,
    end: Annotated[str | None, Query(description="Before this time, with offset; now when left out.")] = None,
    group_by: Annotated[str | None, Query(description="day (when left out), product, endpoint or sku.")] = None,
) -> JSONResponse:
    """What was spent in a window of at most 366 days, in sums."""
    async with deps.database.session() as session:
        items = await billing.usage(session, actor, start=start, end=end, group_by=group_by, now=deps.clock.now())
    return answer({"items": items, "next_cursor": None})


@router.get("/ledger")
async def list_ledger(deps: Deps, actor: Reader, page: PageQuery) -> JSONResponse:
    """Every charge, newest first; what cost nothing is no entry."""
    async with deps.database.session() as session:
        return page_answer(await billing.ledger_page(session, actor, page.of("billing.ledger", actor)))


@router.get("/prices")
async def list_prices(deps: Deps, actor: Reader, page: PageQuery) -> JSONResponse:
    """What the runners cost, by name, two prices for each; a page has as many runners as its limit says."""
    async with deps.database.session() as session:
        found = await runners.list_page(session, actor, page.of("billing.prices", actor))
    items = [item for runner in found.items for item in _prices(runner)]
    return page_answer(Page(items, found.next_cursor))


@router.get("/model-prices")
async def get_model_prices(
    deps: Deps,
    _actor: Reader,
    model: Annotated[str, Query(description="provider:model, such as openai:gpt-5-mini.", max_length=256)],
) -> JSONResponse:
    """What a model costs now, by tier and service tier, in USD per million tokens, and its limits."""
    return answer(await asyncio.to_thread(price_document, deps.prices, model, deps.clock.now()))


def _prices(runner: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "product": "sandbox",
            "sku": runner["name"],
            "unit": unit,
            "amount_usd": runner["prices"][f"usd_per_{unit}"],
            "snapshot": runner["revision"],
        }
        for unit in ("vcpu_second", "gib_second")
    ]
