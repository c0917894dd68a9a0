"""How Trials and Jobs end: once, in one transaction, with the Job's row locked first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import limits as project_limits
from tollbar.budget import service as budget
from tollbar.budget.schemas import BudgetState, BudgetView, Lease, Level, Reached, trial_budget_id
from tollbar.engine.port import Engine, Work
from tollbar.jobs import expansion, store
from tollbar.jobs.retries import Failure
from tollbar.jobs.rewards import Graded
from tollbar.jobs.states import JOB_TERMINAL, TRIAL_WORKING, JobErrorCode, JobState, Reason, TrialState
from tollbar.jobs.tables import JobRow, TrialRow
from tollbar.kit.money import format_usd

CONTROL_QUEUE: Final = "control"
_SHARE: Final = "share of this Trial"
_OVERRUN: Final = "overrun"


@dataclass(frozen=True)
class Ending:
    """What a Trial ends with: a reward, or a reason for none; `values` are further columns of its row."""

    state: TrialState
    values: dict[str, Any]
    reward: float | None = None
    passed: bool = False


def unscored(failure: Failure, **values: Any) -> Ending:
    """Returns the ending of a Trial without reward."""
    facts = {"reason": failure.reason.value, "reason_detail": failure.detail, "message": failure.message, **values}
    return Ending(TrialState.FAILED, facts)


def scored(outcome: Graded, threshold: float, **values: Any) -> Ending:
    """Returns the ending of a Trial with a reward."""
    passed = outcome.reward >= threshold
    whole = {**values, "structured": outcome.structured(), "passed": passed}
    return Ending(TrialState.SUCCEEDED, whole, outcome.reward, passed)


async def end_trial(
    session: AsyncSession, job_id: str, trial_id: str, try_no: int, task_seq: int, ending: Ending, now: datetime
) -> bool:
    """Ends a Trial of exactly this try and, with the last one, its Job; False when it had ended before."""
    job = await store.lock_job(session, job_id)
    assert job is not None
    moved = await store.move_trial(
        session, trial_id, try_no, ending.state, finished_at=now, reward=ending.reward, **ending.values
    )
    if not moved:
        return False
    await store.add_to_task(session, job_id, task_seq, ending.state, ending.reward, passed=ending.passed)
    await end_job_if_done(session, job, now)
    return True


async def end_stopping(
    session: AsyncSession, job_id: str, trial_id: str, try_no: int, task_seq: int, now: datetime
) -> bool:
    """Ends a Trial that was being stopped: at its own share of the Job, or for the reason for which its Job stops."""
    job = await store.lock_job(session, job_id)
    assert job is not None
    facts = {"reason": stop_reason(job).value}
    if job.trial_cap_pusd is not None:
        share = await budget.view(session, trial_budget_id(trial_id))
        if share.is_stopped:
            reached = Reached(share.budget_id, Level.TRIAL, share.stopped_worst_pusd or 0)
            message = await _too_little(session, job.project_id, _SHARE, reached)
            facts = {"reason": Reason.BUDGET_EXCEEDED.value, "message": message}
    ending = Ending(TrialState.CANCELLED, facts)
    return await end_trial(session, job_id, trial_id, try_no, task_seq, ending, now)


def stop_reason(job: JobRow) -> Reason:
    """Returns why a stopping Job's Trials are cancelled: its cap, or a person."""
    return Reason(job.error_code) if job.error_code in {"BUDGET_EXCEEDED", "BUDGET_UNMETERED"} else Reason.CANCELLED


async def end_job_if_done(session: AsyncSession, job: JobRow, now: datetime) -> None:
    """Ends a (locked) Job when none of its Trials is left, and closes its budget."""
    if job.state in JOB_TERMINAL or not job.expanded or await store.live_exists(session, job.id):
        return
    if job.state == JobState.STOPPING:
        done = await store.move_job(session, job.id, JobState.CANCELLED, finished_at=now)
    elif any(task.n_succeeded for task in await store.tasks(session, job.id)):
        done = await store.move_job(session, job.id, JobState.COMPLETED, finished_at=now)
    else:
        message = "Every Trial ended without a reward; their reasons say why."
        done = await store.move_job(
            session,
            job.id,
            JobState.FAILED,
            finished_at=now,
            error_code=JobErrorCode.NO_TRIAL_SCORED.value,
            error_message=message,
        )
    if done:
        await budget.close(session, job.budget_id)
        if job.trial_cap_pusd is not None:
            await budget.close_shares(session, await store.trial_ids(session, job.id))


async def stop_job(
    session: AsyncSession, engine: Engine, job: JobRow, now: datetime, *, error: dict[str, str] | None = None
) -> bool:
    """Stops a (locked) Job: what waits is cancelled at once, what runs is ended by the stop flow.

    `error` says that the system stopped it (`error_code`, `error_message`, `error_scope`). False: it had ended or
    was stopping already, and nothing changes.
    """
    if not await store.move_job(session, job.id, JobState.STOPPING, **(error or {})):
        return False
    await session.refresh(job)
    await stop_waiting(session, job, now)
    if await store.stop_active(session, job.id):
        await engine.enqueue(session, Work(f"stop:{job.id}", "stop", CONTROL_QUEUE, (job.id,), priority=1))
    await end_job_if_done(session, job, now)
    return True


