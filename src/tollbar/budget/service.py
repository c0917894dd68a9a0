"""Rules of money: reserve before spending, settle after, stop at the cap (design, section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import store
from tollbar.budget.errors import UnknownBudget
from tollbar.budget.schemas import (
    WARN_PERCENT,
    BudgetState,
    BudgetView,
    CallCounts,
    CallState,
    Chain,
    Decision,
    Lease,
    Level,
    Reached,
    Reserved,
    Spent,
    Wait,
    trial_budget_id,
)
from tollbar.budget.tables import BudgetRow
from tollbar.kit.ids import new_id

_COUNTS: Final = ("calls", "unpriced", "worst_case", "clamped", "truncated", "simulated")

_log = structlog.get_logger()


async def open_budget(session: AsyncSession, level: Level, subject: str, cap_pusd: int | None) -> str:
    """Opens a budget and returns its id; `cap_pusd` None means that it only counts."""
    budget_id = new_id("bud")
    await store.add_budget(session, budget_id, level.rank, f"{level.value}:{subject}", cap_pusd)
    return budget_id


async def open_shares(session: AsyncSession, trial_ids: Sequence[str], cap_pusd: int) -> None:
    """Opens each Trial's own share of its Job, which all of its tries have together; repeating it changes nothing."""
    subjects = {trial_budget_id(trial_id): f"{Level.TRIAL.value}:{trial_id}" for trial_id in trial_ids}
    await store.add_budgets(session, Level.TRIAL.rank, cap_pusd, subjects)


async def reserve_lease(session: AsyncSession, lease: Lease) -> Decision:
    """Reserves a slice of sandbox time on the whole chain, or says that it must wait, or that a cap is reached.

    Reached means: the slice does not fit although every outstanding reservation came back as far as it still can
    (an open lease keeps what it has used). Runs in the caller's transaction, which must end right after.
    """
    rows = await locked_chain(session, lease.chain, lease.day)
    short = await _short(session, rows, lease.worst_pusd)
    if short is not None:
        return short
    expires_at = await store.reserve_lease(session, lease, [row.id for row in rows])
    assert expires_at is not None, "the rows are locked and were just found to have enough"
    return Reserved(expires_at)


async def locked_chain(session: AsyncSession, chain: Chain, day: date) -> list[Any]:
    """Locks and returns the budgets of a chain, with the project's day where the project limits it."""
    rows = await store.lock_chain(session, chain, day)
    found = {row.id for row in rows}
    if missing := [budget_id for budget_id in chain.budgets if budget_id not in found]:
        raise UnknownBudget(missing)
    if chain.day_id(day) not in found and (not rows or rows[0].limited):
        # The first call of a day. Its row is waited for behind inner ones only here, where nobody can hold it yet.
        await store.open_day(session, chain, day)
        rows = await store.lock_chain(session, chain, day)
    return rows


async def is_capped(session: AsyncSession, chain: Chain, day: date) -> bool:
    """Says whether a budget of the chain has a cap, or the project limits its days."""
    return await store.is_capped(session, chain, day)


async def _short(session: AsyncSession, rows: Sequence[Any], worst_pusd: int) -> Wait | Reached | None:
    """Returns which of the (locked) budgets has too little for `worst_pusd`, the outermost first; None: all have it."""
    lacking = [row for row in rows if row.cap_pusd is not None and worst_pusd > solid_pusd(row) - row.reserved_pusd]
    used = await store.used_by_open_leases(session, [row.id for row in lacking]) if lacking else {}
    for row in rows:
        if row.state != BudgetState.OPEN or (row.id in used and worst_pusd > solid_pusd(row) - used[row.id]):
            return Reached(row.id, Level.of_rank(row.level), worst_pusd)
    return Wait(lacking[0].id, Level.of_rank(lacking[0].level), worst_pusd) if lacking else None


def solid_pusd(row: Any) -> int:
    """Returns what of a cap would be left if everything reserved came back."""
    return row.cap_pusd - row.spent_pusd


async def settle_lease(session: AsyncSession, lease_id: str, cost_pusd: int) -> bool:
    """Settles a lease at what was used and frees the rest; False when it had ended before (no money moves)."""
    return await _end(session, lease_id, CallState.SETTLED, "used", cost_pusd)


async def release_lease(session: AsyncSession, lease_id: str) -> bool:
    """Gives back a lease whose sandbox never stood, at no cost; False when it had ended before."""
    return await _end(session, lease_id, CallState.RELEASED, "unused", 0)


async def write_off(session: AsyncSession, *, subjects: Sequence[str] = (), workers: Sequence[str] = ()) -> int:
    """Settles open calls of lost tries or dead workers at their worst case: a loss is never counted as zero.

    Returns how many were ended; the rest had been ended by somebody else.
    """
    if not subjects and not workers:
        return 0
    return await _write_off(session, await store.open_calls(session, subjects=subjects, workers=workers), "crash")


async def write_off_expired(session: AsyncSession, limit: int = 100) -> int:
    """Writes off calls whose lease ended more than a minute ago without a word from their worker."""
    return await _write_off(session, await store.expired_calls(session, limit), "expired")


