"""States move as the data says, by compare-and-set; nothing else moves, and nothing leaves a terminal state."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.jobs.world import ONE, World

from tollbar.jobs import store
from tollbar.jobs.states import JOB_MOVES, JOB_TERMINAL, TRIAL_MOVES, TRIAL_TERMINAL, JobState, TrialState, job_phase
from tollbar.jobs.states import JobState as J
from tollbar.jobs.states import TrialState as T

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

JOB_ALLOWED = {
    (J.PENDING, J.RUNNING), (J.PENDING, J.STOPPING), (J.PENDING, J.FAILED), (J.PENDING, J.CANCELLED),
    (J.RUNNING, J.STOPPING), (J.RUNNING, J.COMPLETED), (J.RUNNING, J.FAILED), (J.STOPPING, J.CANCELLED),
}  # fmt: skip
"""The table of the contract, section 6."""

TRIAL_ALLOWED = {
    (T.PENDING, T.ADMITTED), (T.PENDING, T.CANCELLED),
    (T.ADMITTED, T.STARTING), (T.ADMITTED, T.CANCELLED), (T.ADMITTED, T.PENDING), (T.ADMITTED, T.FAILED),
    (T.STARTING, T.RUNNING), (T.STARTING, T.VERIFYING), (T.STARTING, T.STOPPING), (T.STARTING, T.PENDING),
    (T.STARTING, T.FAILED),
    (T.RUNNING, T.VERIFYING), (T.RUNNING, T.STOPPING), (T.RUNNING, T.PENDING), (T.RUNNING, T.FAILED),
    (T.VERIFYING, T.STOPPING), (T.VERIFYING, T.PENDING), (T.VERIFYING, T.SUCCEEDED), (T.VERIFYING, T.FAILED),
    (T.STOPPING, T.CANCELLED),
}  # fmt: skip
"""The moves of the contract, section 6, with `admitted` between the queue and the start."""


def test_the_tables_of_moves_are_those_of_the_contract() -> None:
    assert {(start, end) for start, ends in JOB_MOVES.items() for end in ends} == JOB_ALLOWED
    assert {(start, end) for start, ends in TRIAL_MOVES.items() for end in ends} == TRIAL_ALLOWED
    assert {state for state, ends in JOB_MOVES.items() if not ends} == JOB_TERMINAL
    assert {state for state, ends in TRIAL_MOVES.items() if not ends} == TRIAL_TERMINAL


@pytest.fixture
async def trial_id(world: World) -> str:
    job = await world.submit(dataset=ONE)
    await world.engine.run(f"job:{job['job_id']}")
    return await world.value("SELECT id FROM trial")


def facts(state: TrialState) -> dict[str, Any]:
    """Returns the columns that a state needs."""
    return {
        "reward": 1.0 if state is T.SUCCEEDED else None,
        "reason": "CANCELLED" if state in {T.FAILED, T.CANCELLED} else None,
        "finished_at": NOW if state in TRIAL_TERMINAL else None,
    }


@pytest.mark.requirement("G-HTTP-16.7")
async def test_a_trial_makes_exactly_the_allowed_moves(world: World, trial_id: str) -> None:
    made = set()
    for start, end in itertools.product(TrialState, TrialState):
        columns = {**facts(start), "state": start.value}
        assignments = ", ".join(f"{name} = :{name}" for name in columns)
        await world.rows(f"UPDATE trial SET {assignments} WHERE id = :id", id=trial_id, **columns)
        async with world.database.transaction() as session:
            moved = await store.move_trial(session, trial_id, 1, end, **facts(end))
        state = await world.value("SELECT state FROM trial WHERE id = :id", id=trial_id)
        assert state == (end if moved else start)
        if moved:
            made.add((start, end))
    assert made == TRIAL_ALLOWED


@pytest.mark.requirement("G-HTTP-16.7")
async def test_a_job_makes_exactly_the_allowed_moves(world: World, trial_id: str) -> None:
    job_id = await world.value("SELECT job_id FROM trial WHERE id = :id", id=trial_id)
    made = set()
    for start, end in itertools.product(JobState, JobState):
        await world.rows("UPDATE job SET state = :state WHERE id = :id", id=job_id, state=start.value)
        async with world.database.transaction() as session:
            moved = await store.move_job(session, job_id, end)
        assert await world.value("SELECT state FROM job WHERE id = :id", id=job_id) == (end if moved else start)
        if moved:
            made.add((start, end))
    assert made == JOB_ALLOWED


@pytest.mark.parametrize("try_no", [0, 2])
async def test_another_try_moves_nothing_and_writes_nothing(world: World, trial_id: str, try_no: int) -> None:
    await world.rows("UPDATE trial SET state = 'running' WHERE id = :id", id=trial_id)
    async with world.database.transaction() as session:
        assert not await store.move_trial(session, trial_id, try_no, T.VERIFYING)
        assert not await store.note_trial(session, trial_id, try_no, message="from elsewhere")
        assert not await store.next_try(session, {trial_id: try_no}, lost=True, bound=3)
        assert not await store.is_try(session, trial_id, try_no, TrialState)
    rows = await world.rows("SELECT state, message, try_no FROM trial")
    assert [tuple(row) for row in rows] == [("running", None, 1)]


async def test_a_trial_that_is_being_stopped_takes_no_more_facts(world: World, trial_id: str) -> None:
    await world.rows("UPDATE trial SET state = 'stopping' WHERE id = :id", id=trial_id)
    async with world.database.transaction() as session:
        assert not await store.note_trial(session, trial_id, 1, message="late")


@pytest.mark.parametrize(
    ("state", "expanded", "verifying", "phase"),
    [
        (J.PENDING, False, False, "queued"),
        (J.RUNNING, False, False, "preparing"),
        (J.RUNNING, True, False, "running"),
        (J.RUNNING, True, True, "scoring"),
        (J.STOPPING, True, True, "stopping"),
        (J.COMPLETED, True, False, "done"),
        (J.FAILED, True, False, "done"),
        (J.CANCELLED, True, False, "done"),
    ],
)
def test_each_state_has_its_phase(state: JobState, expanded: bool, verifying: bool, phase: str) -> None:
    assert job_phase(state, expanded=expanded, any_verifying=verifying) == phase
