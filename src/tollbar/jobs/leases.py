"""Sandbox time is paid ahead: a meter reserves slices of a phase's budget and settles what was used.

One slice is at most 60 s; the next one is reserved when 30 s of the current one are left. A first slice that does
not fit waits for what is outstanding; a renewal waits until 5 s before its prepaid time ends. Then the cap is reached.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tollbar.budget import service as budget
from tollbar.budget.schemas import Chain, Decision, Lease, Purpose, Reached, Reserved, trial_subject
from tollbar.db.session import Database
from tollbar.jobs import store
from tollbar.jobs.states import TRIAL_WORKING
from tollbar.kit.cleanup import to_the_end
from tollbar.kit.clock import Clock

T = TypeVar("T")

SLICE_S: Final = 60
_RENEW_S: Final = 30.0
_LAST_CALL_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.25
_TAIL_S: Final = 5
"""What a phase may take beyond its time limit, to start, to end its processes and to seal; paid slice by slice."""
_SETTLINGS: Final = 24
"""With the pauses between them some seconds: a restart of the database costs nobody a whole slice."""

_log = structlog.get_logger()


class CapReached(Exception):
    """No further sandbox time fits under the cap: an outcome of the Trial and its Job, caught by the flow."""

    def __init__(self, reached: Reached, refused: Lease) -> None:
        super().__init__(refused.id)
        self.reached = reached
        self.refused = refused


class TryOver(Exception):
    """This try was taken over, or its Trial is being stopped: nothing more is spent on it and nothing written."""


@dataclass
class _Slice:
    lease: Lease
    start: float
    """On the monotonic clock; infinite for one of which nobody knows whether it was written: it was never used."""

    @property
    def end(self) -> float:
        return self.start + self.lease.seconds

    def used_s(self, now: float) -> int:
        """Returns the seconds begun; what floats leave behind the sixth place is no second."""
        return 0 if now <= self.start else min(self.lease.seconds, math.ceil(round(now - self.start, 6)))


@dataclass
class Meter:
    """Pays for the sandbox of one phase, as a context around its whole life. Free runners take no leases."""

    database: Database
    clock: Clock
    chain: Chain
    trial_id: str
    try_no: int
    purpose: Purpose
    worker_id: str
    sku: str
    """The runner, `namespace/name`."""
    rate_pusd: int
    """pUSD a second."""
    limit_s: float
    """The phase's time limit: no slice reaches further beyond it than `_TAIL_S`, so that none asks for idle time."""
    run_no: int = 1
    """Tells the runs of a verifier within one try apart."""
    _slices: list[_Slice] = field(default_factory=list[_Slice])
    """What is reserved and not ended, the current one last."""
    _asked: int = 0
    _leased_s: int = 0
    _stood: bool = False
    _renewing: asyncio.Task[CapReached] | None = None

    async def __aenter__(self) -> Self:
        if self.rate_pusd:
            try:
                await self._first()
            except BaseException:
                await to_the_end(self._close(self.clock.monotonic()))
                raise
            self._renewing = asyncio.create_task(self._renew())
        return self

    def sandbox_stands(self) -> None:
        """Says that there is a sandbox: from here on time is charged; before, everything is given back."""
        self._stood = True

    async def __aexit__(self, *_: object) -> None:
        # Money is settled whatever ended the phase, a cancellation included.
        await to_the_end(self._close(self.clock.monotonic()))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns what `work` returns, or cancels it and raises `CapReached` when the prepaid time runs out.

        Raises `TryOver` when the try may spend nothing more.
        """
        if self._renewing is None:
            return await work
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._renewing}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self._renewing.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _first(self) -> None:
        while True:
            decision, lease = await self._ask(min(SLICE_S, math.ceil(self.limit_s)), None)
            if isinstance(decision, Reserved):
                return
            if isinstance(decision, Reached):
                raise CapReached(decision, lease)
            await self.clock.sleep(_LOOK_AGAIN_S)

    async def _renew(self) -> CapReached:
        """Reserves slice after slice and settles each at its end; returns only when the cap is reached."""
        while True:
            current = self._slices[-1]
            ahead = min(_RENEW_S, current.lease.seconds / 2)
            await self._until(current.end - ahead)
            refused = await self._follow(current, current.end - min(_LAST_CALL_S, ahead))
            if refused is not None:
                return refused
            await self._until(current.end)
            await self._end(current, current.end)

    async def _follow(self, current: _Slice, deadline: float) -> CapReached | None:
        """Reserves the slice after the current one; a database that is away for a moment costs nobody a Trial."""
        while True:
            for unsure in [part for part in self._slices if math.isinf(part.start)]:
                await self._end(unsure, current.end)
            try:
                decision, lease = await self._ask(self._next_s(), current.end)
            except SQLAlchemyError as error:
                if self.clock.monotonic() >= deadline:
                    raise
                _log.warning("a lease could not be renewed, trying again", trial_id=self.trial_id, error=str(error))
            else:
                if isinstance(decision, Reserved):
                    return None
                if self.clock.monotonic() >= deadline:
                    # What was outstanding did not come back in time: nothing is prepaid any more.
                    last = Reached(decision.budget_id, decision.level, decision.worst_pusd)
                    return CapReached(last, lease)
            await self.clock.sleep(_LOOK_AGAIN_S)

    def _next_s(self) -> int:
        """Returns the length of the slice to come: what is left to the time limit, and small ones after it."""
        return min(SLICE_S, max(_TAIL_S, math.ceil(self.limit_s - self._leased_s)))

    async def _until(self, moment: float) -> None:
        await self.clock.sleep(max(0.0, moment - self.clock.monotonic()))

    async def _ask(self, seconds: int, start: float | None) -> tuple[Decision, Lease]:
        now = self.clock.monotonic()
        lease = self._lease(seconds, 0.0 if start is None else max(0.0, start - now))
        # Noted before it is asked for: whatever cuts this short, a slice that was written is ended.
        part = _Slice(lease, now if start is None else start)
        self._slices.append(part)
        try:
            decision = await self._reserve(lease)
        except Exception:
            # Perhaps it was written all the same: its number is not used again, and it does not count as the current.
            self._asked += 1
            self._slices.remove(part)
            self._slices.insert(0, _Slice(lease, math.inf))
            raise
        if isinstance(decision, Reserved):
            self._asked += 1
            self._leased_s += seconds
            if start is None:
                part.start = self.clock.monotonic()
        else:
            self._slices.remove(part)
        return decision, lease

    async def _reserve(self, lease: Lease) -> Decision:
        async with self.database.transaction() as session:
            if not await store.is_try(session, self.trial_id, self.try_no, TRIAL_WORKING):
                raise TryOver
            return await budget.reserve_lease(session, lease)

    def _lease(self, seconds: int, starts_in_s: float) -> Lease:
        return Lease(
            id=f"lease_{self.trial_id}_{self.try_no}_{self.purpose.value}_{self.run_no}_{self._asked + 1}",
            chain=self.chain,
            day=self.clock.now().date(),
            subject=trial_subject(self.trial_id, self.try_no),
            sku=self.sku,
            purpose=self.purpose,
            worker_id=self.worker_id,
            rate_pusd=self.rate_pusd,
            seconds=seconds,
            starts_in_s=starts_in_s,
        )

    async def _close(self, now: float) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for _ in range(_SETTLINGS):
            for part in list(self._slices):
                await self._end(part, now)
            if not self._slices:
                return
            await self.clock.sleep(_LOOK_AGAIN_S)

    async def _end(self, part: _Slice, now: float) -> None:
        """Settles one slice. What cannot be settled stays open, and is written off in full once its time is over."""
        try:
            async with self.database.transaction() as session:
                if self._stood:
                    await budget.settle_lease(session, part.lease.id, part.used_s(now) * self.rate_pusd)
                else:
                    await budget.release_lease(session, part.lease.id)
        except SQLAlchemyError:
            _log.exception("a lease could not be settled", lease=part.lease.id)
        else:
            self._slices.remove(part)
