"""Sandbox time is paid ahead: a meter reserves slices of a phase's budget and settles what was used.

One slice is at most 60 s; the next one is reserved when 30 s of the current one are left. A first slice that does
not fit waits for what is outstanding; a renewal waits until 5 s before its prepaid time ends. Then the cap is reached.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from tollbar.budget import service as budget
from tollbar.budget.schemas import Decision, Lease, Purpose, Reached, Reserved
from tollbar.db.session import Database
from tollbar.kit.clock import Clock

T = TypeVar("T")

SLICE_S: Final = 60
_RENEW_S: Final = 30.0
_LAST_CALL_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.25


class CapReached(Exception):
    """No further sandbox time fits under the cap: an outcome of the Trial and its Job, caught by the flow."""

    def __init__(self, reached: Reached, lease_id: str) -> None:
        super().__init__(lease_id)
        self.reached = reached
        self.lease_id = lease_id


@dataclass
class _Slice:
    lease: Lease
    start: float
    """On the monotonic clock."""

    @property
    def end(self) -> float:
        return self.start + self.lease.seconds


@dataclass
class Meter:
    """Pays for the sandbox of one phase, as a context around its whole life. Free runners take no leases."""

    database: Database
    clock: Clock
    chain: tuple[str, ...]
    trial_id: str
    try_no: int
    purpose: Purpose
    worker_id: str
    rate_pusd: int
    """pUSD a second."""
    limit_s: float
    """How long the phase can last at most; a slice is never longer."""
    _slices: list[_Slice] = field(default_factory=list[_Slice])
    _renewing: asyncio.Task[CapReached] | None = None

    async def __aenter__(self) -> Self:
        if self.rate_pusd:
            try:
                await self._first()
            except BaseException:
                await asyncio.shield(self._settle(self.clock.monotonic()))
                raise
            self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing
        # Money is settled whatever ended the phase, a cancellation included.
        await asyncio.shield(self._settle(self.clock.monotonic()))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns what `work` returns, or cancels it and raises `CapReached` when the prepaid time runs out."""
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
                with suppress(asyncio.CancelledError):
                    await task

    async def _first(self) -> None:
        lease = self._lease(min(SLICE_S, math.ceil(self.limit_s)))
        while True:
            decision = await self._ask(lease, self.clock.monotonic())
            if isinstance(decision, Reserved):
                return
            if isinstance(decision, Reached):
                raise CapReached(decision, lease.id)
            await self.clock.sleep(_LOOK_AGAIN_S)

    async def _renew(self) -> CapReached:
        """Reserves slice after slice; returns only when the cap is reached."""
        while True:
            current = self._slices[-1]
            ahead = min(_RENEW_S, current.lease.seconds / 2)
            await self.clock.sleep(max(0.0, current.end - ahead - self.clock.monotonic()))
            lease = self._lease(SLICE_S)
            while True:
                decision = await self._ask(lease, current.end)
                if isinstance(decision, Reserved):
                    break
                if self.clock.monotonic() >= current.end - min(_LAST_CALL_S, ahead):
                    last = decision if isinstance(decision, Reached) else Reached(self.chain[-1], lease.worst_pusd)
                    return CapReached(last, lease.id)
                await self.clock.sleep(_LOOK_AGAIN_S)

    def _lease(self, seconds: int) -> Lease:
        return Lease(
            id=f"lease_{self.trial_id}_{self.try_no}_{self.purpose.value}_{len(self._slices) + 1}",
            chain=self.chain,
            subject=f"trial:{self.trial_id}:{self.try_no}",
            purpose=self.purpose,
            worker_id=self.worker_id,
            rate_pusd=self.rate_pusd,
            seconds=seconds,
        )

    async def _ask(self, lease: Lease, start: float) -> Decision:
        # Noted before it is asked for: a cancellation in between leaves a slice that is settled if it was written.
        self._slices.append(_Slice(lease, start))
        async with self.database.transaction() as session:
            decision = await budget.reserve_lease(session, lease)
        if not isinstance(decision, Reserved):
            self._slices.pop()
        return decision

    async def _settle(self, now: float) -> None:
        for part in self._slices:
            used_s = min(part.lease.seconds, max(0, math.ceil(now - part.start)))
            async with self.database.transaction() as session:
                await budget.settle_lease(session, part.lease.id, used_s * self.rate_pusd)


def rate_of(cpus: float, memory_mb: int, prices: dict[str, Any]) -> int:
    """Returns pUSD a second: vCPUs and GiB of the limits at the runner revision's prices (pUSD each), rounded up."""
    exact = cpus * prices["vcpu_second_pusd"] + memory_mb / 1024 * prices["gib_second_pusd"]
    return math.ceil(exact)
