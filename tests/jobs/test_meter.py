"""Sandbox time is paid ahead in slices, on a clock that the test moves: what is reserved when, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.jobs.world import ONE, SteppedClock, World
from tests.support import eventually

from tollbar.budget import service as budget
from tollbar.budget.schemas import Chain, Lease, Level, Purpose
from tollbar.jobs.leases import CapReached, Meter, TryOver

RATE = 10**10
"""0.01 USD a second."""


@dataclass
class Case:
    """A Trial that works, and its budget."""

    world: World
    budget_id: str
    trial_id: str
    database: Any = None
    failures: list[bool] = field(default_factory=list)

    @property
    def clock(self) -> SteppedClock:
        return self.world.clock

    def meter(self, **changes: Any) -> Meter:
        facts: dict[str, Any] = {
            "database": self.database or self.world.database, "clock": self.clock,
            "chain": Chain("prj_1", (self.budget_id,)), "sku": "envhub/metered",
            "trial_id": self.trial_id, "try_no": 1, "purpose": Purpose.AGENT, "worker_id": "w", "rate_pusd": RATE,
            "limit_s": 3605.0,
        }  # fmt: skip
        return Meter(**{**facts, **changes})

    async def leases(self) -> list[tuple[str, int, int | None]]:
        """Returns (state, seconds reserved, seconds charged) in the order in which they were reserved."""
        rows = await self.world.rows("SELECT state, worst_pusd, cost_pusd FROM ledger_call ORDER BY created_at")
        return [(r.state, r.worst_pusd // RATE, None if r.cost_pusd is None else r.cost_pusd // RATE) for r in rows]

    async def has(self, *leases: tuple[str, int, int | None]) -> None:
        """Returns once the ledger holds exactly these."""

        async def there() -> bool:
            return await self.leases() == list(leases)

        await eventually(there, within_s=4)

    async def sleeps(self) -> bool:
        """Says whether somebody waits for the clock."""
        return self.clock.due() != []

    async def money(self) -> tuple[int, int]:
        """Returns seconds spent and seconds reserved."""
        async with self.world.database.session() as session:
            view = await budget.view(session, self.budget_id)
        return view.spent_pusd // RATE, view.reserved_pusd // RATE

    async def other(self, seconds: int, name: str = "other") -> None:
        """Another Trial of the Job reserves so much."""
        async with self.world.database.transaction() as session:
            chain, day = Chain("prj_1", (self.budget_id,)), self.clock.now().date()
            lease = Lease(f"lease_{name}", chain, day, f"trial:{name}:1", "r", Purpose.AGENT, "w", RATE, seconds)
            await budget.reserve_lease(session, lease)

    async def other_ends(self, seconds: int, name: str = "other") -> None:
        async with self.world.database.transaction() as session:
            await budget.settle_lease(session, f"lease_{name}", seconds * RATE)


async def case_of(world: World, cap_s: int | None) -> Case:
    job = await world.submit(dataset=ONE)
    await world.engine.run(f"job:{job['job_id']}")
    await world.rows("UPDATE trial SET state = 'running'")
    async with world.database.transaction() as session:
        cap = None if cap_s is None else cap_s * RATE
        budget_id = await budget.open_budget(session, Level.JOB, "metered", cap)
    return Case(world, budget_id, await world.value("SELECT id FROM trial"))


@pytest.fixture
async def case(stepped: World) -> Case:
    """With a cap of 1000 seconds."""
    return await case_of(stepped, 1000)


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.requirement("G-SBX-14.accounting_lease")
async def test_the_first_slice_is_reserved_before_anything_and_settled_at_what_was_used(case: Case) -> None:
    async with case.meter() as meter:
        await case.has(("sent", 60, None))
        assert await case.money() == (0, 60)
        meter.sandbox_stands()
        await case.clock.sleeps_until(30.0)
        case.clock.advance_to(2.5)
    # Seconds begun are charged: ceil(2.5).
    assert await case.leases() == [("settled", 60, 3)]
    assert await case.money() == (3, 0)


@pytest.mark.requirement("G-GW-GL33")
@pytest.mark.parametrize(("used_s", "charged"), [(0.0, 0), (0.25, 1), (1.0, 1), (59.0, 59), (59.5, 60)])
async def test_the_cost_is_the_seconds_begun_times_the_rate(case: Case, used_s: float, charged: int) -> None:
    async with case.meter() as meter:
        meter.sandbox_stands()
        await case.clock.sleeps_until(30.0)
        # Whoever sleeps stays asleep: nothing is renewed here.
        case.clock._at = used_s
    assert await case.leases() == [("settled", 60, charged)]


async def test_a_sandbox_that_never_stood_costs_nothing(case: Case) -> None:
    with pytest.raises(KeyError):
        async with case.meter():
            await case.clock.sleeps_until(30.0)
            case.clock.advance_to(12.0)
            raise KeyError
    assert await case.leases() == [("released", 60, 0)]
    assert await case.money() == (0, 0)


@pytest.mark.requirement("G-GW-GL33")
async def test_the_next_slice_is_reserved_when_thirty_seconds_are_left_and_each_is_settled_at_its_end(
    case: Case,
) -> None:
    async with case.meter() as meter:
        meter.sandbox_stands()
        await case.clock.sleeps_until(30.0)
        case.clock.advance_to(29.75)
        assert case.clock.due() == [30.0]
        case.clock.advance_to(30.0)
        await case.has(("sent", 60, None), ("sent", 60, None))
        await case.clock.sleeps_until(60.0)
        case.clock.advance_to(60.0)
        await case.has(("settled", 60, 60), ("sent", 60, None))
        assert await case.money() == (60, 60)
        await case.clock.sleeps_until(90.0)
        case.clock.advance_to(90.0)
        await case.has(("settled", 60, 60), ("sent", 60, None), ("sent", 60, None))
        await case.clock.sleeps_until(120.0)
        case.clock.advance_to(100.0)
    # 40 s of the second slice, and nothing of the third.
    assert await case.leases() == [("settled", 60, 60), ("settled", 60, 40), ("settled", 60, 0)]
    assert await case.money() == (100, 0)


async def test_a_short_phase_reserves_no_more_than_it_can_last(case: Case) -> None:
    async with case.meter(limit_s=9.2) as meter:
        meter.sandbox_stands()
        await case.has(("sent", 10, None))
        await case.clock.sleeps_until(5.0)
        case.clock.advance_to(4.0)
    assert await case.money() == (4, 0)


async def test_a_renewal_asks_for_what_is_left_of_the_phase_and_then_for_a_short_tail(stepped: World) -> None:
    """An agent that uses its whole time ends by its time limit, although the cap has no room for idle time."""
    case = await case_of(stepped, 80)
    async with case.meter(limit_s=70.0) as meter:
        meter.sandbox_stands()
        working = asyncio.create_task(meter.run(forever()))
        await case.clock.sleeps_until(30.0)
        case.clock.advance_to(30.0)
        await case.has(("sent", 60, None), ("sent", 10, None))
        await case.clock.sleeps_until(60.0)
        case.clock.advance_to(60.0)
        await case.has(("settled", 60, 60), ("sent", 10, None))
        await case.clock.sleeps_until(65.0)
        case.clock.advance_to(65.0)
        await case.has(("settled", 60, 60), ("sent", 10, None), ("sent", 5, None))
        await case.clock.sleeps_until(70.0)
        case.clock.advance_to(70.0)
        await case.has(("settled", 60, 60), ("settled", 10, 10), ("sent", 5, None))
        assert not working.done()
        working.cancel()
    assert await case.money() == (70, 0)


async def test_a_first_slice_that_does_not_fit_waits_for_what_is_outstanding(stepped: World) -> None:
    case = await case_of(stepped, 100)
    await case.other(90)
    entering = asyncio.create_task(case.meter().__aenter__())
    for _ in range(3):
        await case.clock.sleeps_until(case.clock.monotonic() + 0.25)
        case.clock.advance_to(case.clock.monotonic() + 0.25)
    await case.clock.sleeps_until(1.0)
    assert not entering.done()
    await case.other_ends(5)
    case.clock.advance_to(1.0)
    meter = await asyncio.wait_for(entering, 4)
    assert await case.money() == (5, 60)
    meter.sandbox_stands()
    await meter.__aexit__(None, None, None)
    assert await case.money() == (5, 0)


async def test_a_first_slice_that_can_never_fit_reaches_the_cap_at_once(stepped: World) -> None:
    case = await case_of(stepped, 59)
    with pytest.raises(CapReached) as reached:
        await case.meter().__aenter__()
    assert (reached.value.reached.budget_id, reached.value.refused.seconds) == (case.budget_id, 60)
    assert await case.leases() == []


@pytest.mark.requirement("G-GW-GL33")
async def test_a_renewal_that_does_not_fit_waits_until_five_seconds_before_the_end(stepped: World) -> None:
    case = await case_of(stepped, 100)
    async with case.meter() as meter:
        meter.sandbox_stands()
        working = asyncio.create_task(meter.run(forever()))
        await case.clock.sleeps_until(30.0)
        case.clock.advance_to(30.0)
        await case.clock.sleeps_until(30.25)
        case.clock.advance_to(54.75)
        await case.clock.sleeps_until(55.0)
        assert not working.done()
        case.clock.advance_to(55.0)
        with pytest.raises(CapReached):
            await asyncio.wait_for(working, 4)
    assert await case.leases() == [("settled", 60, 55)]
    assert await case.money() == (55, 0)


async def test_a_renewal_takes_what_comes_back_while_it_waits(stepped: World) -> None:
    case = await case_of(stepped, 150)
    await case.other(60)
    async with case.meter() as meter:
        meter.sandbox_stands()
        await case.clock.sleeps_until(30.0)
        case.clock.advance_to(30.0)
        await case.clock.sleeps_until(30.25)
        await case.other_ends(20)
        case.clock.advance_to(30.25)
        await case.clock.sleeps_until(60.0)
        assert await case.money() == (20, 120)


async def test_the_cap_reached_while_nothing_runs_ends_the_next_command_at_once(stepped: World) -> None:
    case = await case_of(stepped, 60)
    async with case.meter() as meter:
        meter.sandbox_stands()
        await case.clock.sleeps_until(30.0)
        case.clock.advance_to(30.0)
        await case.clock.sleeps_until(30.25)
        case.clock.advance_to(55.0)

        async def refused() -> bool:
            return case.clock.due() == []

        await eventually(refused, within_s=4)
        with pytest.raises(CapReached):
            await meter.run(forever())


async def test_a_cancellation_settles_what_was_used(case: Case) -> None:
    entered = asyncio.Event()

    async def phase() -> None:
        async with case.meter() as meter:
            meter.sandbox_stands()
            entered.set()
            await meter.run(forever())

    task = asyncio.create_task(phase())
    await entered.wait()
    await case.clock.sleeps_until(30.0)
    case.clock.advance_to(7.0)
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await case.leases() == [("settled", 60, 7)]


async def test_what_the_work_returns_or_raises_passes_through(case: Case) -> None:
    async def answers() -> int:
        return 5

    async def breaks() -> None:
        raise KeyError

    async with case.meter() as meter:
        meter.sandbox_stands()
        assert await meter.run(answers()) == 5
        with pytest.raises(KeyError):
            await meter.run(breaks())


async def test_a_free_runner_takes_no_leases(case: Case) -> None:
    async with case.meter(rate_pusd=0) as meter:
        meter.sandbox_stands()
        await meter.run(asyncio.sleep(0))
    assert (await case.leases(), case.clock.due()) == ([], [])


@pytest.mark.parametrize("change", ["try_no = 2", "state = 'stopping'", "state = 'pending'"])
async def test_a_try_that_is_over_reserves_nothing(case: Case, change: str) -> None:
    await case.world.rows(f"UPDATE trial SET {change}")
    with pytest.raises(TryOver):
        await case.meter().__aenter__()
    assert await case.leases() == []


async def test_a_try_that_was_taken_over_meanwhile_ends_at_its_next_renewal(case: Case) -> None:
    async with case.meter() as meter:
        meter.sandbox_stands()
        working = asyncio.create_task(meter.run(forever()))
        await case.clock.sleeps_until(30.0)
        await case.world.rows("UPDATE trial SET try_no = 2")
        case.clock.advance_to(30.0)
        with pytest.raises(TryOver):
            await asyncio.wait_for(working, 4)
    assert await case.leases() == [("settled", 60, 30)]


# --- a database that is away


class Flaky:
    """The database, whose next transactions fail: before anything (`before`), or after their commit (`after`)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failures: list[str] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        failure = self.failures.pop(0) if self.failures else None
        if failure == "before":
            raise OperationalError("BEGIN", {}, Exception("away"))
        async with self.world.database.transaction() as session:
            yield session
        if failure == "after":
            raise OperationalError("COMMIT", {}, Exception("away"))


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_a_renewal_outlives_a_database_that_is_away_for_a_moment(case: Case, failure: str) -> None:
    case.database = Flaky(case.world)
    async with case.meter() as meter:
        meter.sandbox_stands()
        working = asyncio.create_task(meter.run(forever()))
        await case.clock.sleeps_until(30.0)
        case.database.failures = [failure] * 3
        moment = 30.0
        while moment < 60:
            case.clock.advance_to(moment)
            await eventually(case.sleeps, within_s=4)
            moment = case.clock.due()[0]
        assert not working.done()
        case.clock.advance_to(70.0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    # What was written although nobody heard of it was never used, and costs nothing.
    assert (await case.money()) == (70, 0)
    assert sum(charged or 0 for _, _, charged in await case.leases()) == 70


async def test_a_database_that_stays_away_until_the_prepaid_time_ends_raises(case: Case) -> None:
    case.database = Flaky(case.world)
    async with case.meter() as meter:
        meter.sandbox_stands()
        working = asyncio.create_task(meter.run(forever()))
        await case.clock.sleeps_until(30.0)
        case.database.failures = ["before"] * 3
        case.clock.advance_to(30.0)
        await case.clock.sleeps_until(30.25)
        case.clock.advance_to(55.0)
        with pytest.raises(OperationalError):
            await asyncio.wait_for(working, 4)
    assert await case.money() == (55, 0)


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_a_settlement_that_fails_is_tried_again_and_changes_no_outcome(case: Case, failure: str) -> None:
    case.database = Flaky(case.world)

    async def phase() -> str:
        async with case.meter() as meter:
            meter.sandbox_stands()
            await case.clock.sleeps_until(30.0)
            case.clock.advance_to(4.0)
            case.database.failures = [failure]
        return "went well"

    task = asyncio.create_task(phase())
    await case.clock.sleeps_until(4.25)
    case.clock.advance_to(4.25)
    assert await asyncio.wait_for(task, 4) == "went well"
    assert await case.money() == (4, 0)


async def test_what_cannot_be_settled_stays_reserved_until_it_is_written_off(case: Case) -> None:
    case.database = Flaky(case.world)

    async def phase() -> None:
        async with case.meter() as meter:
            meter.sandbox_stands()
            await case.clock.sleeps_until(30.0)
            case.database.failures = ["before"] * 24

    task = asyncio.create_task(phase())
    for moment in (number / 4 for number in range(1, 25)):
        await case.clock.sleeps_until(moment)
        case.clock.advance_to(moment)
    await asyncio.wait_for(task, 4)
    assert await case.money() == (0, 60)
    await case.world.rows("UPDATE ledger_call SET expires_at = clock_timestamp() - interval '61 s'")
    await case.world.recovery.reconcile()
    assert await case.money() == (60, 0)
