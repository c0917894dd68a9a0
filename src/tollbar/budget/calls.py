"""Model calls in the ledger: reserve the worst case, mark it sent, end it once. The gateway says what a call can cost.

When a call does not fit it waits for what is outstanding, and is clamped only to what of the cap is really gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import service, store
from tollbar.budget.schemas import BudgetState, CallState, Chain, Level, Reached, Wait
from tollbar.db.session import Database
from tollbar.kit.clock import Clock

LOOK_AGAIN_S: Final = 0.25
PATIENCE_S: Final = 45.0
"""How long a call waits for outstanding reservations; some clients give up after a minute."""
_SAY_EVERY_S: Final = 1.0
_SAID_FOR_S: Final = 2.0


class Quoted(Protocol):
    """What a call costs at most, by its output limit in tokens."""

    @property
    def asked(self) -> int: ...
    @property
    def least(self) -> int: ...

    def worst(self, output_tokens: int) -> int:
        """Returns pUSD."""
        ...

    def fitting(self, pusd: int) -> int:
        """Returns the highest limit, at most `asked`, whose worst case is not above `pusd`; may be below 0."""
        ...


class CallPurpose(StrEnum):
    """Whose spending a model call is."""

    AGENT = "agent"
    VERIFIER = "verifier"
    TEAM = "team"
    SYSTEM = "system"


@dataclass(frozen=True)
class Call:
    """One attempt at a provider, before it is sent; a retry is another one."""

    id: str
    chain: Chain
    day: date
    """The UTC day on which it is asked for."""
    subject: str
    """`trial:<id>:<try_no>` or `run:<id>`."""
    purpose: CallPurpose
    worker_id: str
    sku: str
    """`provider:model`."""
    life_s: float
    """When it counts as lost: the longest that it can take, and a minute."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further columns of its row: key, provider, dialect, models, bound, rates."""

    def noting(self, facts: Mapping[str, Any]) -> Call:
        """Returns the same call with these further columns."""
        return replace(self, facts={**self.facts, **facts})


@dataclass(frozen=True)
class Held:
    """The worst case is reserved: send with this output limit, after `mark_sent`."""

    limit: int
    worst_pusd: int
    clamped: bool
    expires_at: datetime


@dataclass(frozen=True)
class Busy:
    """The call would fit if outstanding reservations came back, and they did not in time."""


@dataclass(frozen=True)
class Ended:
    """A call that this caller ended. `stopped`: its chain's budget was stopped for it, for the Job or run to follow."""

    overrun_pusd: int
    stopped: bool = False


async def reserve(session: AsyncSession, call: Call, quote: Quoted) -> Held | Wait | Reached:
    """Reserves the worst case on the whole chain, or says that the call must wait, or that a cap is reached.

    The output limit is lowered only against money that is gone or held by sandboxes, never because a neighbour holds
    a reservation. Runs in the caller's transaction, which must end right after.
    """
    rows = await service.locked_chain(session, call.chain, call.day)
    choice = await _choose(session, rows, quote)
    if not isinstance(choice, int):
        return choice
    worst, ids = quote.worst(choice), [row.id for row in rows]
    reserved = await store.reserve(session, ids, worst)
    assert reserved, "the rows are locked and were just found to have enough"
    clamped = choice < quote.asked
    values = _values(call, ids, worst) | {"output_limit": choice, "clamped": clamped, "state": CallState.RESERVED.value}
    return Held(choice, worst, clamped, await store.add_call(session, values, call.life_s))


