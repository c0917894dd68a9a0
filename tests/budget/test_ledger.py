"""The ledger: spent and reserved never pass the cap, whatever runs at once, and a loss is never free."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.exc import IntegrityError

from tollbar.budget import service, store
from tollbar.budget.schemas import Lease, Level, Purpose, Reached, Reserved, Wait
from tollbar.db.session import Database

USD = 10**12
RATE = USD // 100
"""0.01 USD a second."""


def lease(
    budget_id: str, name: str, *, seconds: int = 60, purpose: Purpose = Purpose.AGENT, worker: str = "w1"
) -> Lease:
    return Lease(
        id=f"lease_{name}",
        chain=(budget_id,),
        subject=f"trial:{name}:1",
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
    assert await reserve(database, lease(budget_id, "b")) == Wait()
    await settle(database, "a", 1)
    assert isinstance(await reserve(database, lease(budget_id, "b")), Reserved)


async def test_a_lease_that_can_never_fit_reaches_the_cap_and_names_it(database: Database) -> None:
    budget_id = await opened(database, 60 * RATE)
    assert isinstance(await reserve(database, lease(budget_id, "a", seconds=60)), Reserved)
    # The open lease has used a second at least, and that one does not come back.
    assert await reserve(database, lease(budget_id, "b")) == Reached(budget_id, 60 * RATE)
    await settle(database, "a", 1)
    assert await reserve(database, lease(budget_id, "c")) == Reached(budget_id, 60 * RATE)


async def test_a_stopped_budget_takes_no_reservation_and_one_caller_stopped_it(database: Database) -> None:
    budget_id = await opened(database, 10 * RATE)
    reached = await reserve(database, lease(budget_id, "a"))
    assert isinstance(reached, Reached)
    async with database.transaction() as session:
        assert await service.stop(session, reached, "lease_a")
        assert not await service.stop(session, reached, "lease_a")
    assert isinstance(await reserve(database, lease(budget_id, "b", seconds=1)), Reached)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert view.budget_object()["state"] == "exceeded"
    assert view.budget_object()["stopped_by"] == {"call": "lease_a", "worst_usd": "0.6"}


async def test_a_budget_without_a_cap_counts_and_never_stops(database: Database) -> None:
    budget_id = await opened(database, None)
    for name in "abc":
        assert isinstance(await reserve(database, lease(budget_id, name)), Reserved)
        await settle(database, name, 60)
    async with database.session() as session:
        view = await service.view(session, budget_id)
    assert (view.budget_object()["max_cost_usd"], view.budget_object()["spent_usd"]) == (None, "1.8")


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
        spent = await service.spent_on_many(session, ["trial:a", "trial:b"])
    assert (spent["trial:a"]["sandbox"], spent["trial:b"]["total"]) == (60 * RATE, 0)


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
            rows = await store.lock(session, [budget_id])
            rows[0].reserved_pusd = USD + 1
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
