"""What tests of several packages use: a clock moved by hand, waiting with a bound, and the tables of all packages."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy import MetaData

import tollbar
from tollbar.db.base import Base

T = TypeVar("T")


class ManualClock:
    """A clock that moves only when it is told to, or when somebody sleeps on it."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, delay_s: float) -> None:
        self.advance(delay_s)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def step_wall(self, seconds: float) -> None:
        """Sets the machine's time, as an administrator or a time server does: no time passes."""
        self._now += timedelta(seconds=seconds)


async def eventually(question: Callable[[], Awaitable[T]], within_s: float = 10.0) -> T:
    """Returns the first true answer; fails when there is none within the bound."""
    deadline = time.monotonic() + within_s
    while True:
        answer = await question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            msg = f"still {answer!r} after {within_s} s"
            raise AssertionError(msg)
        await asyncio.sleep(0.02)


def all_tables() -> MetaData:
    """Returns the metadata with the tables of every package that has some."""
    root = Path(tollbar.__file__).parent
    for file in sorted(root.rglob("tables.py")):
        importlib.import_module(".".join(("tollbar", *file.relative_to(root).with_suffix("").parts)))
    return Base.metadata
