"""What a project may spend: a cap for each UTC day, over all of its Jobs, and the cap of a Job that names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Capability, Principal
from tollbar.budget import store
from tollbar.budget.errors import InsufficientBalance
from tollbar.budget.schemas import WARN_PERCENT, Chain, day_budget_id, warning_object
from tollbar.budget.tables import BudgetRow
from tollbar.kit.clock import Clock, wire_time
from tollbar.kit.errors import InvalidRequest
from tollbar.kit.money import format_usd, parse_usd

MAX_DAY_CAP_USD: Final = "1000000"
_FIELDS: Final = {
    "daily_cap_usd": ("day_cap_pusd", "0", MAX_DAY_CAP_USD),
    "default_job_cap_usd": ("job_cap_pusd", "0.000001", "100000"),
}
"""What can be set: its column, the least and the greatest value in USD."""


@dataclass(frozen=True)
class SpendLimits:
    """A project's limits in pUSD; None is no limit."""

    day_cap_pusd: int | None = None
    job_cap_pusd: int | None = None

    def wire(self) -> dict[str, str | None]:
        """Returns them as decimal text of USD."""
        caps = {"daily_cap_usd": self.day_cap_pusd, "default_job_cap_usd": self.job_cap_pusd}
        return {name: None if cap is None else format_usd(cap) for name, cap in caps.items()}


@dataclass(frozen=True)
class Today:
    """What a project has spent of its present UTC day; amounts in pUSD."""

    day: date
    cap_pusd: int | None
    spent_pusd: int
    reserved_pusd: int
    warned_at: datetime | None

    @property
    def resets_at(self) -> str:
        """The moment at which the day ends, as it goes on the wire."""
        midnight = datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC) + timedelta(days=1)
        return wire_time(midnight) or ""

    @property
    def left_pusd(self) -> int | None:
        return None if self.cap_pusd is None else max(0, self.cap_pusd - self.spent_pusd - self.reserved_pusd)

    @property
    def is_used_up(self) -> bool:
        return self.cap_pusd is not None and self.spent_pusd >= self.cap_pusd

    def wire(self) -> dict[str, Any]:
        """Returns the members that stand wherever a project's day shows."""
        return {
            "daily_cap_usd": None if self.cap_pusd is None else format_usd(self.cap_pusd),
            "spent_today_usd": format_usd(self.spent_pusd),
            "reserved_usd": format_usd(self.reserved_pusd),
            "remaining_today_usd": None if self.left_pusd is None else format_usd(self.left_pusd),
            "resets_at": self.resets_at,
            "warning": warning_object(self.warned_at),
        }


async def limits_of(session: AsyncSession, project_id: str) -> SpendLimits:
    """Returns what was set for a project; nothing is a limit until somebody sets it."""
    row = await store.spend_limit(session, project_id)
    return SpendLimits() if row is None else SpendLimits(row.day_cap_pusd, row.job_cap_pusd)


async def today(session: AsyncSession, project_id: str, now: datetime) -> Today:
    """Returns a project's present day. What a scripted provider spent is no spending."""
    day = now.astimezone(UTC).date()
    row = await _day_row(session, project_id, now)
    spent = await store.spent_on_day(session, project_id, day)
    cap = (await limits_of(session, project_id)).day_cap_pusd
    return Today(day, cap, spent.spent_pusd, spent.reserved_pusd, None if row is None else row.warned_at)


async def require_balance(session: AsyncSession, project_id: str, now: datetime) -> None:
    """Raises `InsufficientBalance` when the project's day is used up; asks two rows, however much was charged."""
    cap = (await limits_of(session, project_id)).day_cap_pusd
    if cap is None:
        return
    row = await _day_row(session, project_id, now)
    spent = 0 if row is None else row.settled_pusd + row.overrun_pusd
    if spent >= (cap if row is None or row.cap_pusd is None else row.cap_pusd):
        found = await today(session, project_id, now)
        raise InsufficientBalance(cap, found.spent_pusd, found.resets_at)


async def is_mostly_spent(session: AsyncSession, project_id: str, now: datetime) -> bool:
    """Says whether 80 % of the project's present day is spent; asks one row."""
    row = await _day_row(session, project_id, now)
    return row is not None and row.warned_at is not None


async def _day_row(session: AsyncSession, project_id: str, now: datetime) -> BudgetRow | None:
    budget_id = day_budget_id(project_id, now.astimezone(UTC).date())
    return (await store.read(session, [budget_id])).get(budget_id)


async def set_limits(session: AsyncSession, actor: Principal, given: Mapping[str, Any], clock: Clock) -> SpendLimits:
    """Sets the limits that are named (`daily_cap_usd`, `default_job_cap_usd`; null takes one away) and returns all.

    A new daily cap counts at once, and what was spent today before counts too; when more than the cap is gone already,
    nothing more is spent today. Only people and the server's owner may do this. Raises `AccessDenied`,
    `InvalidAmount`, `InvalidRequest`.
    """
    actor.require(Capability.PROJECT_ADMIN)
    unknown = sorted(set(given) - set(_FIELDS))
    if unknown or not given:
        problem = f"must be an object with {' or '.join(_FIELDS)}"
        raise InvalidRequest([{"path": name, "problem": problem} for name in unknown or [""]])
    values = {}
    for name, value in given.items():
        column, least, greatest = _FIELDS[name]
        values[column] = None if value is None else parse_usd(value, field=name, minimum=least, maximum=greatest)
    now = clock.now()
    await store.set_spend_limit(session, actor.project_id, values, now, actor.key_id)
    found = await limits_of(session, actor.project_id)
    if "day_cap_pusd" in values:
        for simulated in (False, True):
            await _apply_to_day(session, Chain(actor.project_id, (), simulated), found.day_cap_pusd, now)
    return found


async def _apply_to_day(session: AsyncSession, chain: Chain, cap_pusd: int | None, now: datetime) -> None:
    """Gives today's budget the cap that is left of the day: what was spent before there was a limit is not in it."""
    day = now.astimezone(UTC).date()
    budget_id = chain.day_id(day)
    if not chain.simulated:
        await store.open_day(session, chain, day)
    await store.lock(session, [budget_id])
    row = (await store.read(session, [budget_id])).get(budget_id)
    if row is None:
        return
    row.cap_pusd, row.warned_at = None, None
    if cap_pusd is not None:
        outside = await store.spent_outside(session, chain, day)
        row.cap_pusd = max(cap_pusd - outside, row.settled_pusd + row.reserved_pusd)
        gone = outside + row.settled_pusd + row.overrun_pusd
        row.warned_at = now if gone and gone * 100 >= cap_pusd * WARN_PERCENT else None
    await session.flush()
