"""One model call in the ledger: quoted, reserved, marked as sent, settled once. A stopped budget stops its work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import calls
from tollbar.budget import service as budget
from tollbar.budget.calls import Busy, Call, Held
from tollbar.budget.schemas import Reached
from tollbar.db.session import Database
from tollbar.gateway import bound, cost, keys
from tollbar.gateway.asks import Ask
from tollbar.gateway.books import Books
from tollbar.gateway.bound import Quote
from tollbar.gateway.dialects import budget_exceeded
from tollbar.gateway.errors import Code, Refused, Unmetered
from tollbar.gateway.keys import Key
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import Provider
from tollbar.gateway.relay import WHOLE_CALL_S, Ended, Outcome
from tollbar.gateway.traits import Traits
from tollbar.kit.clock import Clock
from tollbar.kit.ids import new_id

_GRACE_S: Final = 60.0
_PAUSES_S: Final = (0.1, 0.2, 0.5, 1, 2, 5, *(10,) * 90)
"""Between attempts to settle: until the call expires, and is written off at its worst."""

_log = structlog.get_logger()


class Stopper(Protocol):
    """What a stopped budget ends; the composition root hands it in."""

    async def __call__(self, session: AsyncSession, subject: str, stop: Callable[[], Awaitable[object]] | None) -> None:
        """Locks what stands above the budgets of a subject, awaits `stop`, which moves a budget, and ends what a
        stopped budget of the subject's chain ends, all in the caller's transaction. Safe to repeat.
        """
        ...


@dataclass(frozen=True)
class Asked:
    """A request that may be sent: who asks, whom, and for what. `traits` are those that price it."""

    key: Key
    provider: Provider
    traits: Traits
    ask: Ask

    @property
    def model(self) -> str:
        """Returns `provider:model`, as the ledger names it."""
        return f"{self.provider.id}:{self.ask.model}"


@dataclass(frozen=True)
class Sending:
    """A call whose worst case is reserved."""

    asked: Asked
    call: Call
    quote: Quote
    held: Held
    book: PriceBook

    @property
    def reserved_at(self) -> datetime:
        """Returns when, on the database's clock; its prices hold until the end of the call."""
        return self.held.expires_at - timedelta(seconds=self.call.life_s)


