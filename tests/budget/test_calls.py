"""Model calls in the ledger: the worst case is held before a call is sent, and nothing is ever free by accident.

Numbers are those of the guide's worked examples.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.budget import dying
from tests.support import ManualClock, eventually

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.budget import calls, limits, service
from tollbar.budget.calls import Busy, Call, CallPurpose, Ended, Held
from tollbar.budget.schemas import BudgetView, Chain, Lease, Level, Purpose, Reached, Reserved, Wait, trial_budget_id
from tollbar.db.session import Database
from tollbar.gateway.bound import Quote
from tollbar.kit.ids import new_id

USD = 10**12
DAY = date(2026, 11, 30)


def quote(fixed: int, per_token: int, asked: int, least: int = 256) -> Quote:
    return Quote(Decimal(fixed), Decimal(per_token), asked, min(asked, least), 0, 1, None, {})


EXAMPLE_A = quote(1_512_000_000, 2_000_000, 1000)
EXAMPLE_B = quote(440_538_750_000, 15_000_000, 32_000, 32_000)
COST_B = 54_399_000_000


def call(*chain: str, project: str = "prj_1", worker: str = "w", **facts: Any) -> Call:
    return Call(
        new_id("call"), Chain(project, chain), DAY, "trial:t:1", CallPurpose.AGENT, worker, "openai:gpt-5-mini", 960,
        facts,
    )  # fmt: skip


async def budget(database: Database, cap_pusd: int | None, level: Level = Level.JOB) -> str:
    async with database.transaction() as session:
        return await service.open_budget(session, level, new_id("x"), cap_pusd)


async def reserve(database: Database, wanted: Call, asked: Quote) -> Held | Wait | Reached:
    async with database.transaction() as session:
        return await calls.reserve(session, wanted, asked)


async def sent(database: Database, wanted: Call, asked: Quote) -> Held:
    """Reserves a call and sends it."""
    held = await reserve(database, wanted, asked)
    assert isinstance(held, Held), held
    async with database.transaction() as session:
        assert await calls.mark_sent(session, wanted.id)
    return held


async def settle(database: Database, wanted: Call, cost_pusd: int, **facts: Any) -> Ended | None:
    async with database.transaction() as session:
        return await calls.settle(session, wanted.id, cost_pusd, facts)


async def view(database: Database, budget_id: str) -> BudgetView:
    async with database.session() as session:
        return await service.view(session, budget_id)


async def row(database: Database, wanted: Call) -> Any:
    async with database.session() as session:
        return (await session.execute(text("SELECT * FROM ledger_call WHERE id = :id"), {"id": wanted.id})).one()


async def test_a_call_holds_its_worst_case_and_settles_at_what_its_usage_costs(database: Database) -> None:
    """Example A."""
    job = await budget(database, 10_000_000_000)
    one = call(job, provider="openai", dialect="chat", model_asked="gpt-5-mini", input_bound=6048)
    held = await sent(database, one, EXAMPLE_A)
    assert (held.limit, held.worst_pusd, held.clamped) == (1000, 3_512_000_000, False)
    assert (await view(database, job)).reserved_pusd == 3_512_000_000
    assert await settle(database, one, 669_500_000, usage={"output": 300}, http_status=200) == Ended(0)
    found = await view(database, job)
    assert (found.settled_pusd, found.reserved_pusd, found.model_pusd) == (669_500_000, 0, 669_500_000)
    kept = await row(database, one)
    assert (kept.state, kept.outcome, kept.cost_pusd, kept.usage, kept.priced) == (
        "settled", "ok", 669_500_000, {"output": 300}, True,
    )  # fmt: skip
    assert (kept.dialect, kept.output_limit, kept.worst_pusd) == ("chat", 1000, 3_512_000_000)


@pytest.mark.requirement("G-GW-GL16")
@pytest.mark.parametrize(("cap_pusd", "limit"), [(2_024_000_000, 256), (2_026_000_000, 257), (3_512_000_000, 1000)])
async def test_a_limit_is_lowered_to_what_is_left_of_the_cap(database: Database, cap_pusd: int, limit: int) -> None:
    held = await reserve(database, call(await budget(database, cap_pusd)), EXAMPLE_A)
    assert isinstance(held, Held)
    assert (held.limit, held.clamped) == (limit, limit < 1000)
    assert held.worst_pusd <= cap_pusd


async def test_a_cap_below_the_least_price_of_a_call_is_reached_at_the_first_call_and_stops_once(
    database: Database,
) -> None:
    job = await budget(database, 2_023_999_999)
    one, two = call(job), call(job)
    reached = await reserve(database, one, EXAMPLE_A)
    assert reached == Reached(job, Level.JOB, 2_024_000_000)
    async with database.transaction() as session:
        assert await calls.stop(session, reached, one)
        assert not await calls.stop(session, reached, two)
    found = await view(database, job)
    assert (found.state, found.reserved_pusd) == ("exceeded", 0)
    assert found.budget_object()["stopped_by"] == {
        "call": one.id, "trial_id": "t", "model": "openai:gpt-5-mini", "worst_usd": "0.002024",
    }  # fmt: skip
    assert isinstance(await reserve(database, call(job), quote(0, 1, 1)), Reached)
    assert ((await row(database, one)).state, (await row(database, one)).code) == ("refused", "BUDGET_EXCEEDED")


@pytest.mark.requirement("G-GW-GL20")
async def test_a_call_that_only_outstanding_reservations_block_waits_and_then_is_sent(
    database: Database, clock: ManualClock
) -> None:
    """Example H, in its three steps."""
    async with database.transaction() as session:
        actor = await access.ensure_first_project(session, clock)
        await limits.set_limits(session, actor, {"daily_cap_usd": "2"}, clock)
    job = await budget(database, USD)
    first, second, third = (call(job, project=actor.project_id) for _ in range(3))
    held = await sent(database, first, EXAMPLE_B)
    assert held.worst_pusd == 920_538_750_000
    assert await reserve(database, second, EXAMPLE_B) == Wait(job, Level.JOB, 920_538_750_000)
    await settle(database, first, COST_B)
    await sent(database, second, EXAMPLE_B)
    await settle(database, second, COST_B)
    assert await reserve(database, third, EXAMPLE_B) == Reached(job, Level.JOB, 920_538_750_000)
    found = await view(database, job)
    assert found.budget_object()["spent_usd"] == "0.108798"
    # With the two variables of the coding agent the same Job goes on.
    smaller = quote(440_535_000_000, 15_000_000, 8192, 4352)
    assert (smaller.worst(8192), smaller.worst(smaller.least)) == (563_415_000_000, 505_815_000_000)
    assert isinstance(await reserve(database, third, smaller), Held)


async def test_no_neighbours_reservation_lowers_a_limit(database: Database) -> None:
    job = await budget(database, 5_000_000_000)
    await sent(database, call(job), EXAMPLE_A)
    # 1.488 thousand million are free, and 3.512 come back: it waits for all that it asked.
    assert await reserve(database, call(job), EXAMPLE_A) == Wait(job, Level.JOB, 3_512_000_000)


async def test_what_sandboxes_hold_does_not_come_back_for_a_call(database: Database) -> None:
    job = await budget(database, 5_000_000_000)
    lease = Lease("lease_1", Chain("prj_1", (job,)), DAY, "trial:t:1", "r", Purpose.AGENT, "w", 50_000_000, 60)
    async with database.transaction() as session:
        assert isinstance(await service.reserve_lease(session, lease), Reserved)
    assert await reserve(database, call(job), EXAMPLE_A) == Reached(job, Level.JOB, 2_024_000_000)


async def test_a_sandbox_that_is_stopped_early_gives_the_rest_of_its_slice_back(database: Database) -> None:
    """Example G."""
    job = await budget(database, USD)
    lease = Lease("lease_1", Chain("prj_1", (job,)), DAY, "trial:t:1", "r", Purpose.AGENT, "w", 26_800_000, 60)
    async with database.transaction() as session:
        await service.reserve_lease(session, lease)
    assert (await view(database, job)).reserved_pusd == 1_608_000_000
    async with database.transaction() as session:
        await service.settle_lease(session, lease.id, 37 * 26_800_000)
    found = await view(database, job)
    assert (found.settled_pusd, found.reserved_pusd) == (991_600_000, 0)


async def test_a_trials_share_stops_that_trial_and_a_closed_chain_refuses(database: Database) -> None:
    job = await budget(database, USD)
    async with database.transaction() as session:
        await service.open_shares(session, ["trial_1"], 10**9)
    share = trial_budget_id("trial_1")
    one = call(job, share)
    reached = await reserve(database, one, EXAMPLE_A)
    assert reached == Reached(share, Level.TRIAL, 2_024_000_000)
    async with database.transaction() as session:
        await calls.stop(session, reached, one)
    assert ((await view(database, share)).state, (await view(database, job)).state) == ("exceeded", "open")


async def test_an_uncapped_chain_counts_and_clamps_nothing(database: Database) -> None:
    job = await budget(database, None)
    one = call(job)
    held = await sent(database, one, EXAMPLE_B)
    assert (held.limit, held.clamped) == (32_000, False)
    await settle(database, one, COST_B)
    assert (await view(database, job)).settled_pusd == COST_B


# --- what can befall a call


@pytest.mark.requirement("G-GW-GL34")
async def test_a_cost_above_the_bound_is_recorded_whole_and_stops_the_budget(database: Database) -> None:
    job = await budget(database, 4_000_000_000)
    one = call(job)
    await sent(database, one, EXAMPLE_A)
    assert await settle(database, one, 5_000_000_000) == Ended(1_488_000_000, stopped=True)
    found = await view(database, job)
    assert (found.settled_pusd, found.overrun_pusd, found.reserved_pusd) == (3_512_000_000, 1_488_000_000, 0)
    assert (found.state, found.stopped_scope, found.stopped_by) == ("exceeded", "overrun", one.id)
    assert ((await row(database, one)).outcome, found.budget_object()["spent_usd"]) == ("overrun", "0.005")


async def test_an_overrun_without_a_cap_stops_nothing(database: Database) -> None:
    job = await budget(database, None)
    one = call(job)
    await sent(database, one, EXAMPLE_A)
    assert await settle(database, one, 5_000_000_000) == Ended(1_488_000_000)
    assert (await view(database, job)).state == "open"


async def test_an_answer_that_cannot_be_priced_costs_the_reservation_and_stops_a_capped_chain(
    database: Database,
) -> None:
    job = await budget(database, USD)
    one = call(job)
    held = await sent(database, one, EXAMPLE_A)
    async with database.transaction() as session:
        assert await calls.settle_unmetered(session, one.id, {}) == Ended(0, stopped=True)
    found = await view(database, job)
    assert (found.settled_pusd, found.state) == (held.worst_pusd, "unmetered")
    assert ((await row(database, one)).priced, (await row(database, one)).outcome) == (False, "unmetered")


async def test_a_model_without_a_price_is_refused_and_its_budget_takes_nothing_more(database: Database) -> None:
    job = await budget(database, USD)
    one = call(job)
    async with database.transaction() as session:
        assert await calls.stop_unpriced(session, one)
    assert ((await view(database, job)).state, (await row(database, one)).code) == ("unmetered", "BUDGET_UNMETERED")


async def test_a_call_of_which_nobody_knows_what_it_cost_is_charged_its_worst_case(database: Database) -> None:
    job = await budget(database, USD)
    one = call(job)
    held = await sent(database, one, EXAMPLE_A)
    async with database.transaction() as session:
        assert await calls.settle_at_worst(session, one.id, "reset", {"client_gone": True}) == Ended(0)
    found = await view(database, job)
    assert (found.settled_pusd, found.reserved_pusd, found.state) == (held.worst_pusd, 0, "open")
    assert ((await row(database, one)).outcome, (await row(database, one)).client_gone) == ("reset", True)


async def test_what_the_provider_refused_costs_nothing(database: Database) -> None:
    job = await budget(database, USD)
    one = call(job)
    await sent(database, one, EXAMPLE_A)
    async with database.transaction() as session:
        assert await calls.release(session, one.id, "http_error", {"http_status": 429})
        assert not await calls.release(session, one.id, "http_error", {"http_status": 500})
    assert (await view(database, job)).spent_pusd == 0
    assert ((await row(database, one)).state, (await row(database, one)).http_status) == ("released", 429)


async def test_each_attempt_is_a_row_of_its_own_under_the_same_cap(database: Database) -> None:
    job = await budget(database, USD)
    for _ in range(3):
        one = call(job)
        await sent(database, one, EXAMPLE_A)
        await settle(database, one, 669_500_000)
    assert (await view(database, job)).settled_pusd == 3 * 669_500_000


async def test_a_worker_that_dies_is_charged_for_what_it_had_sent_and_for_nothing_else(database: Database) -> None:
    job = await budget(database, USD)
    waiting, out, done = (call(job, worker="dead") for _ in range(3))
    await reserve(database, waiting, EXAMPLE_A)
    held = await sent(database, out, EXAMPLE_A)
    await sent(database, done, EXAMPLE_A)
    await settle(database, done, 669_500_000)
    async with database.transaction() as session:
        assert await service.write_off(session, workers=["dead"]) == 2
        # The dead come back: nothing may be sent, nothing is charged twice, and the usage is kept.
        assert not await calls.mark_sent(session, waiting.id)
        assert await calls.settle(session, out.id, 1, {"usage": {"output": 1}}) is None
        assert await calls.settle(session, done.id, 1, {}) is None
    found = await view(database, job)
    assert (found.settled_pusd, found.reserved_pusd) == (held.worst_pusd + 669_500_000, 0)
    states = [(await row(database, one)).state for one in (waiting, out, done)]
    assert states == ["released", "written_off", "settled"]
    assert ((await row(database, out)).usage_late, (await row(database, out)).usage) == ({"output": 1}, None)


@pytest.mark.parametrize(
    ("point", "charged", "state"),
    [
        ("reserving", 0, None),
        ("reserved", 0, "released"),
        ("sent", 3_512_000_000, "written_off"),
        ("settling", 3_512_000_000, "written_off"),
        ("settled", dying.COST, "settled"),
    ],
)
async def test_a_process_that_is_killed_at_any_point_of_a_call_leaves_nothing_reserved_and_is_charged_once(
    database: Database, point: str, charged: int, state: str | None
) -> None:
    job = await budget(database, USD)
    one = call(job)
    facts = {"url": database.url, "budget": job, "call": one.id, "at": point}
    process = await asyncio.create_subprocess_exec(
        sys.executable, dying.__file__, json.dumps(facts), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == f"{point}\n".encode()
    process.kill()
    await process.wait()
    await eventually(lambda: _nobody_else(database), within_s=4)
    for _ in range(2):
        async with database.transaction() as session:
            await service.write_off(session, workers=["dying"])
    found = await view(database, job)
    assert (found.spent_pusd, found.reserved_pusd) == (charged, 0)
    async with database.session() as session:
        query = text("SELECT state FROM ledger_call WHERE id = :id")
        assert await session.scalar(query, {"id": one.id}) == state


async def _nobody_else(database: Database) -> bool:
    """Says whether the server has let go of the transactions of others: a dead client's is rolled back at once."""
    query = """SELECT count(*) = 0 FROM pg_stat_activity
        WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"""
    async with database.session() as session:
        return bool(await session.scalar(text(query)))


