"""Every statement on money. Budgets are always locked before calls, in the order level, id: no deadlock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import Row, exists, func, insert, null, or_, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.budget import statements
from tollbar.budget.schemas import WARN_PERCENT, BudgetState, CallState, Chain, Lease, day_subject
from tollbar.budget.tables import BudgetRow, LedgerCallRow, SpendLimitRow
from tollbar.kit.errors import InvalidCursor
from tollbar.kit.paging import PageRequest

NOW: Final = text("clock_timestamp()")
"""The database's own clock, as a value of a row."""
_OPEN_CALLS = ("reserved", "sent")


async def add_budgets(session: AsyncSession, level: int, cap_pusd: int | None, subjects: Mapping[str, str]) -> None:
    """Opens budgets (subject by id) of one level with one cap; those that exist stay as they are."""
    rows = [{"id": key, "level": level, "subject": value, "cap_pusd": cap_pusd} for key, value in subjects.items()]
    await session.execute(upsert(BudgetRow).on_conflict_do_nothing(), rows)


async def add_budget(session: AsyncSession, budget_id: str, level: int, subject: str, cap_pusd: int | None) -> None:
    await session.execute(insert(BudgetRow).values(id=budget_id, level=level, subject=subject, cap_pusd=cap_pusd))


async def lock(session: AsyncSession, budget_ids: Sequence[str]) -> None:
    """Locks the rows, outermost first."""
    await session.execute(statements.LOCK, {"ids": list(budget_ids)})


async def lock_chain(session: AsyncSession, chain: Chain, day: date) -> list[Row[Any]]:
    """Locks a chain and the project's day, outermost first, and returns their rows as they are now.

    `limited` on each says whether the project has a limit for its days, so that a day which is missing must be opened.
    """
    ids = [chain.day_id(day), *chain.budgets]
    return list((await session.execute(statements.LOCK_CHAIN, {"ids": ids, "project": chain.project_id})).all())


async def is_capped(session: AsyncSession, chain: Chain, day: date) -> bool:
    """Says whether anything bounds what the chain may spend."""
    ids = [chain.day_id(day), *chain.budgets]
    capped = exists().where(BudgetRow.id.in_(ids), BudgetRow.cap_pusd.is_not(None))
    limited = exists().where(SpendLimitRow.project_id == chain.project_id, SpendLimitRow.day_cap_pusd.is_not(None))
    return bool(await session.scalar(select(or_(capped, limited))))


async def reserve_lease(session: AsyncSession, lease: Lease, budget_ids: Sequence[str]) -> datetime | None:
    """Reserves on all of the (locked) budgets and writes the lease as sent; returns when it expires.

    None: one of them refused; the caller then rolls back.
    """
    times = {"seconds": lease.seconds, "ahead": lease.starts_in_s}
    return await session.scalar(statements.RESERVE_LEASE, _values(lease) | times | {"ids": list(budget_ids)})


async def open_day(session: AsyncSession, chain: Chain, day: date) -> None:
    """Opens the project's budget for a day at the limit that holds now; somebody else may have done so."""
    subject = day_subject(chain.project_id, day, simulated=chain.simulated)
    values = {"day": chain.day_id(day), "subject": subject, "project": chain.project_id}
    await session.execute(statements.OPEN_DAY, values)


async def used_by_open_leases(session: AsyncSession, budget_ids: Sequence[str]) -> dict[str, int]:
    """Returns pUSD by budget that open sandbox leases have used already and that cannot come back."""
    found = await session.execute(statements.USED, {"ids": list(budget_ids)})
    return {row.id: row.pusd for row in found}


async def add_refused(session: AsyncSession, lease: Lease) -> None:
    """Writes a lease that did not fit, once; it touches no budget."""
    await session.execute(statements.INSERT_REFUSED, _values(lease))


