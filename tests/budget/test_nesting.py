"""Budgets that nest: the project's day around its Jobs around their Trials, and no cap of any of them is passed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.budget import spender
from tests.support import ManualClock

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.budget import limits, service
from tollbar.budget.schemas import Chain, Decision, Lease, Level, Purpose, Reached, Reserved, Wait, trial_budget_id
from tollbar.db.session import Database
from tollbar.kit.ids import new_id

DAY = spender.DAY
RATE = spender.RATE
CALLS = "SELECT count(*) FROM ledger_call"


@pytest.fixture
async def actor(database: Database, clock: ManualClock) -> Principal:
    """The server's owner in a project."""
    async with database.transaction() as session:
        return await access.ensure_first_project(session, clock)


async def limit(database: Database, actor: Principal, clock: ManualClock, **given: Any) -> None:
    async with database.transaction() as session:
        await limits.set_limits(session, actor, given, clock)


async def job(database: Database, cap_s: int | None, *, shares: int = 0, share_s: int = 0) -> list[tuple[str, ...]]:
    """Opens a Job's budget with so many shares of Trials (caps in seconds); returns the chains of its Trials."""
    async with database.transaction() as session:
        cap = None if cap_s is None else cap_s * RATE
        budget_id = await service.open_budget(session, Level.JOB, new_id("job"), cap)
        trials = [new_id("trial") for _ in range(shares)]
        if trials:
            await service.open_shares(session, trials, share_s * RATE)
    return [(budget_id, trial_budget_id(trial_id)) for trial_id in trials] or [(budget_id,)]


def lease(actor: Principal, chain: tuple[str, ...], seconds: int, *, day: date = DAY) -> Lease:
    return Lease(
        new_id("lease"), Chain(actor.project_id, chain), day, new_id("s"), "r", Purpose.AGENT, "w", RATE, seconds
    )


async def reserve(database: Database, wanted: Lease) -> Decision:
    async with database.transaction() as session:
        return await service.reserve_lease(session, wanted)


async def settle(database: Database, wanted: Lease, seconds: int) -> None:
    async with database.transaction() as session:
        assert await service.settle_lease(session, wanted.id, seconds * RATE)


async def budgets(database: Database) -> list[Any]:
    async with database.session() as session:
        return list((await session.execute(text("SELECT * FROM budget ORDER BY level, id"))).all())