async def _choose(session: AsyncSession, rows: Sequence[Any], quote: Quoted) -> int | Wait | Reached:
    """Returns the output limit that the (locked) budgets allow now."""
    least, asked = quote.worst(quote.least), quote.worst(quote.asked)
    for row in rows:
        if row.state != BudgetState.OPEN:
            return Reached(row.id, Level.of_rank(row.level), least)
    capped = [row for row in rows if row.cap_pusd is not None]
    if all(asked <= _free(row) for row in capped):
        return quote.asked
    held = await store.held_by_leases(session, [row.id for row in capped])
    for row in capped:
        if least > service.solid_pusd(row) - held[row.id]:
            return Reached(row.id, Level.of_rank(row.level), least)
    limit = min(quote.fitting(service.solid_pusd(row) - held[row.id]) for row in capped)
    short = [row for row in capped if quote.worst(limit) > _free(row)]
    return Wait(short[0].id, Level.of_rank(short[0].level), quote.worst(limit)) if short else limit


def _free(row: Any) -> int:
    return service.solid_pusd(row) - row.reserved_pusd


def _values(call: Call, budget_ids: Sequence[str], worst_pusd: int) -> dict[str, Any]:
    return {
        **call.facts,
        "id": call.id,
        "kind": "model",
        "purpose": call.purpose.value,
        "budget_ids": list(budget_ids),
        "project_id": call.chain.project_id,
        "day": call.day,
        "subject": call.subject,
        "sku": call.sku,
        "simulated": call.chain.simulated,
        "worker_id": call.worker_id,
        "worst_pusd": worst_pusd,
    }


Check = Callable[[AsyncSession], Awaitable[None]]
"""Looks, in the transaction of a reservation, whether its caller may still spend; raises when not."""


async def reserve_patiently(
    database: Database, clock: Clock, call: Call, quote: Quoted, check: Check | None = None
) -> Held | Reached | Busy:
    """Does the same in transactions of its own, and waits up to 45 s for what is outstanding.

    While it waits it holds no lock, and the outermost budget of its chain says so; whoever cancels it leaves no trace.
    Raises what `check` raises.
    """
    deadline = clock.monotonic() + PATIENCE_S
    say_at = clock.monotonic()
    while True:
        async with database.transaction() as session:
            found = await reserve(session, call, quote)
            if check is not None:
                # Last, as whoever ends the work takes its key last, too: nobody waits in a circle.
                await check(session)
        if not isinstance(found, Wait):
            return found
        now = clock.monotonic()
        if now >= deadline:
            return Busy()
        if now >= say_at and call.chain.budgets:
            say_at = now + _SAY_EVERY_S
            async with database.transaction() as session:
                await store.say_waiting(session, call.chain.budgets[0], _SAID_FOR_S)
        await clock.sleep(LOOK_AGAIN_S)


async def mark_sent(session: AsyncSession, call_id: str) -> bool:
    """Says that the call goes out now; False: it was released meanwhile, and must not be sent."""
    return await store.mark_sent(session, call_id)


async def settle(session: AsyncSession, call_id: str, cost_pusd: int, facts: Mapping[str, Any]) -> Ended | None:
    """Settles a sent call at what its usage costs; None: somebody ended it before, and the usage is only kept.

    A cost above the worst case is charged whole, as far as the reservation goes on its row and the rest as overrun,
    and stops a capped chain: the bound did not hold.
    """
    return await _end_sent(session, call_id, "ok", cost_pusd, facts, priced=True)


async def settle_at_worst(session: AsyncSession, call_id: str, outcome: str, facts: Mapping[str, Any]) -> Ended | None:
    """Charges a sent call its worst case, because nobody knows what it cost: a reset, a time-out, a cut drain."""
    return await _end_sent(session, call_id, outcome, None, facts, priced=True)


async def settle_unmetered(session: AsyncSession, call_id: str, facts: Mapping[str, Any]) -> Ended | None:
    """Charges an answered call that cannot be priced its worst case, and stops a capped chain as `unmetered`."""
    return await _end_sent(session, call_id, "unmetered", None, facts, priced=False)


async def release(session: AsyncSession, call_id: str, outcome: str, facts: Mapping[str, Any]) -> bool:
    """Gives a call back at no cost: nothing can have reached the provider, or the provider refused."""
    ended = await store.end_call(session, call_id, CallState.RELEASED, outcome, 0)
    if ended is not None and facts:
        await store.note_call(session, call_id, facts)
    return ended is not None


