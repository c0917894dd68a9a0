"""The reaper, step by step, on work that dead executors hold by the engine's own rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from tests.engine.helpers import ask, client_of, engine_of, enqueue, reaches, state_of
from tests.support import ManualClock, eventually

from tollbar.db.session import Database
from tollbar.engine import store
from tollbar.engine.dbos_engine import DbosEngine
from tollbar.engine.errors import DeclaredDead
from tollbar.engine.liveness import Intervals, Watchdog, Worker, capacities
from tollbar.engine.locks import Lock, elected, under_lock
from tollbar.engine.port import EngineState, Work
from tollbar.engine.reaper import Audit, HandOver, Reaper
from tollbar.engine.retention import Retention
from tollbar.engine.tables import MOVES, WorkerState
from tollbar.kit.clock import SystemClock


class Above:
    """What the layers above are told."""

    def __init__(self) -> None:
        self.dead: list[list[str]] = []
        self.taken: list[tuple[list[str], bool]] = []
        self.swept: list[tuple[str, bool]] = []
        self.fails_at: int | None = None

    async def on_dead(self, session: AsyncSession, executor_ids: Sequence[str]) -> None:
        self.dead.append(list(executor_ids))

    async def take_over(self, work_ids: Sequence[str], lost: bool) -> None:
        if len(self.taken) == self.fails_at:
            raise LookupError
        self.taken.append((sorted(work_ids), lost))

    async def sweep(self, executor_id: str, lost: bool) -> None:
        self.swept.append((executor_id, lost))

    def hand_over(self) -> HandOver:
        return HandOver(self.on_dead, self.take_over, self.sweep)


@pytest.fixture
def above() -> Above:
    return Above()


@pytest.fixture
async def client(database: Database) -> AsyncIterator[DbosEngine]:
    async with client_of(database) as engine:
        yield engine


def a_worker(database: Database, executor_id: str, *, slots: int = 4, kill: Any = lambda: None) -> Worker:
    return Worker(database, executor_id, slots, ("bwrap",), Intervals(), kill, SystemClock())


def a_reaper(database: Database, engine: DbosEngine, above: Above, *, alone: bool = False, clock: Any = None) -> Reaper:
    clock = clock or ManualClock()
    return Reaper(database, engine, "me", Intervals(), above.hand_over(), clock, alone)


async def a_worker_that_was(database: Database, executor_id: str, state: str, silent_s: float = 0) -> None:
    async with database.transaction() as session:
        await store.add_worker(session, executor_id, host="h", pid=1, engine_version="1", backends=["bwrap"], slots=4)
    await ask(
        database,
        "UPDATE worker SET state = :s, beat_at = clock_timestamp() - make_interval(secs => :a) WHERE executor_id = :e",
        s=state,
        a=silent_s,
        e=executor_id,
    )


async def held(database: Database, engine: DbosEngine, executor_id: str, *work: Work) -> None:
    await enqueue(database, engine, *work)
    await ask(
        database,
        "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = :e WHERE workflow_uuid = ANY(:ids)",
        e=executor_id,
        ids=[item.id for item in work],
    )


def trials(*names: str) -> list[Work]:
    return [Work(f"trial:{name}:1", "trial", "trials.bwrap", (name, 1)) for name in names]


async def states(database: Database) -> dict[str, str]:
    return dict(await ask(database, "SELECT executor_id, state FROM worker"))


async def test_trials_go_to_their_next_try_and_everything_else_is_resumed_on_its_own_queue(
    database: Database, client: DbosEngine, above: Above
) -> None:
    await a_worker_that_was(database, "old", "live", silent_s=31)
    await held(database, client, "old", *trials("a"), Work("job:1", "job", "control"), Work("run:1", "x", "segments"))
    assert await a_reaper(database, client, above).reap() == 3
    assert above.dead == [["old"]]
    assert above.taken == [(["trial:a:1"], True)]
    assert await states(database) == {"old": "gone"}
    assert await ask(
        database, "SELECT workflow_uuid, status, queue_name FROM dbos.workflow_status ORDER BY workflow_uuid"
    ) == [("job:1", "ENQUEUED", "control"), ("run:1", "ENQUEUED", "segments"), ("trial:a:1", "CANCELLED", None)]


@pytest.mark.requirement("G-ENG-17.upgrade")
async def test_what_began_under_an_older_engine_version_waits_for_no_worker_of_that_version(
    database: Database, client: DbosEngine, above: Above
) -> None:
    await a_worker_that_was(database, "old", "live", silent_s=31)
    await held(database, client, "old", *trials("a"), Work("job:1", "job", "control"), Work("job:2", "job", "control"))
    await ask(
        database,
        "UPDATE dbos.workflow_status SET application_version = CASE workflow_uuid WHEN 'job:2' THEN '1' ELSE '0' END",
    )
    assert await a_reaper(database, client, above).reap() == 3
    assert above.taken == [(["trial:a:1"], True)]
    assert await ask(database, "SELECT workflow_uuid, status FROM dbos.workflow_status ORDER BY workflow_uuid") == [
        ("job:1", "CANCELLED"), ("job:2", "ENQUEUED"), ("trial:a:1", "CANCELLED"),
    ]  # fmt: skip


async def test_a_worker_that_beats_keeps_its_work(database: Database, client: DbosEngine, above: Above) -> None:
    await a_worker_that_was(database, "other", "live", silent_s=29)
    await a_worker_that_was(database, "me", "live", silent_s=1000)
    await held(database, client, "other", *trials("a"))
    assert await a_reaper(database, client, above).reap() == 0
    assert await states(database) == {"other": "live", "me": "live"}
    assert await state_of(client, "trial:a:1") is EngineState.PENDING


async def test_who_is_alone_waits_for_no_silence(database: Database, client: DbosEngine, above: Above) -> None:
    await a_worker_that_was(database, "me", "live")
    await a_worker_that_was(database, "other", "leaving")
    await held(database, client, "other", *trials("a"))
    await held(database, client, "never heard of", *trials("b"))
    reaper = a_reaper(database, client, above, alone=True)
    assert await reaper.reap() == 2
    assert sorted(above.taken) == [(["trial:a:1"], True), (["trial:b:1"], True)]

    # Whoever comes later is not alone in being there.
    await a_worker_that_was(database, "later", "live")
    assert await reaper.reap() == 0
    assert await states(database) == {"me": "live", "other": "gone", "later": "live"}


async def test_a_worker_that_left_in_order_loses_nothing(database: Database, client: DbosEngine, above: Above) -> None:
    await a_worker_that_was(database, "old", "left")
    await held(database, client, "old", *trials("a"))
    assert await a_reaper(database, client, above).reap() == 1
    assert above.taken == [(["trial:a:1"], False)]
    assert await states(database) == {"old": "gone"}


async def test_work_of_an_unknown_executor_is_taken_over_after_a_minute(
    database: Database, client: DbosEngine, above: Above, clock: ManualClock
) -> None:
    await held(database, client, "never heard of", *trials("a"))
    reaper = a_reaper(database, client, above, clock=clock)
    for _ in range(11):
        assert await reaper.reap() == 0
        clock.advance(5)
    clock.advance(20)
    assert await reaper.reap() == 1
    assert above.taken == [(["trial:a:1"], True)]


async def test_work_that_a_dead_worker_claims_on_waking_is_taken_over(
    database: Database, client: DbosEngine, above: Above
) -> None:
    await a_worker_that_was(database, "zombie", "gone", silent_s=60)
    await held(database, client, "zombie", *trials("a"))
    assert await a_reaper(database, client, above).reap() == 1


async def test_a_reaper_that_fails_between_two_batches_loses_nothing(
    database: Database, client: DbosEngine, above: Above
) -> None:
    await a_worker_that_was(database, "old", "live", silent_s=31)
    await held(database, client, "old", *trials(*(f"{n:02}" for n in range(50))))
    above.fails_at = 1
    with pytest.raises(LookupError):
        await a_reaper(database, client, above).reap()
    assert await states(database) == {"old": "dead"}
    above.fails_at = None
    # The batch in the failed one's hands was cancelled; whoever reconciles trials finds it. The rest is still held.
    assert await a_reaper(database, client, above).reap() == 10
    assert [len(ids) for ids, _ in above.taken] == [20, 10]
    assert await states(database) == {"old": "gone"}


async def test_only_one_of_two_reapers_works(database: Database, client: DbosEngine, above: Above) -> None:
    await a_worker_that_was(database, "old", "live", silent_s=31)
    await held(database, client, "old", *trials("a"))
    async with elected(database, Lock.REAPER) as mine:
        assert mine is not None
        assert await a_reaper(database, client, above).reap() == 0
        assert above.dead == []
    both = await asyncio.gather(*(a_reaper(database, client, above).reap() for _ in range(2)))
    assert sum(both) == 1
    assert above.taken == [(["trial:a:1"], True)]


async def test_a_holder_that_stands_still_loses_the_lock_and_notices(database: Database) -> None:
    async def free() -> bool:
        async with elected(database, Lock.REAPER) as mine:
            return mine is not None

    with pytest.raises(DBAPIError):
        async with elected(database, Lock.REAPER, limit_s=0.3) as lock:
            assert lock is not None
            assert not await free()
            await eventually(free, within_s=2)
            await store.touch(lock)


async def test_work_under_a_lock_runs_in_one_process_at_a_time(database: Database) -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)
        await under_lock(database, Lock.RECONCILER, work)()

    await under_lock(database, Lock.RECONCILER, work)()
    assert ran == [1]


async def test_a_beat_is_refused_once_others_have_declared_the_worker_dead(database: Database) -> None:
    killed: list[int] = []
    worker = a_worker(database, "me", kill=lambda: killed.append(1))
    await worker.enter()
    await worker.beat()
    await ask(database, "UPDATE worker SET state = 'dead'")
    with pytest.raises(DeclaredDead):
        await worker.beat()
    assert killed == [1]
    await worker.left()
    assert await states(database) == {"me": "dead"}


class AskedClock(ManualClock):
    """Counts how often its steady time was read."""

    asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


@pytest.mark.requirement("G-ENG-17.clock")
@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_clock_that_is_set_by_an_hour_is_no_silence(
    database: Database, client: DbosEngine, above: Above, step_s: int
) -> None:
    clock, killed = AskedClock(), list[bool]()
    intervals = Intervals(beat_s=0.02, self_kill_s=0.1, dead_after_s=30)
    worker = Worker(database, "skewed", 4, ("bwrap",), intervals, lambda: killed.append(True), clock)
    await worker.enter()
    clock.step_wall(step_s)
    asked = clock.asked

    async def watched() -> bool:
        return clock.asked > asked + 5

    await eventually(watched)
    await worker.beat()
    others = ManualClock()
    reaper = a_reaper(database, client, above, clock=others)
    assert await reaper.reap() == 0
    others.step_wall(step_s)
    assert await reaper.reap() == 0
    assert (await states(database), killed) == ({"skewed": "live"}, [])
    await worker.left()


async def test_a_worker_goes_from_live_to_leaving_to_left(database: Database) -> None:
    worker = a_worker(database, "me")
    await worker.enter()
    assert await ask(database, "SELECT state, backends, slots, engine_version FROM worker") == [
        ("live", ["bwrap"], 4, "1")
    ]
    await worker.leave()
    await worker.beat()
    await worker.left()
    assert await states(database) == {"me": "left"}


async def test_the_watchdog_kills_when_nothing_feeds_it_and_again_later(clock: ManualClock) -> None:
    killed: list[float] = []
    watchdog = Watchdog(0.2, lambda: killed.append(clock.monotonic()), clock)
    watchdog.start()
    try:
        for now, expected in ((0.15, 0), (0.25, 1), (0.4, 1), (0.5, 2)):
            clock.advance(now - clock.monotonic())
            await eventually(lambda wanted=expected: asyncio.sleep(0.03, len(killed) == wanted))
        watchdog.fed(0.5)
        clock.advance(0.19)
        await eventually(lambda: asyncio.sleep(0.03, len(killed) == 2))
    finally:
        watchdog.stop()
    assert killed == [0.25, 0.5]


async def test_the_capacity_is_what_living_workers_may_hold(database: Database) -> None:
    await a_worker(database, "one", slots=4).enter()
    await a_worker(database, "two", slots=10).enter()
    await a_worker_that_was(database, "old", "dead")
    await a_worker_that_was(database, "going", "leaving")
    async with database.session() as session:
        assert await capacities(session) == {"bwrap": (2 * 4 + 16) + (2 * 10 + 16)}


@pytest.mark.requirement("G-ENG-16.11")
async def test_claimed_work_that_runs_nowhere_is_found_by_the_second_audit(database: Database, above: Above) -> None:
    release = asyncio.Event()

    def register(engine: DbosEngine) -> None:
        @engine.flow("trial")
        async def trial(name: str, try_no: int) -> None:
            await engine.step("agent", release.wait)

    async with engine_of(database, register, executor_id="me") as engine:
        # No such flow is registered: the engine logs it and leaves the row claimed for ever.
        unknown = Work("strange", "no such flow", "control")
        await enqueue(database, engine, unknown, *trials("a"))
        await eventually(lambda: asyncio.sleep(0, engine.running()))
        await reaches(engine, "strange", EngineState.PENDING)
        await held(database, engine, "me", *trials("lost"))
        audit = Audit(engine, "me", above.hand_over())
        assert await audit.look() == 0
        assert await audit.look() == 2
        assert await audit.look() == 0
        assert above.taken == [(["trial:lost:1"], True)]
        assert await engine.state(["strange", "trial:lost:1", "trial:a:1"]) == {
            "strange": EngineState.CANCELLED,
            "trial:lost:1": EngineState.CANCELLED,
            "trial:a:1": EngineState.PENDING,
        }
        release.set()
        await reaches(engine, "trial:a:1", EngineState.SUCCESS)


async def test_retention_deletes_ended_work_and_gone_workers_after_a_week(
    database: Database, client: DbosEngine
) -> None:
    week_s = 7 * 24 * 3600
    await a_worker_that_was(database, "old", "gone", silent_s=week_s + 60)
    await a_worker_that_was(database, "recent", "gone", silent_s=week_s - 60)
    await enqueue(database, client, *trials(*(str(n) for n in range(600))))
    clock = SystemClock()
    at = int(clock.now().timestamp() - week_s) * 1000
    await ask(database, "UPDATE dbos.workflow_status SET status = 'SUCCESS', completed_at = :at", at=at - 60_000)
    await ask(
        database,
        "UPDATE dbos.workflow_status SET completed_at = :at WHERE workflow_uuid = 'trial:7:1'",
        at=at + 60_000,
    )
    assert await Retention(database, client, clock).run_once() == 599
    assert await ask(database, "SELECT workflow_uuid FROM dbos.workflow_status") == [("trial:7:1",)]
    assert await states(database) == {"recent": "gone"}


def test_intervals_that_would_let_two_workers_run_the_same_work_are_refused() -> None:
    for beat_s, self_kill_s, dead_after_s in ((5, 10, 30), (5, 30, 30), (5, 40, 30)):
        with pytest.raises(ValueError, match="liveness"):
            Intervals(beat_s, self_kill_s, dead_after_s)


def test_every_state_of_a_worker_leads_to_gone() -> None:
    def ends(state: WorkerState) -> set[WorkerState]:
        return {state} if not MOVES[state] else {end for target in MOVES[state] for end in ends(target)}

    assert all(ends(state) == {WorkerState.GONE} for state in WorkerState)