@dataclass(frozen=True)
class Metering:
    """The ledger's side of the gateway of one worker."""

    database: Database
    clock: Clock
    worker_id: str
    books: Books
    stopper: Stopper
    whole_call_s: float = WHOLE_CALL_S

    async def reserve(self, asked: Asked) -> Sending:
        """Reserves a call's worst case. Raises `Refused` with the numbers or the reason; nothing is reserved then."""
        call = self._call(asked)
        book = await self.books.of(asked.key.prices)
        quote = await self._quoted(asked, call, book)
        call = _with(call, quote)
        try:
            found = await calls.reserve_patiently(self.database, self.clock, call, quote, _holding(asked.key))
        except SQLAlchemyError:
            _log.exception("a model call could not be reserved", call=call.id)
            raise Refused(Code.LEDGER_UNAVAILABLE, "the ledger cannot be written now") from None
        if isinstance(found, Held):
            return Sending(asked, call, quote, found, book)
        if isinstance(found, Busy):
            text = "the call fits only when others that are under way come back below their worst case"
            raise Refused(Code.BUDGET_BUSY, text)
        raise await self._reached(call, found)

    async def mark_sent(self, sending: Sending) -> None:
        """Says that the call goes out now. Raises `Refused` when it was released meanwhile: it must not be sent."""
        async with self.database.transaction() as session:
            if not await calls.mark_sent(session, sending.call.id):
                raise Refused(Code.LEDGER_UNAVAILABLE, "the reservation of this call ended before it was sent")

    async def withdraw(self, sending: Sending) -> None:
        """Gives back what was reserved for a call that could not be sent; one that was sent is left to its settling."""
        try:
            async with self.database.transaction() as session:
                await calls.withdraw(session, sending.call.id)
        except SQLAlchemyError:
            # It is released when it expires.
            _log.exception("a reservation could not be given back", call=sending.call.id)

    async def note_refused(self, asked: Asked, code: Code) -> None:
        """Keeps a refusal that costs nothing and stops nothing as a row of its own; raises it of a key that is over."""
        async with self.database.transaction() as session:
            await _holding(asked.key)(session)
            await calls.note_refused(session, self._call(asked), code.value)

    def settling(self, sending: Sending) -> Callable[[Ended], Awaitable[None]]:
        """Returns what settles the call at its end; it tries until the ledger answers or the call has expired."""

        async def settle(ended: Ended) -> None:
            for pause_s in _PAUSES_S:
                try:
                    await self._settle(sending, ended)
                except SQLAlchemyError:
                    _log.exception("a model call could not be settled", call=sending.call.id, again_in_s=pause_s)
                else:
                    return
                await asyncio.sleep(pause_s)

        return settle

    def _call(self, asked: Asked) -> Call:
        key, ask = asked.key, asked.ask
        chain = key.chain.as_simulated() if asked.provider.is_scripted else key.chain
        return Call(
            id=new_id("call"),
            chain=chain,
            day=self.clock.now().date(),
            subject=key.subject,
            purpose=key.purpose,
            worker_id=self.worker_id,
            sku=asked.model,
            life_s=self.whole_call_s + _GRACE_S,
            facts={
                "key_id": key.id,
                "provider": asked.provider.id,
                "dialect": ask.dialect.value,
                "streamed": ask.streamed,
                "model_asked": ask.model,
                "candidates": ask.candidates,
            },
        )

    async def _quoted(self, asked: Asked, call: Call, book: PriceBook) -> Quote:
        """Returns the bound; in a chain without any cap also that of a call which has none."""
        now = self.clock.now()
        until = now + timedelta(seconds=self.whole_call_s)

        def quoted(*, capped: bool) -> Quote:
            return bound.quote(asked.ask, book, asked.traits, now, until, capped=capped)

        try:
            return quoted(capped=True) if book.is_read else await asyncio.to_thread(quoted, capped=True)
        except Refused as refused:
            async with self.database.transaction() as session:
                if not await budget.is_capped(session, call.chain, call.day):
                    return quoted(capped=False)
            if refused.code is Code.BUDGET_UNMETERED:
                await self._stop(call, lambda session: calls.stop_unpriced(session, call))
            raise

    async def _reached(self, call: Call, found: Reached) -> Refused:
        await self._stop(call, lambda session: calls.stop(session, found, call))
        async with self.database.session() as session:
            view = (await budget.views(session, [found.budget_id]))[found.budget_id]
        cap = view.cap_pusd or 0
        left = max(0, cap - view.spent_pusd)
        return budget_exceeded(found.worst_pusd, left, cap, view.spent_pusd, view.reserved_pusd)

    async def _stop(self, call: Call, stop: Callable[[AsyncSession], Awaitable[object]]) -> None:
        try:
            async with self.database.transaction() as session:
                await self.stopper(session, call.subject, lambda: stop(session))
        except SQLAlchemyError:
            _log.exception("a reached cap could not be written", call=call.id)
            raise Refused(Code.LEDGER_UNAVAILABLE, "the ledger cannot be written now") from None

    async def _settle(self, sending: Sending, ended: Ended) -> None:
        facts = _facts(ended, sending)
        async with self.database.transaction() as session:
            done = await self._end(session, sending, ended, facts)
        if isinstance(done, calls.Ended) and done.stopped:
            async with self.database.transaction() as session:
                await self.stopper(session, sending.call.subject, None)

    async def _end(
        self, session: AsyncSession, sending: Sending, ended: Ended, facts: dict[str, Any]
    ) -> calls.Ended | bool | None:
        call_id, outcome = sending.call.id, ended.outcome
        if outcome is Outcome.HTTP_ERROR and sending.asked.provider.bills_errors:
            return await calls.settle_at_worst(session, call_id, outcome.value, facts)
        if not outcome.billed:
            return await calls.release(session, call_id, outcome.value, facts)
        if outcome is not Outcome.OK:
            return await calls.settle_at_worst(session, call_id, outcome.value, facts)
        asked = sending.asked
        try:
            found = cost.settle(ended.reported, sending.book, asked.traits, asked.ask.model, sending.reserved_at)
        except Unmetered as error:
            _log.warning("a model call has no readable price", call=call_id, model=asked.model, problem=str(error))
            return await calls.settle_unmetered(session, call_id, facts)
        rates = found.rates.effective(found.counts["input_tokens"])
        facts |= {
            "usage": dict(found.counts),
            "price_snapshot": found.rates.snapshot,
            "rates": rates,
            "price_context": dict(found.context),
        }
        return await calls.settle(session, call_id, found.cost_pusd, facts)


def _holding(key: Key) -> Callable[[AsyncSession], Awaitable[None]]:
    async def hold(session: AsyncSession) -> None:
        if not await keys.hold(session, key):
            raise Refused(Code.KEY_INVALID, "the key is over")

    return hold


def _with(call: Call, quote: Quote) -> Call:
    priced = (
        {}
        if quote.rates is None
        else {
            "price_snapshot": quote.rates.snapshot,
            "rates": quote.rates.effective(quote.input_bound),
            "price_context": dict(quote.context),
        }
    )
    facts: Mapping[str, Any] = {**call.facts, "input_bound": quote.input_bound, **priced}
    return call.noting(facts)


def _facts(ended: Ended, sending: Sending) -> dict[str, Any]:
    """Returns what the row keeps of an end, whatever it cost."""
    head, reported = ended.head, ended.reported
    facts: dict[str, Any] = {"client_gone": ended.client_gone}
    if head is not None:
        named = {name.lower(): value for name, value in head.headers}
        facts["http_status"] = head.status
        facts["upstream_request_id"] = named.get("x-request-id") or named.get("request-id")
    if reported is not None:
        facts |= {"model_reported": reported.model, "truncated": reported.truncated, "usage": dict(reported.document)}
    if ended.first_byte_s is not None:
        facts["first_byte_at"] = sending.reserved_at + timedelta(seconds=ended.first_byte_s)
    return facts