async def _write_off(session: AsyncSession, calls: Sequence[Any], outcome: str) -> int:
    """Ends calls that nobody will end; what was reserved and never sent costs nothing."""
    # All budgets at once, in the one order that everybody keeps: call by call, two of these could wait for each other.
    await store.lock(session, sorted({budget_id for call in calls for budget_id in call.budget_ids}))
    done = 0
    for call in calls:
        sent = call.state == CallState.SENT
        to, cost_pusd = (CallState.WRITTEN_OFF, call.worst_pusd) if sent else (CallState.RELEASED, 0)
        done += await _end(session, call.id, to, outcome, cost_pusd)
    return done


async def _end(session: AsyncSession, call_id: str, to: CallState, outcome: str, cost_pusd: int) -> bool:
    ended = await store.end_call(session, call_id, to, outcome, cost_pusd)
    tell_warned(ended)
    return ended is not None


def tell_warned(ended: Any) -> None:
    """Logs, once for each, the budgets of which an ended call made 80 % spent."""
    for budget_id in (ended and ended.warned) or ():
        _log.warning("most of a cap is spent", budget=budget_id, percent=WARN_PERCENT)


async def stop(session: AsyncSession, reached: Reached, refused: Lease) -> bool:
    """Marks a budget as exceeded and keeps what did not fit; True for the one caller whose refusal did it.

    A Trial's own share stops itself, and with it that Trial. The Job's cap and the project's day stop the budget of
    the Job: a day goes on for others, and is over for them when they ask.
    """
    await store.add_refused(session, refused)
    return await store.move(
        session,
        reached.budget_id if reached.level is Level.TRIAL else refused.chain.budgets[0],
        BudgetState.EXCEEDED,
        came_from=BudgetState.OPEN,
        stopped_by=refused.id,
        stopped_scope=reached.level.value,
        stopped_worst_pusd=reached.worst_pusd,
        stopped_at=store.NOW,
    )


async def close_shares(session: AsyncSession, trial_ids: Sequence[str]) -> None:
    """Closes the shares of Trials that have ended."""
    await store.close_open(session, [trial_budget_id(trial_id) for trial_id in trial_ids])


async def close(session: AsyncSession, budget_id: str) -> None:
    """Closes an open budget when its Job is over; one that stopped the Job keeps saying so."""
    await store.move(session, budget_id, BudgetState.CLOSED, came_from=BudgetState.OPEN)


async def view(session: AsyncSession, budget_id: str) -> BudgetView:
    """Returns one budget; it must exist."""
    return (await views(session, [budget_id]))[budget_id]


async def views(session: AsyncSession, budget_ids: Sequence[str]) -> dict[str, BudgetView]:
    """Returns budgets by id; the number of queries does not depend on theirs."""
    rows = await store.read(session, budget_ids)
    stoppers = [row.stopped_by for row in rows.values() if row.stopped_by is not None]
    subjects = await store.subjects_of(session, stoppers) if stoppers else {}
    return {key: _view(row, subjects) for key, row in rows.items()}


async def spent_on_many(session: AsyncSession, tries: Mapping[str, Sequence[str]]) -> dict[str, Spent]:
    """Returns what was spent under each name, over the subjects that it stands for (all tries of a Trial)."""
    names = {subject: name for name, subjects in tries.items() for subject in subjects}
    rows: dict[str, list[Any]] = {name: [] for name in tries}
    for row in await store.spent_by_subject(session, list(names)):
        rows[names[row.subject]].append(row)
    return {name: _spent(found) for name, found in rows.items()}


def _spent(rows: Sequence[Any]) -> Spent:
    """Returns the sum of rows by kind and purpose."""

    def pusd(kind: str, *, verifier: bool) -> int:
        return sum(row.pusd for row in rows if row.kind == kind and (row.purpose == "verifier") is verifier)

    counts = CallCounts(
        **{name: sum(getattr(row, name) for row in rows) for name in _COUNTS},
        price_snapshot=max((row.price_snapshot for row in rows if row.price_snapshot), default=None),
    )
    return Spent(
        model_pusd=pusd("model", verifier=False),
        sandbox_pusd=pusd("sandbox", verifier=False),
        verifier_model_pusd=pusd("model", verifier=True),
        verifier_sandbox_pusd=pusd("sandbox", verifier=True),
        reserved_pusd=sum(row.reserved for row in rows),
        overrun_pusd=sum(row.overrun for row in rows),
        counts=counts,
    )


def _view(row: BudgetRow, stoppers: Mapping[str, Any]) -> BudgetView:
    stopper = stoppers.get(row.stopped_by or "")
    return BudgetView(
        budget_id=row.id,
        cap_pusd=row.cap_pusd,
        settled_pusd=row.settled_pusd,
        reserved_pusd=row.reserved_pusd,
        overrun_pusd=row.overrun_pusd,
        model_pusd=row.model_pusd,
        verifier_pusd=row.verifier_pusd,
        state=BudgetState(row.state),
        stopped_by=row.stopped_by,
        stopped_subject=None if stopper is None else stopper.subject,
        stopped_model=stopper.sku if stopper is not None and stopper.kind == "model" else None,
        stopped_scope=row.stopped_scope,
        stopped_worst_pusd=row.stopped_worst_pusd,
        warned_at=row.warned_at,
        verifier_model_pusd=row.verifier_model_pusd,
        counts=CallCounts(
            calls=row.model_calls,
            unpriced=row.unpriced_calls,
            worst_case=row.worst_case_calls,
            clamped=row.clamped_calls,
            truncated=row.truncated_calls,
            simulated=row.simulated_calls,
            price_snapshot=row.price_snapshot,
        ),
    )
