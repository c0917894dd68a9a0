"""Every statement on money. Budgets are always locked before calls, in the order level, id: no deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, bindparam, insert, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget.schemas import BudgetState, CallState, Lease
from tollbar.budget.tables import BudgetRow, LedgerCallRow

NOW: Final = text("clock_timestamp()")
"""The database's own clock, as a value of a row."""
_IDS = bindparam("ids", type_=ARRAY(TEXT))
_OPEN_CALLS = ("reserved", "sent")

_LOCK = text("SELECT id FROM budget WHERE id = ANY(:ids) ORDER BY level, id FOR UPDATE").bindparams(_IDS)

# The conditional update alone keeps the cap; the lock before it only lets us name the row that refuses.
_RESERVE = text(
    """
    UPDATE budget SET reserved_pusd = reserved_pusd + :worst
     WHERE id = ANY(:ids) AND state = 'open'
       AND (cap_pusd IS NULL OR settled_pusd + overrun_pusd + reserved_pusd + :worst <= cap_pusd)
    """
).bindparams(_IDS)

_INSERT_LEASE = text(
    """
    INSERT INTO ledger_call (id, kind, purpose, budget_ids, subject, worker_id, rate_pusd, worst_pusd, state,
                             sent_at, expires_at)
    VALUES (:id, 'sandbox', :purpose, :ids, :subject, :worker, :rate, :worst, 'sent',
            clock_timestamp() + make_interval(secs => :ahead),
            clock_timestamp() + make_interval(secs => :ahead + :seconds))
    RETURNING expires_at
    """
).bindparams(_IDS)

_INSERT_REFUSED = text(
    """
    INSERT INTO ledger_call (id, kind, purpose, budget_ids, subject, worker_id, rate_pusd, worst_pusd, state, outcome,
                             ended_at, expires_at)
    VALUES (:id, 'sandbox', :purpose, :ids, :subject, :worker, :rate, :worst, 'refused', 'exceeded',
            clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO NOTHING
    """
).bindparams(_IDS)

# What an open lease has used so far can no longer come back; the rest of it still can.
_GONE = text(
    """
    SELECT coalesce(sum(least(worst_pusd,
             rate_pusd * greatest(0, ceil(extract(epoch FROM clock_timestamp() - sent_at)))::bigint)), 0)::bigint
      FROM ledger_call
     WHERE budget_ids @> :ids AND kind = 'sandbox' AND state IN ('reserved', 'sent')
    """
).bindparams(_IDS)

_END_CALL = text(
    """
    UPDATE ledger_call
       SET state = :to, outcome = :outcome, ended_at = clock_timestamp(),
           cost_pusd = LEAST(CAST(:cost AS bigint), worst_pusd),
           overrun_pusd = GREATEST(CAST(:cost AS bigint) - worst_pusd, 0)
     WHERE id = :id AND state IN ('reserved', 'sent')
     RETURNING budget_ids, kind, purpose, worst_pusd, cost_pusd, overrun_pusd
    """
)

_APPLY = text(
    """
    UPDATE budget
       SET reserved_pusd = reserved_pusd - :worst, settled_pusd = settled_pusd + :cost,
           overrun_pusd = overrun_pusd + :overrun, model_pusd = model_pusd + :model,
           verifier_pusd = verifier_pusd + :verifier
     WHERE id = ANY(:ids)
    """
).bindparams(_IDS)


async def add_budget(session: AsyncSession, budget_id: str, level: int, subject: str, cap_pusd: int | None) -> None:
    await session.execute(insert(BudgetRow).values(id=budget_id, level=level, subject=subject, cap_pusd=cap_pusd))


async def lock(session: AsyncSession, budget_ids: Sequence[str]) -> None:
    """Locks the rows, outermost first."""
    await session.execute(_LOCK, {"ids": list(budget_ids)})


