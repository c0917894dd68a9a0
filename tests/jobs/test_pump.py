"""Admission: never above a limit, everybody gets a share, and each Trial once."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.world import ONE, World

from tollbar.engine.port import Work
from tollbar.jobs import flows
from tollbar.jobs.pump import read_work_id, trial_work_id

IN_ENGINE = "state IN ('admitted', 'starting', 'running', 'verifying', 'stopping')"


async def expanded(world: World, attempts: int = 100, tasks: int = 2, **members: Any) -> str:
    """Returns a Job whose Trials wait."""
    source = {} if tasks == 2 else {"dataset": ONE}
    job = await world.submit(attempts=attempts, **source, **members)
    await flows.expand(world.tools, job["job_id"])
    return job["job_id"]


async def admitted(world: World) -> Counter[str]:
    """Returns how many Trials of each Job are in the engine."""
    rows = await world.rows(f"SELECT job_id, count(*) AS n FROM trial WHERE {IN_ENGINE} GROUP BY job_id")
    return Counter({row.job_id: row.n for row in rows})


async def ends(world: World, job_id: str, count: int) -> None:
    """Ends so many admitted Trials of a Job."""
    await world.rows(
        "UPDATE trial SET state = 'succeeded', reward = 1, finished_at = now() WHERE id IN"
        " (SELECT id FROM trial WHERE job_id = :j AND state = 'admitted' ORDER BY seq LIMIT :n)",
        j=job_id, n=count,
    )  # fmt: skip


@pytest.mark.requirement("G-ENG-17.pump_killed")
async def test_what_fits_is_admitted_and_enqueued_in_one_transaction(world: World) -> None:
    job_id = await expanded(world)
    world.capacity = 7
    assert await world.pump.run_once() == 7
    assert await world.pump.run_once() == 0
    rows = await world.rows("SELECT id, state FROM trial WHERE state = 'admitted' ORDER BY seq")
    waiting = [row for row in await world.engine.waiting() if row.flow == "trial"]
    assert sorted(row.id for row in waiting) == sorted(trial_work_id(row.id, 1) for row in rows)
    assert {(row.queue, row.priority, row.args[1]) for row in waiting} == {("trials.bwrap", 1000, 1)}
    assert (await admitted(world))[job_id] == 7


async def test_a_job_of_which_a_call_waits_for_money_starts_no_new_trial_meanwhile(world: World) -> None:
    waits, goes_on = await expanded(world, max_cost_usd=1), await expanded(world, max_cost_usd=1)
    world.capacity = 6
    until = "UPDATE budget SET waiting_until = clock_timestamp() + make_interval(secs => :s) WHERE id ="
    await world.rows(f"{until} (SELECT budget_id FROM job WHERE id = :j)", s=60, j=waits)
    assert await world.pump.run_once() == 6
    assert await admitted(world) == {goes_on: 6}
    await world.rows(f"{until} (SELECT budget_id FROM job WHERE id = :j)", s=-1, j=waits)
    world.capacity = 10
    await world.pump.run_once()
    assert (await admitted(world))[waits] == 4


async def test_the_trials_of_a_backend_wait_for_its_own_workers_and_go_to_its_queue(world: World) -> None:
    """Only one machine of several may have Docker: no Trial takes another backend's place or waits for it."""
    docker, bwrap = await expanded(world, runner="envhub/docker"), await expanded(world)
    world.capacity = 3
    assert await world.pump.run_once() == 3
    assert await admitted(world) == {bwrap: 3}

    async def capacity(_: Any) -> dict[str, int]:
        return {"bwrap": 3, "docker": 2}

    both = replace(world.pump, capacity=capacity)
    assert await both.run_once() == 2
    assert await both.run_once() == 0
    assert await admitted(world) == {bwrap: 3, docker: 2}
    queues = Counter(row.queue for row in await world.engine.waiting() if row.flow == "trial")
    assert queues == {"trials.bwrap": 3, "trials.docker": 2}


async def test_first_attempts_of_all_tasks_go_first(world: World) -> None:
    await expanded(world, attempts=3)
    world.capacity = 3
    await world.pump.run_once()
    rows = await world.rows("SELECT task_id, attempt FROM trial WHERE state = 'admitted' ORDER BY seq")
    assert [tuple(row) for row in rows] == [("one", 1), ("two", 1), ("one", 2)]


@pytest.mark.requirement("G-ENG-17.pump")
async def test_a_job_never_runs_more_than_its_limit(world: World) -> None:
    narrow = replace(world, context=replace(world.context, max_running=5))
    job_id = await expanded(narrow)
    world.capacity = 100
    assert await world.pump.run_once() == 5
    await ends(world, job_id, 2)
    assert await world.pump.run_once() == 2
    assert (await admitted(world))[job_id] == 5


