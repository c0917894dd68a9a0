"""What a project has spent: its account, usage by day, product or article, and every entry of its ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.budget import limits, store
from tollbar.budget.errors import InvalidBillingWindow, InvalidGroupBy
from tollbar.budget.schemas import Level
from tollbar.kit.clock import wire_time
from tollbar.kit.money import format_usd
from tollbar.kit.paging import Page, PageRequest

GROUPS: Final = ("day", "product", "endpoint", "sku")
_DEFAULT_WINDOW: Final = timedelta(days=30)
_MAX_WINDOW: Final = timedelta(days=366)
_OLDEST: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def account(session: AsyncSession, actor: Principal, now: datetime) -> dict[str, Any]:
    """Returns what the project has spent today and this month (UTC), what is reserved, and its limits, in USD."""
    today = await limits.today(session, actor.project_id, now)
    found = await limits.limits_of(session, actor.project_id)
    month = await store.spent_since(session, actor.project_id, today.day.replace(day=1))
    return {
        "project_id": actor.project_id,
        "currency": "USD",
        **today.wire(),
        "spent_this_month_usd": format_usd(month),
        "default_job_cap_usd": None if found.job_cap_pusd is None else format_usd(found.job_cap_pusd),
    }


async def usage(
    session: AsyncSession, actor: Principal, *, start: str | None, end: str | None, group_by: str | None, now: datetime
) -> list[dict[str, Any]]:
    """Returns what was spent from `start` to before `end`, summed by one of `GROUPS` (default `day`).

    The window is the last 30 days where none is named. A day is the UTC day to which a call was charged. Members that
    were not grouped by are null. Raises `InvalidBillingWindow`, `InvalidGroupBy`.
    """
    group = group_by or "day"
    if group not in GROUPS:
        raise InvalidGroupBy(GROUPS)
    until = now if end is None else _moment("end", end)
    since = max(until, _OLDEST) - _DEFAULT_WINDOW if start is None else _moment("start", start)
    if since >= until:
        raise InvalidBillingWindow("must start before it ends")
    if until - since > _MAX_WINDOW:
        raise InvalidBillingWindow(f"is longer than {_MAX_WINDOW.days} days")
    rows = await store.usage(session, actor, since, until, group)
    return [{**_blank(), group_member(group): row.key, "amount_usd": format_usd(int(row.pusd))} for row in rows]


def group_member(group: str) -> str:
    """Returns the member of an item of usage that its group fills."""
    return "endpoint_id" if group == "endpoint" else group


def _blank() -> dict[str, Any]:
    return {"day": None, "product": None, "endpoint_id": None, "sku": None}


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidBillingWindow(f"has no time in {name}") from None
    if moment.tzinfo is None:
        raise InvalidBillingWindow(f"has no offset in {name}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidBillingWindow(f"has no time in {name}") from None


async def ledger_page(session: AsyncSession, actor: Principal, page: PageRequest) -> Page[dict[str, Any]]:
    """Returns a page of what was charged, newest first; a call that cost nothing is no entry."""
    rows = await store.entries(session, actor, page)
    cut = page.page(rows, lambda row: [str(row.ended_at), row.id])
    return Page([_entry(row) for row in cut.items], cut.next_cursor)


def _entry(row: Any) -> dict[str, Any]:
    kind, _, rest = row.subject.partition(":")
    return {
        "entry_id": row.id,
        "kind": "write_off" if row.state == "written_off" else "charge",
        "product": row.kind,
        "sku": row.sku,
        "purpose": row.purpose,
        "amount_usd": format_usd(row.cost_pusd + row.overrun_pusd),
        "reference": rest.partition(":")[0] if kind == "trial" else row.subject,
        "occurred_at": wire_time(row.ended_at),
    }


async def totals(session: AsyncSession) -> dict[str, int]:
    """Returns pUSD of all Jobs together, for operators: `spent`, `reserved`, and `overrun`, which must stay 0."""
    spent, reserved, overrun = await store.totals(session, Level.JOB.rank)
    return {"spent": spent, "reserved": reserved, "overrun": overrun}