async def test_a_worker_that_slept_past_its_lease_sends_nothing(database: Database) -> None:
    job = await budget(database, USD)
    one = call(job)
    await reserve(database, one, EXAMPLE_A)
    async with database.transaction() as session:
        past = "clock_timestamp() - interval '61 s'"
        await session.execute(text(f"UPDATE ledger_call SET expires_at = {past}"))
        assert not await calls.mark_sent(session, one.id)
        assert await service.write_off_expired(session) == 1
        assert not await calls.mark_sent(session, one.id)
        assert await calls.settle(session, one.id, 5, {}) is None
    assert ((await view(database, job)).spent_pusd, (await row(database, one)).state) == (0, "released")


async def test_a_call_that_was_never_sent_cannot_be_settled(database: Database) -> None:
    job = await budget(database, USD)
    one = call(job)
    await reserve(database, one, EXAMPLE_A)
    assert await settle(database, one, 5) is None
    assert (await view(database, job)).reserved_pusd == 3_512_000_000


# --- waiting, and many at once


async def test_a_call_that_waits_says_so_and_goes_out_when_money_comes_back(
    database: Database, clock: ManualClock
) -> None:
    job = await budget(database, USD)
    first, second = call(job), call(job)
    await sent(database, first, EXAMPLE_B)
    waiting = asyncio.create_task(calls.reserve_patiently(database, Turning(clock), second, EXAMPLE_B))
    await eventually(lambda: _waits(database), within_s=4)
    await settle(database, first, COST_B)
    assert isinstance(await waiting, Held)


