"""What callers can do with Jobs and Trials: submit, ask, stop."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.jobs import endings, lookup, store
from tollbar.jobs.admission import store as admission
from tollbar.jobs.context import JobsContext
from tollbar.jobs.events import service as events
from tollbar.jobs.reading import (
    MATRIX_LIMIT,
    list_page,
    matrix,
    require_trial,
    result,
    status,
    trial,
    trial_result,
    trials_page,
)
from tollbar.jobs.states import JOB_TERMINAL
from tollbar.jobs.submitting import submit

__all__ = [
    "MATRIX_LIMIT",
    "JobsContext",
    "list_page",
    "matrix",
    "require_trial",
    "result",
    "running_trials",
    "status",
    "stop",
    "submit",
    "trial",
    "trial_result",
    "trials_page",
]


async def stop(session: AsyncSession, context: JobsContext, actor: Principal, job_id: str) -> dict[str, Any]:
    """Stops a Job in the caller's transaction and returns it; one that ended stays as it is."""
    await lookup.job_row(session, actor, job_id)
    job = await store.lock_job(session, job_id)
    assert job is not None
    if job.state not in JOB_TERMINAL:
        await events.store.add(session, [events.stop_requested(job.id, job.project_id, actor)])
        await endings.stop_job(session, context.engine, job, context.clock.now())
    return await status(session, context, actor, job_id)


async def running_trials(session: AsyncSession, actor: Principal) -> int:
    """Returns how many Trials of the project are at work, or handed to a worker."""
    return await admission.running_in_project(session, actor)
