"""The ledger: spent and reserved never pass the cap, whatever runs at once, and a loss is never free."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from tollbar.budget import service, store
from tollbar.budget.schemas import Chain, Lease, Level, Purpose, Reached, Reserved, Wait
from tollbar.db.session import Database
from tollbar.kit.ids import new_id

USD = 10**12
DAY = date(2026, 11, 30)
RATE = USD // 100
"""0.01 USD a second."""


def lease(
    budget_id: str, name: str, *, seconds: int = 60, purpose: Purpose = Purpose.AGENT, worker: str = "w1"
) -> Lease:
    return Lease(
        id=f"lease_{name}",
        chain=Chain("prj_1", (budget_id,)),
        day=DAY,
        subject=f"trial:{name}:1",
        sku="envhub/metered",
        purpose=purpose,
        worker_id=worker,
        rate_pusd=RATE,
        seconds=seconds,
    )


async def opened(database: Database, cap_pusd: int | None) -> str:
    async with database.transaction() as session:
        return await service.open_budget(session, Level.JOB, "job_1", cap_pusd)


async def reserve(database: Database, wanted: Lease) -> object:
    async with database.transaction() as session:
        return await service.reserve_lease(session, wanted)


async def settle(database: Database, name: str, seconds: int) -> bool:
    async with database.transaction() as session:
        return await service.settle_lease(session, f"lease_{name}", seconds * RATE)


@pytest.mark.requirement("G-SBX-14.accounting_lease")
async def test_a_lease_is_reserved_in_full_and_settled_at_what_was_used(database: Database) -> None:
    budget_id = await opened(database, USD)
    assert isinstance(await reserve(database, lease(budget_id, "a")), Reserved)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert (view.reserved_pusd, view.spent_pusd) == (60 * RATE, 0)
    assert await settle(database, "a", 2)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert view.budget_object() == {
        "max_cost_usd": "1",
        "spent_usd": "0.02",
        "reserved_usd": "0",
        "remaining_usd": "0.98",
        "state": "open",
        "stopped_by": None,
        "warning": None,
    }


async def test_a_second_settlement_moves_no_money(database: Database) -> None:
    budget_id = await opened(database, USD)
    await reserve(database, lease(budget_id, "a"))
    assert await settle(database, "a", 1)
    assert not await settle(database, "a", 50)
    async with database.session() as session:
        assert (await service.view(session, budget_id)).spent_pusd == RATE


async def test_a_lease_that_fits_only_when_others_come_back_waits(database: Database) -> None:
    budget_id = await opened(database, 100 * RATE)
    assert isinstance(await reserve(database, lease(budget_id, "a")), Reserved)
    assert await reserve(database, lease(budget_id, "b")) == Wait(budget_id, Level.JOB, 60 * RATE)
    await settle(database, "a", 1)
    assert isinstance(await reserve(database, lease(budget_id, "b")), Reserved)


async def test_a_lease_that_can_never_fit_reaches_the_cap_and_names_it(database: Database) -> None:
    budget_id = await opened(database, 60 * RATE)
    assert isinstance(await reserve(database, lease(budget_id, "a", seconds=60)), Reserved)
    # The open lease has used a second at least, and that one does not come back.
    assert await reserve(database, lease(budget_id, "b")) == Reached(budget_id, Level.JOB, 60 * RATE)
    await settle(database, "a", 1)
    assert await reserve(database, lease(budget_id, "c")) == Reached(budget_id, Level.JOB, 60 * RATE)


async def test_a_stopped_budget_takes_no_reservation_and_one_caller_stopped_it(database: Database) -> None:
    budget_id = await opened(database, 10 * RATE)
    reached = await reserve(database, lease(budget_id, "a"))
    assert isinstance(reached, Reached)
    async with database.transaction() as session:
        assert await service.stop(session, reached, lease(budget_id, "a"))
        assert not await service.stop(session, reached, lease(budget_id, "a"))
        assert not await service.stop(session, reached, lease(budget_id, "z"))
    assert isinstance(await reserve(database, lease(budget_id, "b", seconds=1)), Reached)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert view.budget_object()["state"] == "exceeded"
    assert view.budget_object()["stopped_by"] == {"call": "lease_a", "trial_id": "a", "worst_usd": "0.6"}
    assert (view.settled_pusd, view.reserved_pusd) == (0, 0)


async def test_a_budget_without_a_cap_counts_and_never_stops(database: Database) -> None:
    budget_id = await opened(database, None)
    for name in "abc":
        assert isinstance(await reserve(database, lease(budget_id, name)), Reserved)
        await settle(database, name, 60)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert (view.budget_object()["max_cost_usd"], view.budget_object()["spent_usd"]) == (None, "1.8")


@pytest.mark.requirement("G-SBX-14.accounting_lost")
async def test_what_a_dead_worker_had_reserved_is_written_off_in_full(database: Database) -> None:
    budget_id = await opened(database, 10 * USD)
    await reserve(database, lease(budget_id, "a", worker="dead"))
    await reserve(database, lease(budget_id, "b", worker="alive"))
    async with database.transaction() as session:
        assert await service.write_off(session, workers=["dead"]) == 1
    assert not await settle(database, "a", 1)
    async with database.session() as session:
        view = await service.view(session, budget_id)
        assert (view.spent_pusd, view.reserved_pusd) == (60 * RATE, 60 * RATE)
        spent = await service.spent_on_many(session, {"a": ["trial:a:1", "trial:a:2"], "b": ["trial:b:1"]})
    assert (spent["a"].sandbox_pusd, spent["b"].total_pusd) == (60 * RATE, 0)


@pytest.mark.requirement("G-SBX-14.accounting_verifier")
async def test_the_verifiers_spending_stands_in_its_own_column(database: Database) -> None:
    budget_id = await opened(database, USD)
    await reserve(database, lease(budget_id, "a", seconds=10))
    await reserve(database, lease(budget_id, "v", seconds=10, purpose=Purpose.VERIFIER))
    await settle(database, "a", 3)
    await settle(database, "v", 4)
    async with database.session() as session:
        cost = (await service.view(session, budget_id)).cost_object()
    assert (cost["total_usd"], cost["sandbox_usd"], cost["verifier_usd"]) == ("0.07", "0.03", "0.04")


async def test_the_database_itself_refuses_to_pass_the_cap(database: Database) -> None:
    budget_id = await opened(database, USD)
    with pytest.raises(IntegrityError, match="cap_holds"):
        async with database.transaction() as session:
            rows = await store.read(session, [budget_id])
            rows[budget_id].reserved_pusd = USD + 1
            await session.flush()


async def test_forty_leases_at_once_never_pass_the_cap_and_leave_nothing_reserved(database: Database) -> None:
    cap = 5 * 60 * RATE
    budget_id = await opened(database, cap)
    seen: list[int] = []

    async def one(number: int) -> str:
        name = f"n{number}"
        while True:
            decision = await reserve(database, lease(budget_id, name))
            async with database.session() as session:
                view = await service.view(session, budget_id)
            seen.append(view.spent_pusd + view.reserved_pusd)
            if isinstance(decision, Reserved):
                await settle(database, name, 7)
                return "ran"
            if isinstance(decision, Reached):
                return "refused"
            await asyncio.sleep(0)

    outcomes = await asyncio.gather(*(one(number) for number in range(40)))
    # 300 s of money, 7 s each, and a start needs 60 s to be free: (300 - 60) / 7 fit, and one more.
    assert outcomes.count("ran") == (300 - 60) // 7 + 1
    assert max(seen) <= cap
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert (view.reserved_pusd, view.spent_pusd) == (0, outcomes.count("ran") * 7 * RATE)


# --- what else can befall a lease


async def calls(database: Database) -> dict[str, tuple[str, str | None, int | None]]:
    async with database.session() as session:
        rows = await session.execute(text("SELECT id, state, outcome, cost_pusd FROM ledger_call"))
        return {row.id: (row.state, row.outcome, row.cost_pusd) for row in rows}


async def test_a_lease_whose_sandbox_never_stood_is_given_back_at_no_cost(database: Database) -> None:
    budget_id = await opened(database, USD)
    await reserve(database, lease(budget_id, "a"))
    async with database.transaction() as session:
        assert await service.release_lease(session, "lease_a")
        assert not await service.release_lease(session, "lease_a")
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert (view.spent_pusd, view.reserved_pusd) == (0, 0)
    assert await calls(database) == {"lease_a": ("released", "unused", 0)}


async def test_a_lease_that_nobody_reserved_ends_without_a_word(database: Database) -> None:
    await opened(database, USD)
    assert not await settle(database, "never", 3)
    async with database.transaction() as session:
        assert await service.write_off(session, subjects=["trial:never:1"]) == 0
        assert await service.write_off(session) == 0


async def test_a_renewal_that_has_not_begun_can_still_come_back_whole(database: Database) -> None:
    budget_id = await opened(database, 120 * RATE)
    await reserve(database, lease(budget_id, "a"))
    await reserve(database, replace(lease(budget_id, "b"), starts_in_s=30.0))
    # One second of the first slice is gone and none of the second: 119 s could come back.
    assert isinstance(await reserve(database, lease(budget_id, "c", seconds=119)), Wait)
    assert isinstance(await reserve(database, lease(budget_id, "d", seconds=120)), Reached)


async def test_a_lease_is_over_when_its_own_time_is_over(database: Database) -> None:
    budget_id = await opened(database, USD)
    now = await reserve(database, lease(budget_id, "a", seconds=10))
    later = await reserve(database, replace(lease(budget_id, "b", seconds=10), starts_in_s=30.0))
    assert isinstance(now, Reserved)
    assert isinstance(later, Reserved)
    assert 29.5 < (later.expires_at - now.expires_at).total_seconds() < 35


async def test_what_is_over_for_more_than_a_minute_is_written_off_in_full(database: Database) -> None:
    budget_id = await opened(database, USD)
    for name in ("old", "young"):
        await reserve(database, lease(budget_id, name, seconds=10))
    async with database.transaction() as session:
        past = "clock_timestamp() - make_interval(secs => CASE id WHEN 'lease_old' THEN 61 ELSE 59 END)"
        await session.execute(text(f"UPDATE ledger_call SET expires_at = {past}"))
        assert await service.write_off_expired(session) == 1
    found = await calls(database)
    assert found["lease_old"] == ("written_off", "expired", 10 * RATE)
    assert found["lease_young"][0] == "sent"


async def test_what_was_reserved_and_never_sent_costs_nothing_when_its_worker_dies(database: Database) -> None:
    budget_id = await opened(database, USD)
    await reserve(database, lease(budget_id, "a", worker="dead"))
    async with database.transaction() as session:
        await session.execute(text("UPDATE ledger_call SET state = 'reserved'"))
        assert await service.write_off(session, workers=["dead"]) == 1
    assert await calls(database) == {"lease_a": ("released", "crash", 0)}


async def test_two_write_offs_over_the_same_budgets_in_other_orders_do_not_wait_for_each_other(
    database: Database,
) -> None:
    async with database.transaction() as session:
        first = await service.open_budget(session, Level.JOB, "job_1", None)
        second = await service.open_budget(session, Level.JOB, "job_2", None)
    # By their ids the calls of one worker meet the budgets in one order, those of the other in the other.
    for budget_id, name, worker in (
        (first, "a1", "w1"), (second, "a2", "w2"), (second, "b1", "w1"), (first, "b2", "w2")
    ):  # fmt: skip
        await reserve(database, lease(budget_id, name, worker=worker))

    async def off(worker: str) -> int:
        async with database.transaction() as session:
            return await service.write_off(session, workers=[worker])

    for _ in range(5):
        assert await asyncio.gather(off("w1"), off("w2")) in ([2, 2], [0, 0])
    async with database.session() as session:
        views = await service.views(session, [first, second])
    assert [(view.spent_pusd, view.reserved_pusd) for view in views.values()] == [(120 * RATE, 0)] * 2


async def test_a_chain_reserves_on_all_of_its_budgets_or_on_none(database: Database) -> None:
    async with database.transaction() as session:
        outer = await service.open_budget(session, Level.JOB, "job_1", 50 * RATE)
        inner = await service.open_budget(session, Level.TRIAL, "trial_1", 1000 * RATE)
    both = replace(lease(inner, "a", seconds=40), chain=Chain("prj_1", (outer, inner)))
    assert isinstance(await reserve(database, both), Reserved)
    waits, reached = replace(both, id="lease_b", seconds=30), replace(both, id="lease_c", seconds=51)
    assert await reserve(database, waits) == Wait(outer, Level.JOB, 30 * RATE)
    assert await reserve(database, reached) == Reached(outer, Level.JOB, 51 * RATE)
    async with database.session() as session:
        views = await service.views(session, [outer, inner])
    assert {view.reserved_pusd for view in views.values()} == {40 * RATE}


async def test_a_closed_budget_takes_no_reservation_and_still_settles(database: Database) -> None:
    budget_id = await opened(database, USD)
    await reserve(database, lease(budget_id, "a"))
    async with database.transaction() as session:
        await service.close(session, budget_id)
    assert isinstance(await reserve(database, lease(budget_id, "b")), Reached)
    assert await settle(database, "a", 3)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert (view.state, view.spent_pusd, view.reserved_pusd) == ("closed", 3 * RATE, 0)


async def test_a_stopped_budget_stays_stopped_when_its_job_closes_it(database: Database) -> None:
    budget_id = await opened(database, RATE)
    refused = lease(budget_id, "a")
    async with database.transaction() as session:
        await service.stop(session, Reached(budget_id, Level.JOB, refused.worst_pusd), refused)
        await service.close(session, budget_id)
        view = await service.view(session, budget_id)
    assert (view.state, await calls(database)) == ("exceeded", {"lease_a": ("refused", "exceeded", None)})


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90), st.sampled_from("srw")), max_size=12))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
async def test_spent_and_reserved_always_add_up_and_never_pass_the_cap(
    database: Database, steps: list[tuple[int, int, str]]
) -> None:
    cap = 200 * RATE
    async with database.transaction() as session:
        budget_id = await service.open_budget(session, Level.JOB, new_id("job"), cap)
    spent = reserved = 0
    for seconds, used, end in steps:
        wanted = replace(lease(budget_id, new_id("x"), seconds=seconds), subject=new_id("s"))
        decision = await reserve(database, wanted)
        assert isinstance(decision, Reserved) == (spent + reserved + wanted.worst_pusd <= cap)
        if isinstance(decision, Reserved):
            async with database.transaction() as session:
                if end == "s":
                    await service.settle_lease(session, wanted.id, min(used, seconds) * RATE)
                    spent += min(used, seconds) * RATE
                elif end == "w":
                    await service.write_off(session, subjects=[wanted.subject])
                    spent += wanted.worst_pusd
                else:
                    reserved += wanted.worst_pusd
        async with database.session() as session:
            view = await service.view(session, budget_id)
        assert (view.spent_pusd, view.reserved_pusd) == (spent, reserved)
        assert view.spent_pusd + view.reserved_pusd <= cap