def _values(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "purpose": lease.purpose.value,
        "ids": list(lease.chain.budgets),
        "project": lease.chain.project_id,
        "on": lease.day,
        "subject": lease.subject,
        "sku": lease.sku,
        "simulated": lease.chain.simulated,
        "worker": lease.worker_id,
        "rate": lease.rate_pusd,
        "worst": lease.worst_pusd,
    }


async def end_call(
    session: AsyncSession,
    call_id: str,
    to: CallState,
    outcome: str,
    cost_pusd: int | None,
    origins: Sequence[CallState] = (CallState.RESERVED, CallState.SENT),
    *,
    priced: bool = True,
    truncated: bool = False,
) -> Row[Any] | None:
    """Ends a call once and moves its money from reserved to settled on its chain; a cost of None is the worst case.

    What a model call came to (`priced`, `truncated`) is counted on the chain. Returns its `budget_ids`,
    `overrun_pusd`, and in `warned` the budgets of which 80 % is spent now and was not before (or None); None when it
    had ended before.
    """
    values = {"id": call_id, "to": to.value, "outcome": outcome, "cost": cost_pusd, "warn": WARN_PERCENT}
    values |= {"unpriced": int(not priced), "truncated": int(truncated)}
    return (await session.execute(statements.END_CALL, values | {"origins": [*map(str, origins)]})).one_or_none()


async def open_calls(session: AsyncSession, *, subjects: Sequence[str] = (), workers: Sequence[str] = ()) -> list[Any]:
    """Returns (id, state, worst_pusd, budget_ids) of open calls of those subjects or workers; no row is locked."""
    calls = LedgerCallRow
    chosen = calls.subject.in_(subjects) if subjects else calls.worker_id.in_(workers)
    found = await session.execute(
        select(calls.id, calls.state, calls.worst_pusd, calls.budget_ids)
        .where(chosen, calls.state.in_(_OPEN_CALLS))
        .order_by(calls.id)
    )
    return list(found.all())


async def expired_calls(session: AsyncSession, limit: int) -> list[Any]:
    """Returns the same of open calls whose lease was over a minute ago, on the database's clock."""
    calls = LedgerCallRow
    found = await session.execute(
        select(calls.id, calls.state, calls.worst_pusd, calls.budget_ids)
        .where(calls.state.in_(_OPEN_CALLS), calls.expires_at < text("clock_timestamp() - interval '60 s'"))
        .order_by(calls.expires_at)
        .limit(limit)
    )
    return list(found.all())


async def move(session: AsyncSession, budget_id: str, to: BudgetState, *, came_from: BudgetState, **facts: Any) -> bool:
    """Moves a budget by compare-and-set; says whether this call did it."""
    result: Any = await session.execute(
        update(BudgetRow)
        .where(BudgetRow.id == budget_id, BudgetRow.state == came_from.value)
        .values(state=to.value, **facts)
    )
    return result.rowcount == 1


async def close_open(session: AsyncSession, budget_ids: Sequence[str]) -> None:
    """Closes those of the budgets that are open."""
    await session.execute(
        update(BudgetRow)
        .where(BudgetRow.id.in_(budget_ids), BudgetRow.state == BudgetState.OPEN.value)
        .values(state=BudgetState.CLOSED.value)
    )


async def read(session: AsyncSession, budget_ids: Sequence[str]) -> dict[str, BudgetRow]:
    rows = await session.scalars(
        select(BudgetRow).where(BudgetRow.id.in_(budget_ids)).execution_options(populate_existing=True)
    )
    return {row.id: row for row in rows}


async def subjects_of(session: AsyncSession, call_ids: Sequence[str]) -> dict[str, Any]:
    """Returns whose calls these are (`subject`), of which `kind`, and what was bought (`sku`), by call id."""
    calls = LedgerCallRow
    found = await session.execute(select(calls.id, calls.subject, calls.kind, calls.sku).where(calls.id.in_(call_ids)))
    return {row.id: row for row in found}