@pytest.mark.requirement("G-ENG-17.pump")
async def test_a_project_never_runs_more_than_its_limit(world: World) -> None:
    for _ in range(3):
        await expanded(world, attempts=10)
    world.capacity = 100
    pump = replace(world.pump, project_limit=12)
    assert await pump.run_once() == 12
    assert await pump.run_once() == 0
    assert max((await admitted(world)).values()) == 4


@pytest.mark.requirement("G-ENG-17.pump")
async def test_a_small_job_beside_one_of_five_hundred_gets_its_share_at_once(world: World) -> None:
    wide = replace(world, context=replace(world.context, max_running=500))
    await world.publish("team/five", tasks=("a", "b", "c", "d", "e"))
    large = await expanded(wide, attempts=100, dataset="team/five@1")
    assert await world.value("SELECT count(*) FROM trial") == 500
    world.capacity = 24
    await world.pump.run_once()
    small = await expanded(wide, attempts=4)
    await ends(world, large, 12)
    await world.pump.run_once()
    # The small one has nothing yet, so each of its 8 Trials comes before a further one of the large one's.
    assert dict(await admitted(world)) == {large: 16, small: 8}


async def test_jobs_take_turns(world: World) -> None:
    jobs = [await expanded(world, attempts=20) for _ in range(4)]
    world.capacity = 20
    await world.pump.run_once()
    assert dict(await admitted(world)) == dict.fromkeys(jobs, 5)


@pytest.mark.requirement("G-ENG-17.pump")
async def test_a_larger_priority_goes_first(world: World) -> None:
    usual, urgent, patient = [await expanded(world, attempts=10, priority=rank) for rank in (0, 100, -100)]
    world.capacity = 25
    await world.pump.run_once()
    found = await admitted(world)
    assert (found[urgent], found[usual], found[patient]) == (20, 5, 0)
    assert {row.priority for row in await world.engine.waiting() if row.flow == "trial"} == {900, 1000}


@pytest.mark.parametrize("state", ["pending", "stopping", "cancelled", "completed", "failed"])
async def test_only_a_running_job_gets_trials_admitted(world: World, state: str) -> None:
    await expanded(world)
    await world.rows("UPDATE job SET state = :state", state=state)
    assert await world.pump.run_once() == 0


async def test_what_stops_or_runs_takes_room(world: World) -> None:
    job_id = await expanded(world)
    world.capacity = 6
    states = ("admitted", "starting", "running", "verifying", "stopping")
    for seq, state in enumerate(states):
        await world.rows("UPDATE trial SET state = :s WHERE job_id = :j AND seq = :q", s=state, j=job_id, q=seq)
    assert await world.pump.run_once() == 1


@pytest.mark.requirement("G-ENG-17.pump")
async def test_two_pumps_at_once_admit_each_trial_once_and_never_above_the_capacity(world: World) -> None:
    jobs = [await expanded(world, attempts=20) for _ in range(3)]
    world.capacity = 16
    done = 0
    while done < 120:
        await asyncio.gather(*(world.pump.run_once() for _ in range(4)))
        found = await admitted(world)
        assert found.total() <= 16
        for job_id in jobs:
            await ends(world, job_id, found[job_id])
        done += found.total()
    assert done == 120
    assert await world.value("SELECT count(*) FROM work WHERE flow = 'trial'") == 120


async def test_a_capacity_of_nothing_admits_nothing(world: World) -> None:
    await expanded(world)
    world.capacity = 0
    assert await world.pump.run_once() == 0
    world.capacity = -5
    assert await world.pump.run_once() == 0


@pytest.mark.requirement("G-ENG-17.pump_killed")
async def test_an_engine_that_fails_leaves_every_trial_waiting(world: World) -> None:
    await expanded(world, attempts=2)
    await world.rows("ALTER TABLE work RENAME TO away")
    with pytest.raises(Exception, match="work"):
        await world.pump.run_once()
    assert await world.value("SELECT count(*) FROM trial WHERE state = 'pending'") == 4
    await world.rows("ALTER TABLE away RENAME TO work")
    assert await world.pump.run_once() == 4