async def stop_waiting(session: AsyncSession, job: JobRow, now: datetime) -> None:
    """Cancels what no sandbox was started for; a Job without Trials gets them first, so that each slot has its end."""
    if not job.expanded:
        await expansion.write_trials(session, job, now)
    await store.cancel_waiting(session, job.id, stop_reason(job).value, now)


async def cap_reached(
    session: AsyncSession, engine: Engine, job_id: str, reached: Reached, refused: Lease, now: datetime
) -> None:
    """Stops a Job whose cap is reached; many Trials may say so at once, and the first one does it."""
    job = await store.lock_job(session, job_id)
    assert job is not None
    if job.state not in {JobState.PENDING, JobState.RUNNING}:
        return
    await budget.stop(session, reached, refused)
    whose = f"project's cap for {refused.day} (UTC)" if reached.level is Level.PROJECT_DAY else "cap"
    error = {
        "error_code": JobErrorCode.BUDGET_EXCEEDED.value,
        "error_message": await _too_little(session, job.project_id, whose, reached),
        "error_scope": reached.level.value,
    }
    await stop_job(session, engine, job, now, error=error)


async def share_reached(
    session: AsyncSession, trial: TrialRow, try_no: int, reached: Reached, refused: Lease, now: datetime
) -> None:
    """Ends a Trial whose own share of its Job is reached; the Job and its other Trials go on.

    One that is being stopped meanwhile ends for the reason for which its Job stops.
    """
    await store.lock_job(session, trial.job_id)
    await budget.stop(session, reached, refused)
    if await store.is_try(session, trial.id, try_no, TRIAL_WORKING):
        # The move to `stopping` and the end are one transaction: nobody sees the Trial in between.
        await store.move_trial(session, trial.id, try_no, TrialState.STOPPING)
        message = await _too_little(session, trial.project_id, _SHARE, reached)
        ending = Ending(TrialState.CANCELLED, {"reason": Reason.BUDGET_EXCEEDED.value, "message": message})
        await end_trial(session, trial.job_id, trial.id, try_no, trial.task_seq, ending, now)
    else:
        await end_stopping(session, trial.job_id, trial.id, try_no, trial.task_seq, now)


async def follow_stop(
    session: AsyncSession,
    engine: Engine,
    subject: str,
    stop: Callable[[], Awaitable[object]] | None,
    now: datetime,
) -> None:
    """Ends what a model call has brought to its cap, in the transaction that stops the budget.

    `subject` is `trial:<id>:<try_no>`, any other is not ours. The Job is locked before `stop` moves a budget, as by
    everybody who writes both. A stopped Job's budget stops the Job, a Trial's share that Trial alone; safe to repeat.
    """
    kind, _, rest = subject.partition(":")
    trial_id, _, try_no = rest.rpartition(":")
    jobs = await store.lock_jobs_of(session, [trial_id]) if kind == "trial" else []
    if stop is not None:
        await stop()
    for job in jobs:
        own = await budget.view(session, job.budget_id)
        if own.is_stopped:
            if job.state in {JobState.PENDING, JobState.RUNNING}:
                await stop_job(session, engine, job, now, error=await _stopped_error(session, job, own))
        elif job.trial_cap_pusd is not None:
            await _follow_share(session, engine, job, trial_id, int(try_no))


async def _follow_share(session: AsyncSession, engine: Engine, job: JobRow, trial_id: str, try_no: int) -> None:
    share = await budget.view(session, trial_budget_id(trial_id))
    origins = TRIAL_WORKING
    if share.is_stopped and await store.move_trial(session, trial_id, try_no, TrialState.STOPPING, origins=origins):
        work = Work(f"stop:{trial_id}:{try_no}", "stop", CONTROL_QUEUE, (job.id,), priority=1)
        await engine.enqueue(session, work)


async def _stopped_error(session: AsyncSession, job: JobRow, view: BudgetView) -> dict[str, str]:
    """Returns why a Job ends whose budget was stopped."""
    scope = view.stopped_scope or Level.JOB.value
    code = JobErrorCode.BUDGET_EXCEEDED
    if view.state is BudgetState.UNMETERED:
        code, message = JobErrorCode.BUDGET_UNMETERED, "What a model call cost could not be told, under a cap."
    elif scope == _OVERRUN:
        message = "A model call cost more than its bound."
    else:
        day = scope == Level.PROJECT_DAY
        reached = Reached(view.budget_id, Level.PROJECT_DAY if day else Level.JOB, view.stopped_worst_pusd or 0)
        message = await _too_little(session, job.project_id, "project's daily cap" if day else "cap", reached)
    return {"error_code": code.value, "error_message": message, "error_scope": scope}


async def _too_little(session: AsyncSession, project_id: str, whose: str, reached: Reached) -> str:
    if reached.level is Level.PROJECT_DAY:
        # What was set, not what of it the day's budget had left when it was set.
        cap = (await project_limits.limits_of(session, project_id)).day_cap_pusd or 0
    else:
        cap = (await budget.view(session, reached.budget_id)).cap_pusd or 0
    next_call = f"the next call (up to {format_usd(reached.worst_pusd)} USD)"
    return f"The {whose} of {format_usd(cap)} USD leaves too little for {next_call}."