async def spent_by_subject(session: AsyncSession, subjects: Sequence[str]) -> list[Any]:
    """Returns what was spent and counted under those subjects, by (subject, kind, purpose).

    Whole subjects are compared: a range of text would mean something else in every other collation.
    """
    return list((await session.execute(statements.SPENT_BY_SUBJECT, {"ids": list(subjects)})).all())


async def usage_of_budget(session: AsyncSession, budget_id: str) -> list[Any]:
    """Returns per model what the sent model calls of a budget used: calls, tokens, money."""
    return list((await session.execute(statements.USAGE_OF_BUDGET, {"budget": budget_id})).all())


async def usage_of_subjects(session: AsyncSession, subjects: Sequence[str]) -> list[Any]:
    """Returns the same of those subjects."""
    return list((await session.execute(statements.USAGE_OF_SUBJECTS, {"ids": list(subjects)})).all())


async def model_calls(session: AsyncSession, subject: str) -> list[LedgerCallRow]:
    """Returns the model calls of a subject that went out, in the order in which they were asked for."""
    calls = LedgerCallRow
    query = select(calls).where(
        calls.subject == subject, calls.kind == "model", calls.state.notin_(("reserved", "refused"))
    )
    return list(await session.scalars(query.order_by(calls.created_at, calls.id)))


# --- limits of projects, and what they have spent


async def spend_limit(session: AsyncSession, project_id: str) -> SpendLimitRow | None:
    query = select(SpendLimitRow).where(SpendLimitRow.project_id == project_id)
    return await session.scalar(query.execution_options(populate_existing=True))


async def set_spend_limit(
    session: AsyncSession, project_id: str, values: Mapping[str, int | None], now: datetime, by: str
) -> None:
    """Writes the limits that are named; the others stay."""
    facts = {**values, "changed_at": now, "changed_by": by}
    statement = upsert(SpendLimitRow).values(project_id=project_id, **facts)
    await session.execute(statement.on_conflict_do_update(index_elements=["project_id"], set_=facts))


_SPENT = func.coalesce(
    func.sum(func.coalesce(LedgerCallRow.cost_pusd, 0) + LedgerCallRow.overrun_pusd), 0
)  # numeric: a sum of BIGINT
_RESERVED = func.coalesce(func.sum(LedgerCallRow.worst_pusd).filter(LedgerCallRow.state.in_(_OPEN_CALLS)), 0)


@dataclass(frozen=True)
class Spent:
    """Sums in pUSD."""

    spent_pusd: int
    reserved_pusd: int


async def spent_on_day(session: AsyncSession, project_id: str, day: date) -> Spent:
    """Returns what of a project's real spending was charged to a day, and what of it is still reserved."""
    calls = LedgerCallRow
    query = select(_SPENT, _RESERVED).where(calls.project_id == project_id, calls.day == day, ~calls.simulated)
    spent, reserved = (await session.execute(query)).one()
    return Spent(int(spent), int(reserved))


async def spent_outside(session: AsyncSession, chain: Chain, day: date) -> int:
    """Returns what was spent or is reserved on a day without its budget: asked for before there was a limit."""
    calls = LedgerCallRow
    query = select(_SPENT + _RESERVED).where(
        calls.project_id == chain.project_id,
        calls.day == day,
        calls.simulated == chain.simulated,
        ~calls.budget_ids.contains([chain.day_id(day)]),
    )
    return int(await session.scalar(query) or 0)


async def spent_since(session: AsyncSession, project_id: str, day: date) -> int:
    """Returns what of a project's real spending was charged to a day or a later one."""
    calls = LedgerCallRow
    query = select(_SPENT).where(calls.project_id == project_id, calls.day >= day, ~calls.simulated)
    return int(await session.scalar(query) or 0)


