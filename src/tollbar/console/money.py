"""The page of settings: what the project may spend, what it has spent, and what things cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.budget import billing, limits
from tollbar.console import words
from tollbar.kit.clock import Clock
from tollbar.kit.errors import InvalidAmount
from tollbar.kit.paging import page_request
from tollbar.sandboxes import service as runners

_FIELDS: Final = ("daily_cap_usd", "default_job_cap_usd")
_PRICED: Final = 50


async def day_warning(session: AsyncSession, actor: Principal, now: datetime) -> str | None:
    """Returns the sentence that stands over the Jobs of a project that has spent most of its day; else None."""
    if not await limits.is_mostly_spent(session, actor.project_id, now):
        return None
    day = (await limits.today(session, actor.project_id, now)).wire()
    return f"{words.money(day['spent_today_usd'])} of the {words.money(day['daily_cap_usd'])} of this UTC day is spent."


async def settings_page(
    session: AsyncSession, actor: Principal, now: datetime, *, typed: Mapping[str, str] | None = None, wrong: str = ""
) -> dict[str, Any]:
    """Returns what the page shows; `typed` is what somebody wrote into its form, `wrong` why it was not taken."""
    account = await billing.account(session, actor, now)
    used = await billing.usage(session, actor, start=None, end=None, group_by="day", now=now)
    scope = {"route": "console.settings", "project": actor.project_id}
    found = await runners.list_page(session, actor, page_request(_PRICED, None, scope=scope))
    return {
        "spent_today": words.money(account["spent_today_usd"]),
        "daily_cap": words.money(account["daily_cap_usd"]) if account["daily_cap_usd"] else None,
        "left_today": words.money(account["remaining_today_usd"]),
        "reserved": words.money(account["reserved_usd"]),
        "this_month": words.money(account["spent_this_month_usd"]),
        "warned": account["warning"],
        "fields": {name: (typed or account).get(name) or "" for name in _FIELDS},
        "wrong": wrong,
        "days": [{"day": item["day"], "amount": words.money(item["amount_usd"])} for item in reversed(used)],
        "prices": [
            {
                "name": item["name"],
                "vcpu": f"{item['prices']['usd_per_vcpu_second']} USD",
                "gib": f"{item['prices']['usd_per_gib_second']} USD",
                "free": item["prices"]["declared_free"],
            }
            for item in found.items
        ],
    }


async def save_limits(session: AsyncSession, actor: Principal, form: Mapping[str, str], clock: Clock) -> str | None:
    """Sets what the form says (an empty field takes the limit away); returns what is wrong with it, else None."""
    try:
        await limits.set_limits(session, actor, {name: form.get(name, "").strip() or None for name in _FIELDS}, clock)
    except InvalidAmount as error:
        return error.message
    return None
