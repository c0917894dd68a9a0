"""What a worker would have made of a Job: Trials with rewards, with reasons for none, or still on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from tests.mcp.world import World

from tollbar.budget import service as budget
from tollbar.budget.schemas import Chain, Lease, Purpose, Reserved
from tollbar.jobs import endings
from tollbar.jobs import store as jobs_store
from tollbar.jobs.states import JobState, TrialState
from tollbar.jobs.tables import JobRow, JobTaskRow
from tollbar.kit.ids import new_id

_STATES = {state.value: state for state in TrialState}
PUSD = 10**12


async def worked(
    world: World, job_id: str, outcomes: Mapping[str, Sequence[float | str]], *, took_s: float = 0, ended: bool = False
) -> None:
    """Writes a Job's Trials: per task a list of rewards, of reasons (upper-case), or of states (lower-case).

    `ended`: the Job ends with them. `took_s` passes on the clock in between.
    """
    async with world.database.transaction() as session:
        started = world.clock.now()
        await jobs_store.move_job(session, job_id, JobState.RUNNING, started_at=started)
        world.clock.advance(took_s)
        tasks = {task.task_id: task for task in await jobs_store.tasks(session, job_id)}
        slots = [(task_id, *slot) for task_id, found in outcomes.items() for slot in enumerate(found, start=1)]
        for seq, (task_id, attempt, outcome) in enumerate(slots, start=1):
            await _trial(session, world, tasks[task_id], seq, attempt, outcome)
        await jobs_store.mark_expanded(session, job_id)
        if ended:
            await endings.end_job_if_done(session, await _locked(session, job_id), world.clock.now())


async def _trial(
    session: AsyncSession, world: World, task: JobTaskRow, seq: int, attempt: int, outcome: float | str
) -> None:
    scored = not isinstance(outcome, str)
    stopped = outcome in {"CANCELLED", "BUDGET_EXCEEDED"}
    unscored = TrialState.CANCELLED if stopped else TrialState.FAILED
    state = TrialState.SUCCEEDED if scored else _STATES.get(outcome, unscored)
    over, now = state in {TrialState.SUCCEEDED, TrialState.FAILED, TrialState.CANCELLED}, world.clock.now()
    row: dict[str, Any] = {
        "id": new_id("trial"),
        "job_id": task.job_id,
        "project_id": world.actor.project_id,
        "seq": seq,
        "task_seq": task.seq,
        "task_name": task.name,
        "task_id": task.task_id,
        "task_digest": task.digest,
        "attempt": attempt,
        "state": state.value,
        "reward": outcome if scored else None,
        "passed": outcome >= task.threshold if scored else None,
        "reason": outcome if over and not scored else None,
        "agent_outcome": "completed" if scored else None,
        "created_at": now,
        "started_at": now if over else None,
        "finished_at": now if over else None,
    }
    await jobs_store.add_trials(session, [row])
    if over:
        await jobs_store.add_to_task(session, task.job_id, task.seq, state, row["reward"], passed=bool(row["passed"]))


async def spent(world: World, job_id: str, usd: float, *, reserved_usd: float = 0) -> None:
    """Spends and reserves money of a Job's budget."""
    async with world.database.transaction() as session:
        job = await _locked(session, job_id)
        for amount, settled in ((usd, True), (reserved_usd, False)):
            if amount:
                pusd = round(amount * PUSD)
                name = new_id("lease")
                lease = Lease(
                    name, Chain(job.project_id, (job.budget_id,)), job.created_at.date(), f"trial:{name}:1",
                    "envhub/metered", Purpose.AGENT, "worker", pusd, 1,
                )  # fmt: skip
                assert isinstance(await budget.reserve_lease(session, lease), Reserved)
                if settled:
                    await budget.settle_lease(session, name, pusd)


async def stopped_by_cap(world: World, job_id: str) -> None:
    """Ends a Job as its cap does."""
    error = {
        "error_code": "BUDGET_EXCEEDED",
        "error_message": "The cap of 0.5 USD leaves no room for the next call (up to 0.052 USD).",
        "error_scope": "job",
    }
    async with world.database.transaction() as session:
        job = await _locked(session, job_id)
        await endings.stop_job(session, world.context.engine, job, world.clock.now(), error=error)
        await endings.end_job_if_done(session, await _locked(session, job_id), world.clock.now())


async def renamed(world: World, job_id: str, *, tag: str | None = None, name: str | None = None) -> None:
    """Puts other words into a Job than a submission would take."""
    async with world.database.transaction() as session:
        job = await _locked(session, job_id)
        job.tag, job.name = tag or job.tag, name or job.name


async def _locked(session: AsyncSession, job_id: str) -> JobRow:
    job = await jobs_store.lock_job(session, job_id)
    assert job is not None
    return job