async def usage(session: AsyncSession, actor: Principal, since: datetime, until: datetime, group: str) -> list[Any]:
    """Returns (key, pusd) of what was charged in the window, by day, product, endpoint (there is none) or sku."""
    calls = LedgerCallRow
    key = {
        "day": func.to_char(calls.day, "YYYY-MM-DD"),
        "product": calls.kind,
        "endpoint": null(),
        "sku": calls.sku,
    }[group].label("key")
    query = (
        select(key, _SPENT.label("pusd"))
        .where(calls.project_id == actor.project_id, calls.cost_pusd > 0, ~calls.simulated)
        .where(calls.ended_at >= since, calls.ended_at < until)
    )
    query = query if group == "endpoint" else query.group_by(text("1")).order_by(text("1"))
    return [row for row in (await session.execute(query)).all() if row.pusd]


async def entries(session: AsyncSession, actor: Principal, page: PageRequest) -> list[LedgerCallRow]:
    """Returns calls that cost something, the last ended first, one row more than the page."""
    calls = LedgerCallRow
    query = select(calls).where(calls.project_id == actor.project_id, calls.cost_pusd > 0, ~calls.simulated)
    start = page.start(str, str)
    if start is not None:
        try:
            ended_at = datetime.fromisoformat(start[0])
        except ValueError:
            raise InvalidCursor from None
        query = query.where(tuple_(calls.ended_at, calls.id) < tuple_(ended_at, start[1]))
    query = query.order_by(calls.ended_at.desc(), calls.id.desc()).limit(page.limit + 1)
    return list(await session.scalars(query))


# --- model calls


async def reserve(session: AsyncSession, budget_ids: Sequence[str], worst_pusd: int) -> bool:
    """Reserves on all of the (locked) budgets; False: one of them refused, and the caller rolls back."""
    result: Any = await session.execute(statements.RESERVE, {"ids": list(budget_ids), "worst": worst_pusd})
    return result.rowcount == len(budget_ids)


async def add_call(session: AsyncSession, values: Mapping[str, Any], life_s: float) -> datetime:
    """Writes a model call; returns when it expires on the database's clock, at most `life_s` after now."""
    expires_at = text("clock_timestamp() + make_interval(secs => :life)").bindparams(life=life_s)
    statement = insert(LedgerCallRow).values(**values, expires_at=expires_at).returning(LedgerCallRow.expires_at)
    return (await session.execute(statement)).scalar_one()


async def add_refused_call(session: AsyncSession, values: Mapping[str, Any]) -> None:
    """Writes a refused model call, once; it touches no budget."""
    row = {**values, "state": CallState.REFUSED.value, "ended_at": NOW, "expires_at": NOW}
    await session.execute(upsert(LedgerCallRow).values(**row).on_conflict_do_nothing())


async def mark_sent(session: AsyncSession, call_id: str) -> bool:
    result: Any = await session.execute(statements.MARK_SENT, {"id": call_id})
    return result.rowcount == 1


async def held_by_leases(session: AsyncSession, budget_ids: Sequence[str]) -> dict[str, int]:
    """Returns pUSD by budget that open sandbox leases hold."""
    found = await session.execute(statements.HELD_BY_LEASES, {"ids": list(budget_ids)})
    return {row.id: row.pusd for row in found}


async def note_call(session: AsyncSession, call_id: str, facts: Mapping[str, Any]) -> None:
    """Writes what is known of a call beside its money."""
    await session.execute(update(LedgerCallRow).where(LedgerCallRow.id == call_id).values(**facts))


async def say_waiting(session: AsyncSession, budget_id: str, for_s: float) -> None:
    await session.execute(statements.SAY_WAITING, {"id": budget_id, "for_s": for_s})


async def totals(session: AsyncSession, level: int) -> tuple[int, int, int]:
    """Returns pUSD spent, reserved, and spent beyond a bound, summed over the budgets of one level."""
    spent = BudgetRow.settled_pusd + BudgetRow.overrun_pusd
    sums = [func.coalesce(func.sum(column), 0) for column in (spent, BudgetRow.reserved_pusd, BudgetRow.overrun_pusd)]
    row = (await session.execute(select(*sums).where(BudgetRow.level == level))).one()
    return int(row[0]), int(row[1]), int(row[2])