async def test_a_try_that_the_engine_knows_already_gets_the_next_number_and_blocks_nobody(world: World) -> None:
    await expanded(world, attempts=1)
    first = await world.value("SELECT id FROM trial WHERE seq = 0")
    async with world.database.transaction() as session:
        await world.engine.enqueue(session, Work(trial_work_id(first, 1), "trial", "trials.bwrap", (first, 1)))
    await world.pump.run_once()
    states = await world.rows("SELECT state, try_no, losses FROM trial ORDER BY seq")
    assert [tuple(row) for row in states] == [("pending", 2, 0), ("admitted", 1, 0)]
    await world.pump.run_once()
    assert await world.value("SELECT state FROM trial WHERE seq = 0") == "admitted"


async def test_a_trial_that_is_just_being_moved_is_left_to_who_moves_it(world: World) -> None:
    await expanded(world, attempts=1)
    async with world.database.transaction() as session:
        await flows.store.cancel_waiting(
            session, await world.value("SELECT id FROM job"), "CANCELLED", world.clock.now()
        )
        async with asyncio.timeout(2):
            assert await world.pump.run_once() == 0


@pytest.mark.parametrize("text", ["job:job_x", "trial:x", "trial:x:", "trial:x:-1", "trial::", "hook:a:1", ""])
def test_what_is_no_try_is_not_read_as_one(text: str) -> None:
    assert read_work_id(text) is None


def test_a_work_id_is_read_as_it_was_written() -> None:
    assert read_work_id(trial_work_id("trial_01", 12)) == ("trial_01", 12)


@pytest.mark.requirement("G-ENG-17.pump")
async def test_a_submission_may_ask_for_less_at_once_than_the_server_gives_a_job(world: World) -> None:
    narrow = await expanded(world, attempts=10, max_concurrent=3)
    greedy = await expanded(world, attempts=100, max_concurrent=10_000)
    world.capacity = 200
    await world.pump.run_once()
    assert dict(await admitted(world)) == {narrow: 3, greedy: world.context.max_running}
    assert (await world.job(greedy))["max_concurrent"] == world.context.max_running


@pytest.mark.requirement("G-ENG-17.pump")
async def test_ten_jobs_in_two_projects_beside_a_large_and_an_urgent_one_keep_every_limit(world: World) -> None:
    """The guide's row: limits never broken, the urgent Job first, small Jobs not starved, each Trial once."""
    wide = replace(world, context=replace(world.context, max_running=500))
    await world.publish("team/five", tasks=("a", "b", "c", "d", "e"))
    large = await expanded(wide, attempts=100, dataset="team/five@1")
    limits = [3, 5, 8, 12, 20, 30, 40, 50]
    small = [await expanded(world, attempts=30, max_concurrent=limit) for limit in limits]
    urgent = await expanded(world, attempts=20, priority=100)
    for job_id in (large, *small[:4]):
        for table in ("job", "trial"):
            key = "id" if table == "job" else "job_id"
            await world.rows(f"UPDATE {table} SET project_id = 'proj_b' WHERE {key} = :j", j=job_id)
    world.capacity, pump = 48, replace(world.pump, project_limit=30)
    order: list[str] = []
    started: Counter[str] = Counter()
    while True:
        rounds = await asyncio.gather(pump.run_once(), pump.run_once())
        found = await admitted(world)
        if not found:
            break
        assert sum(rounds) <= 48
        assert found.total() <= 48
        assert found[large] + sum(found[job_id] for job_id in small[:4]) <= 30
        assert found[urgent] + sum(found[job_id] for job_id in small[4:]) <= 30
        assert all(found[job_id] <= limit for job_id, limit in zip(small, limits, strict=True))
        for job_id, count in found.items():
            started[job_id] += count
            await ends(world, job_id, count)
            waiting = await world.value("SELECT count(*) FROM trial WHERE job_id = :j AND state = 'pending'", j=job_id)
            if not waiting and job_id not in order:
                order.append(job_id)
    assert started == {large: 500, urgent: 40, **dict.fromkeys(small, 60)}
    assert await world.value("SELECT count(*) FROM work WHERE flow = 'trial'") == 500 + 40 + 8 * 60
    assert order[0] == urgent
    assert order[-1] == large


async def test_the_end_of_a_try_calls_the_pump_only_when_the_line_before_the_slots_runs_out(world: World) -> None:
    calls: list[str] = []
    tools = replace(world.tools, kick_pump=lambda: calls.append("pump"), kick_below=2, slots=asyncio.Semaphore(0))

    async def wait_in_line() -> None:
        async with tools.slot():
            pass

    waiting = [asyncio.create_task(wait_in_line()) for _ in range(2)]
    await asyncio.sleep(0)
    await flows.leave(tools, "trial_none", 1)
    assert calls == []
    tools.slots.release()
    await asyncio.wait(waiting, return_when=asyncio.ALL_COMPLETED)
    await flows.leave(tools, "trial_none", 1)
    assert calls == ["pump"]