async def test_a_call_waits_45_seconds_and_then_the_client_may_ask_again(
    database: Database, clock: ManualClock
) -> None:
    job = await budget(database, USD)
    await sent(database, call(job), EXAMPLE_B)
    turning = Turning(clock)
    assert await calls.reserve_patiently(database, turning, call(job), EXAMPLE_B) == Busy()
    assert 45 <= turning.slept_s <= 46
    assert (await view(database, job)).state == "open"


class Turning:
    """The clock of a test on which each pause passes at once, and others get their turn."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.slept_s = 0.0
        self.now = clock.now

    def monotonic(self) -> float:
        return self.slept_s

    async def sleep(self, delay_s: float) -> None:
        self.slept_s += delay_s
        await asyncio.sleep(0)


async def _waits(database: Database) -> bool:
    async with database.session() as session:
        return bool(await session.scalar(text("SELECT bool_or(waiting_until > clock_timestamp()) FROM budget")))


@pytest.mark.requirement("G-GW-GL12")
@pytest.mark.requirement("G-TEAM-C1")
async def test_fifty_calls_at_once_never_pass_the_cap_and_all_that_can_run_do(
    database: Database, clock: ManualClock
) -> None:
    job = await budget(database, 20_000_000_000)
    cost = 669_500_000

    async def one() -> str:
        wanted = call(job)
        while True:
            found = await reserve(database, wanted, EXAMPLE_A)
            if isinstance(found, Reached):
                return "refused"
            if isinstance(found, Held):
                break
            await asyncio.sleep(0)
        async with database.transaction() as session:
            assert await calls.mark_sent(session, wanted.id)
        seen = await view(database, job)
        assert seen.spent_pusd + seen.reserved_pusd <= 20_000_000_000
        await settle(database, wanted, min(cost, found.worst_pusd))
        return "ran"

    outcomes = await asyncio.gather(*(one() for _ in range(50)))
    found = await view(database, job)
    assert (found.reserved_pusd, found.spent_pusd) == (0, outcomes.count("ran") * cost)
    # A call needs 2,024,000,000 to begin, so 27 of them fit at 669,500,000 each.
    assert outcomes.count("ran") == (20_000_000_000 - 2_024_000_000) // cost + 1


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 3000), st.sampled_from("srweuo")), max_size=10))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
async def test_whatever_happens_to_calls_the_budget_is_the_sum_of_them_and_within_its_cap(
    database: Database, steps: list[tuple[int, int, str]]
) -> None:
    job = await budget(database, 10_000)
    for fixed, asked, end in steps:
        wanted = call(job, worker=new_id("w"))
        held = await reserve(database, wanted, quote(fixed, 1, asked, 5))
        if isinstance(held, Held):
            assert held.worst_pusd == fixed + held.limit
            await _end(database, wanted, held, end)
        found = await view(database, job)
        async with database.session() as session:
            query = """SELECT coalesce(sum(cost_pusd), 0), coalesce(sum(overrun_pusd), 0),
                coalesce(sum(worst_pusd) FILTER (WHERE state IN ('reserved', 'sent')), 0)
                FROM ledger_call WHERE :id = ANY(budget_ids)"""
            sums = (await session.execute(text(query), {"id": job})).one()
        assert (found.settled_pusd, found.overrun_pusd, found.reserved_pusd) == tuple(map(int, sums))
        assert found.settled_pusd + found.reserved_pusd <= 10_000


async def _end(database: Database, wanted: Call, held: Held, end: str) -> None:
    """Settles, releases, writes off, expires before it was sent, loses the usage, or leaves a call open."""
    async with database.transaction() as session:
        if end == "e":
            await service.write_off(session, workers=[wanted.worker_id])
            return
        await calls.mark_sent(session, wanted.id)
        if end == "s":
            await calls.settle(session, wanted.id, held.worst_pusd // 2, {})
        elif end == "r":
            await calls.release(session, wanted.id, "http_error", {})
        elif end == "w":
            await service.write_off(session, workers=[wanted.worker_id])
        elif end == "u":
            await calls.settle_at_worst(session, wanted.id, "timeout", {})


async def test_a_system_call_without_any_budget_is_counted_in_the_ledger_alone(
    database: Database, clock: ManualClock
) -> None:
    async with database.transaction() as session:
        actor: Principal = await access.ensure_first_project(session, clock)
    one = replace(call(project=actor.project_id), purpose=CallPurpose.SYSTEM, subject="system:routing")
    await sent(database, one, EXAMPLE_A)
    await settle(database, one, 669_500_000)
    async with database.session() as session:
        assert (await limits.today(session, actor.project_id, clock.now())).spent_pusd == 669_500_000