async def withdraw(session: AsyncSession, call_id: str) -> bool:
    """Gives back what was reserved for a call that will not be sent; False when it was sent, or has ended."""
    return (
        await store.end_call(session, call_id, CallState.RELEASED, "not_sent", 0, (CallState.RESERVED,))
    ) is not None


async def _end_sent(
    session: AsyncSession, call_id: str, outcome: str, cost_pusd: int | None, facts: Mapping[str, Any], *, priced: bool
) -> Ended | None:
    truncated = bool(facts.get("truncated"))
    ended = await store.end_call(
        session, call_id, CallState.SETTLED, outcome, cost_pusd, (CallState.SENT,), priced=priced, truncated=truncated
    )
    if ended is None:
        if "usage" in facts:
            await store.note_call(session, call_id, {"usage_late": facts["usage"]})
        return None
    service.tell_warned(ended)
    over = ended.overrun_pusd > 0
    more = {"outcome": "overrun"} if over else {}
    await store.note_call(session, call_id, {**facts, **more, "priced": priced})
    stopped = False
    if over or not priced:
        state = BudgetState.EXCEEDED if over else BudgetState.UNMETERED
        stopped = await _stop_capped(session, call_id, ended.budget_ids, state, "overrun" if over else Level.JOB.value)
    return Ended(ended.overrun_pusd, stopped)


async def _stop_capped(
    session: AsyncSession, call_id: str, budget_ids: Sequence[str], state: BudgetState, scope: str
) -> bool:
    """Stops the Job's (or run's) budget if its chain has a cap; False: there is none, or it had stopped before."""
    rows = (await store.read(session, budget_ids)).values()
    own = [row for row in rows if row.level == Level.JOB.rank]
    if not own or all(row.cap_pusd is None for row in rows):
        return False
    return await _stop(session, own[0].id, state, call_id, scope, None)


async def note_refused(session: AsyncSession, refused: Call, code: str) -> None:
    """Keeps a call that was refused for what it asks, and not for money; no budget changes."""
    values = _values(refused, refused.chain.budgets, 0)
    await store.add_refused_call(session, values | {"outcome": "refused", "code": code})


async def stop(session: AsyncSession, reached: Reached, refused: Call) -> bool:
    """Marks a budget as exceeded and keeps the call that did not fit; True for the caller whose refusal did it.

    As for leases: a Trial's share stops itself, the Job's cap and the project's day stop the budget of the Job.
    """
    values = _values(refused, refused.chain.budgets, reached.worst_pusd)
    await store.add_refused_call(session, values | {"outcome": "exceeded", "code": "BUDGET_EXCEEDED"})
    target = reached.budget_id if reached.level is Level.TRIAL else refused.chain.budgets[0]
    return await _stop(session, target, BudgetState.EXCEEDED, refused.id, reached.level.value, reached.worst_pusd)


async def stop_unpriced(session: AsyncSession, refused: Call) -> bool:
    """Marks the budget of a capped chain as unmetered for a call whose model has no price; it was never sent."""
    values = _values(refused, refused.chain.budgets, 0)
    await store.add_refused_call(session, values | {"outcome": "unmetered", "code": "BUDGET_UNMETERED"})
    target = refused.chain.budgets[0]
    return await _stop(session, target, BudgetState.UNMETERED, refused.id, Level.JOB.value, None)


async def _stop(
    session: AsyncSession, budget_id: str, state: BudgetState, by: str, scope: str, worst_pusd: int | None
) -> bool:
    return await store.move(
        session,
        budget_id,
        state,
        came_from=BudgetState.OPEN,
        stopped_by=by,
        stopped_scope=scope,
        stopped_worst_pusd=worst_pusd,
        stopped_at=store.NOW,
    )
