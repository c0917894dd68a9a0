"""Time comes in as a `Clock`, so that tests decide what time it is. Times on the wire are UTC milliseconds."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a service may know about time."""

    def now(self) -> datetime:
        """Returns the present time in UTC (wall clock; may step)."""
        ...

    def monotonic(self) -> float:
        """Returns seconds that only grow (for durations and deadlines)."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Returns after `delay_s` seconds of this clock."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - this is the clock that all others take

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def wire_time(moment: datetime | None) -> str | None:
    """Returns `2026-11-30T12:00:00.000Z`, or None for None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
