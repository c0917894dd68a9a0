"""Periodic work: at its interval, on demand, through failures, up to a clean stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from tests.support import eventually

from tollbar.engine.loops import Loop


class StepClock:
    """A clock whose sleepers wake when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._sleepers: list[asyncio.Event] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 30, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        self.asked.append(delay_s)
        sleeper = asyncio.Event()
        self._sleepers.append(sleeper)
        try:
            await sleeper.wait()
        finally:
            self._sleepers.remove(sleeper)

    async def wake(self) -> None:
        """Lets the next sleeper go on."""
        await eventually(lambda: asyncio.sleep(0, self._sleepers))
        self._sleepers[0].set()


class Work:
    def __init__(self) -> None:
        self.runs = 0
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.cancelled = False

    async def __call__(self) -> None:
        self.runs += 1
        if self.error is not None:
            raise self.error
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    async def ran(self, count: int) -> None:
        await eventually(lambda: asyncio.sleep(0, self.runs >= count))
        assert self.runs == count


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def steps() -> StepClock:
    return StepClock()


@asynccontextmanager
async def running(work: Work, clock: StepClock, interval_s: float = 0.5) -> AsyncIterator[Loop]:
    loop = Loop("work", interval_s, work, fatal=(LookupError,), clock=clock)
    loop.start()
    yield loop
    await loop.stop()


async def test_work_runs_at_once_and_then_at_its_interval(work: Work, steps: StepClock) -> None:
    async with running(work, steps):
        await work.ran(1)
        await steps.wake()
        await work.ran(2)
        await steps.wake()
        await work.ran(3)
    assert set(steps.asked) == {0.5}


async def test_a_kick_runs_it_without_waiting(work: Work, steps: StepClock) -> None:
    async with running(work, steps) as loop:
        await work.ran(1)
        loop.kick()
        await work.ran(2)


async def test_kicks_during_a_run_cause_one_more_run(work: Work, steps: StepClock) -> None:
    work.hold = asyncio.Event()
    async with running(work, steps) as loop:
        await work.ran(1)
        for _ in range(5):
            loop.kick()
        work.hold.set()
        await work.ran(2)
        await eventually(lambda: asyncio.sleep(0, steps.asked))
        assert work.runs == 2


async def test_failures_are_survived_with_growing_pauses_that_no_kick_shortens(work: Work, steps: StepClock) -> None:
    work.error = ValueError("no")
    async with running(work, steps) as loop:
        for count in range(1, 7):
            await work.ran(count)
            await eventually(lambda wanted=count: asyncio.sleep(0, len(steps.asked) == wanted))
            loop.kick()
            await steps.wake()
        assert steps.asked[:6] == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
        work.error = None
        await steps.wake()
        await work.ran(8)
        await eventually(lambda: asyncio.sleep(0, steps.asked[-1] == 0.5))


async def test_a_long_interval_is_not_shortened_by_a_failure(work: Work, steps: StepClock) -> None:
    work.error = ValueError("no")
    async with running(work, steps, interval_s=60):
        await eventually(lambda: asyncio.sleep(0, steps.asked))
    assert steps.asked == [60]


async def test_a_fatal_error_ends_the_loop_and_is_told(work: Work, steps: StepClock) -> None:
    work.error = LookupError()
    async with running(work, steps) as loop:
        with pytest.raises(LookupError):
            await loop.ended()
    assert work.runs == 1


async def test_a_stop_lets_the_work_in_progress_end(work: Work, steps: StepClock) -> None:
    work.hold = asyncio.Event()
    async with running(work, steps) as loop:
        await work.ran(1)
        stopping = asyncio.create_task(loop.stop(grace_s=5))
        await asyncio.sleep(0)
        work.hold.set()
        await stopping
        await loop.ended()
    assert not work.cancelled
    assert work.runs == 1


async def test_a_stop_cancels_work_that_does_not_end_in_time(work: Work, steps: StepClock) -> None:
    work.hold = asyncio.Event()
    async with running(work, steps) as loop:
        await work.ran(1)
        await loop.stop(grace_s=0.01)
    assert work.cancelled


async def test_a_stop_during_a_pause_after_a_failure_does_not_wait(work: Work, steps: StepClock) -> None:
    work.error = ValueError("no")
    async with running(work, steps, interval_s=60) as loop:
        await eventually(lambda: asyncio.sleep(0, steps.asked))
        async with asyncio.timeout(0.5):
            await loop.stop(grace_s=5)