async def test_a_lease_is_held_against_the_day_the_job_and_the_trials_share(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    await limit(database, actor, clock, daily_cap_usd="1")
    (chain,) = await job(database, 100, shares=1, share_s=80)
    wanted = lease(actor, chain, 60)
    assert isinstance(await reserve(database, wanted), Reserved)
    rows = await budgets(database)
    assert [row.level for row in rows] == [0, 1, 2]
    assert {row.reserved_pusd for row in rows} == {60 * RATE}
    await settle(database, wanted, 7)
    assert {(row.settled_pusd, row.reserved_pusd) for row in await budgets(database)} == {(7 * RATE, 0)}


@pytest.mark.parametrize(
    ("day_usd", "job_s", "share_s", "level"),
    [("0.059", 600, 600, Level.PROJECT_DAY), ("1", 59, 600, Level.JOB), ("1", 600, 59, Level.TRIAL)],
)
async def test_whichever_cap_is_too_small_refuses_and_says_which_it_is(
    database: Database, actor: Principal, clock: ManualClock, day_usd: str, job_s: int, share_s: int, level: Level
) -> None:
    await limit(database, actor, clock, daily_cap_usd=day_usd)
    (chain,) = await job(database, job_s, shares=1, share_s=share_s)
    wanted = lease(actor, chain, 60)
    decision = await reserve(database, wanted)
    assert isinstance(decision, Reached)
    assert (decision.level, decision.worst_pusd) == (level, 60 * RATE)
    assert {row.reserved_pusd for row in await budgets(database)} == {0}
    async with database.transaction() as session:
        assert await service.stop(session, decision, wanted)
    states = [row.state for row in await budgets(database)]
    # The day is everybody's and goes on; a Trial's share stops that Trial alone.
    assert states == (["open", "open", "exceeded"] if level is Level.TRIAL else ["open", "exceeded", "open"])
    scopes = {row.stopped_scope for row in await budgets(database)} - {None}
    assert scopes == {level.value}


async def test_two_jobs_of_a_project_share_its_day_and_another_project_does_not(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    await limit(database, actor, clock, daily_cap_usd="0.1")
    (first,), (second,), (foreign,) = [await job(database, None) for _ in range(3)]
    held = lease(actor, first, 60)
    assert isinstance(await reserve(database, held), Reserved)
    decision = await reserve(database, lease(actor, second, 60))
    assert isinstance(decision, Wait)
    assert decision.level is Level.PROJECT_DAY
    await settle(database, held, 1)
    assert isinstance(await reserve(database, lease(actor, second, 60)), Reserved)
    other = replace(actor, project_id="prj_other")
    assert isinstance(await reserve(database, lease(other, foreign, 6000)), Reserved)


async def test_a_project_without_a_limit_has_no_row_that_every_call_would_lock(
    database: Database, actor: Principal
) -> None:
    (chain,) = await job(database, 100)
    await reserve(database, lease(actor, chain, 60))
    assert [row.level for row in await budgets(database)] == [1]


async def test_a_new_day_has_its_own_money_and_a_call_settles_on_the_day_it_was_reserved_on(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    await limit(database, actor, clock, daily_cap_usd="0.06")
    (chain,) = await job(database, None)
    before = lease(actor, chain, 60)
    after = lease(actor, chain, 60, day=date(2026, 12, 1))
    assert isinstance(await reserve(database, before), Reserved)
    assert isinstance(await reserve(database, after), Reserved)
    await settle(database, before, 60)
    days = [row for row in await budgets(database) if row.level == 0]
    assert [(row.settled_pusd, row.reserved_pusd) for row in days] == [(60 * RATE, 0), (0, 60 * RATE)]
    assert isinstance(await reserve(database, lease(actor, chain, 1)), Reached)


async def test_a_limit_set_in_the_middle_of_a_day_counts_what_was_spent_before(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    (chain,) = await job(database, None)
    spent, held = lease(actor, chain, 60), lease(actor, chain, 20)
    for wanted in (spent, held):
        await reserve(database, wanted)
    await settle(database, spent, 30)
    await limit(database, actor, clock, daily_cap_usd="0.06")
    # 30 s are spent and 20 s are reserved outside the day's budget: 10 of 60 are left.
    assert isinstance(await reserve(database, lease(actor, chain, 11)), Reached)
    assert isinstance(await reserve(database, lease(actor, chain, 10)), Reserved)
    async with database.session() as session:
        today = await limits.today(session, actor.project_id, clock.now())
    assert (today.spent_pusd, today.reserved_pusd, today.left_pusd) == (30 * RATE, 30 * RATE, 0)


async def test_a_limit_below_what_is_spent_already_lets_nothing_more_through_and_breaks_nothing(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    await limit(database, actor, clock, daily_cap_usd="1")
    (chain,) = await job(database, None)
    held = lease(actor, chain, 60)
    await reserve(database, held)
    await limit(database, actor, clock, daily_cap_usd="0.01")
    assert isinstance(await reserve(database, lease(actor, chain, 1)), Wait | Reached)
    await settle(database, held, 60)
    assert isinstance(await reserve(database, lease(actor, chain, 1)), Reached)
    await limit(database, actor, clock, daily_cap_usd=None)
    assert isinstance(await reserve(database, lease(actor, chain, 6000)), Reserved)


async def test_eighty_percent_of_a_cap_is_marked_once(database: Database, actor: Principal, clock: ManualClock) -> None:
    await limit(database, actor, clock, daily_cap_usd="1")
    (chain,) = await job(database, 100)
    moments = []
    for seconds in (79, 1, 10):
        wanted = lease(actor, chain, seconds)
        await reserve(database, wanted)
        await settle(database, wanted, seconds)
        async with database.session() as session:
            moments.append((await service.view(session, chain[0])).budget_object()["warning"])
    assert moments[0] is None
    assert moments[1] == moments[2]
    assert moments[1]["percent"] == 80
    assert [row.warned_at is None for row in await budgets(database)] == [True, False]


# --- many processes


@contextlib.asynccontextmanager
async def watched(database: Database) -> AsyncIterator[list[int]]:
    """Looks at every budget all the time; yields how much each look found above a cap, at most."""
    above: list[int] = []
    looking = asyncio.Event()

    async def look() -> None:
        query = text("SELECT max(settled_pusd + overrun_pusd + reserved_pusd - cap_pusd) FROM budget")
        while not looking.is_set():
            async with database.session() as session:
                above.append(await session.scalar(query))
            await asyncio.sleep(0)

    task = asyncio.create_task(look())
    try:
        yield above
    finally:
        looking.set()
        await task


async def started(**facts: Any) -> asyncio.subprocess.Process:
    script = str(Path(spender.__file__))
    return await asyncio.create_subprocess_exec(
        sys.executable, script, json.dumps(facts), stdout=asyncio.subprocess.PIPE
    )


@pytest.mark.timeout(110)
@pytest.mark.requirement("G-GW-GL15")
async def test_processes_that_race_for_nested_budgets_pass_no_cap_and_leave_nothing_reserved(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    """One of them is killed while it holds a lease; what it held is charged in full when its death is known."""
    await limit(database, actor, clock, daily_cap_usd="1.5")
    chains = [*await job(database, 1000, shares=3, share_s=400), *await job(database, 900, shares=2, share_s=600)]
    chains += await job(database, None)
    common = {"url": database.url, "chains": chains, "project": actor.project_id}
    async with watched(database) as above:
        dies = await started(**common, worker="dies", rounds=4, hangs=True)
        assert dies.stdout is not None
        assert await dies.stdout.readline() == b"held\n"
        racers = [await started(**common, worker=f"racer{number}", rounds=80) for number in range(3)]
        dies.kill()
        await dies.wait()
        async with database.transaction() as session:
            written_off = await service.write_off(session, workers=["dies"])
        said = [json.loads((await racer.communicate())[0].splitlines()[-1]) for racer in racers]
    assert written_off >= 1
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sum(one["Reserved"] for one in said) > 40
    assert sum(one["Wait"] + one["Reached"] for one in said) > 40
    assert len(above) > 20
    assert max(above) <= 0
    await everything_adds_up(database)


async def everything_adds_up(database: Database) -> None:
    """Nothing is reserved, and each budget says what its calls say."""
    async with database.session() as session:
        assert await session.scalar(text(f"{CALLS} WHERE state IN ('reserved', 'sent')")) == 0
        for row in await budgets(database):
            query = "SELECT coalesce(sum(cost_pusd), 0) FROM ledger_call WHERE :id = ANY(budget_ids)"
            cost = await session.scalar(text(query), {"id": row.id})
            assert (row.reserved_pusd, row.settled_pusd) == (0, cost)
            assert row.settled_pusd <= (row.cap_pusd if row.cap_pusd is not None else row.settled_pusd)


@pytest.mark.timeout(110)
@pytest.mark.requirement("G-GW-GL28")
async def test_a_late_settlement_and_a_write_off_move_the_money_once_and_nobody_waits_for_ever(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    """A thousand leases: reserved, settled and written off at once, over chains that cross."""
    await limit(database, actor, clock, daily_cap_usd="1000")
    chains = [*await job(database, None, shares=2, share_s=10**6), *await job(database, None, shares=2, share_s=10**6)]
    for number in range(250):
        wanted = [replace(lease(actor, chain, 10), worker_id=f"w{number}") for chain in chains]
        await asyncio.gather(*(reserve(database, one) for one in wanted))

        async def late(one: Lease) -> bool:
            async with database.transaction() as session:
                return await service.settle_lease(session, one.id, RATE)

        async def off(worker: str = f"w{number}") -> int:
            async with database.transaction() as session:
                return await service.write_off(session, workers=[worker])

        *settled, first, second = await asyncio.gather(*(late(one) for one in wanted), off(), off())
        assert sum(settled) + first + second == len(wanted)
    await everything_adds_up(database)