async def locked(session: AsyncSession, budget_ids: Sequence[str]) -> list[BudgetRow]:
    """Locks the rows and returns them, outermost first."""
    await lock(session, budget_ids)
    rows = await session.scalars(
        select(BudgetRow)
        .where(BudgetRow.id.in_(budget_ids))
        .order_by(BudgetRow.level, BudgetRow.id)
        .execution_options(populate_existing=True)
    )
    return list(rows)


async def reserve(session: AsyncSession, budget_ids: Sequence[str], worst_pusd: int) -> bool:
    """Reserves on every row of the chain or says no (the caller then rolls back)."""
    result: Any = await session.execute(_RESERVE, {"ids": list(budget_ids), "worst": worst_pusd})
    return result.rowcount == len(set(budget_ids))


async def add_lease(session: AsyncSession, lease: Lease) -> Any:
    """Writes the lease as sent, counted on the database's clock, and returns when it expires."""
    times = {"seconds": lease.seconds, "ahead": lease.starts_in_s}
    return await session.scalar(_INSERT_LEASE, _values(lease) | times)


async def add_refused(session: AsyncSession, lease: Lease) -> None:
    """Writes a lease that did not fit, once; it touches no budget."""
    await session.execute(_INSERT_REFUSED, _values(lease))


def _values(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "purpose": lease.purpose.value,
        "ids": list(lease.chain),
        "subject": lease.subject,
        "worker": lease.worker_id,
        "rate": lease.rate_pusd,
        "worst": lease.worst_pusd,
    }


async def surely_gone(session: AsyncSession, budget_id: str) -> int:
    """Returns pUSD of open sandbox leases on that row that were used already and cannot come back."""
    return int(await session.scalar(_GONE, {"ids": [budget_id]}) or 0)


async def chain_of(session: AsyncSession, call_id: str) -> list[str]:
    ids = await session.scalar(select(LedgerCallRow.budget_ids).where(LedgerCallRow.id == call_id))
    return list(ids or [])


async def end_call(session: AsyncSession, call_id: str, to: CallState, outcome: str, cost_pusd: int) -> Row[Any] | None:
    """Ends a call once; None when somebody ended it before."""
    values = {"id": call_id, "to": to.value, "outcome": outcome, "cost": cost_pusd}
    return (await session.execute(_END_CALL, values)).one_or_none()


async def apply_end(session: AsyncSession, ended: Row[Any]) -> None:
    """Moves the money of an ended call from reserved to settled on its chain."""
    spent = ended.cost_pusd + ended.overrun_pusd
    verifier = spent if ended.purpose == "verifier" else 0
    await session.execute(
        _APPLY,
        {
            "ids": list(ended.budget_ids),
            "worst": ended.worst_pusd,
            "cost": ended.cost_pusd,
            "overrun": ended.overrun_pusd,
            "verifier": verifier,
            "model": spent - verifier if ended.kind == "model" else 0,
        },
    )


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


async def read(session: AsyncSession, budget_ids: Sequence[str]) -> dict[str, BudgetRow]:
    rows = await session.scalars(
        select(BudgetRow).where(BudgetRow.id.in_(budget_ids)).execution_options(populate_existing=True)
    )
    return {row.id: row for row in rows}


async def subjects_of(session: AsyncSession, call_ids: Sequence[str]) -> dict[str, str]:
    """Returns whose calls these are, by call id."""
    calls = LedgerCallRow
    found = await session.execute(select(calls.id, calls.subject).where(calls.id.in_(call_ids)))
    return {row.id: row.subject for row in found}


async def spent_by_subject(session: AsyncSession, subjects: Sequence[str]) -> list[Any]:
    """Returns (subject, kind, purpose, pUSD) of those subjects.

    Whole subjects are compared: a range of text would mean something else in every other collation.
    """
    found = await session.execute(
        text(
            """
            SELECT subject, kind, purpose, sum(coalesce(cost_pusd, 0) + overrun_pusd)::bigint AS pusd
              FROM ledger_call WHERE subject = ANY(:ids) GROUP BY subject, kind, purpose
            """
        ).bindparams(_IDS),
        {"ids": list(subjects)},
    )
    return list(found.all())
