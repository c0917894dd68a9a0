"""Jobs and Trials of one project as the objects that people see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.budget import service as budget
from tollbar.engine import liveness
from tollbar.jobs import schemas, store
from tollbar.jobs.context import JobsContext
from tollbar.jobs.errors import (
    JobNotFound,
    TrialNotFound,
)
from tollbar.jobs.events import store as events
from tollbar.jobs.states import JOB_TERMINAL
from tollbar.jobs.tables import JobRow, JobTaskRow, TrialRow
from tollbar.kit.ids import is_id


async def job_row(session: AsyncSession, actor: Principal, job_id: str) -> JobRow:
    """Returns a Job of the actor's project; raises `JobNotFound`."""
    job = await store.job(session, actor, job_id) if is_id(job_id, "job") else None
    if job is None:
        raise JobNotFound
    return job


async def trial_row(session: AsyncSession, actor: Principal, trial_id: str) -> TrialRow:
    """Returns a Trial of the actor's project; raises `TrialNotFound`."""
    row = await store.trial(session, actor, trial_id) if is_id(trial_id, "trial") else None
    if row is None:
        raise TrialNotFound
    return row


async def job_object(session: AsyncSession, context: JobsContext, job: JobRow) -> dict[str, Any]:
    """Returns the wire's object of a Job as its row and sums are now."""
    return schemas.job_object((await job_views(session, context, [job]))[0])


async def job_views(session: AsyncSession, context: JobsContext, jobs: Sequence[JobRow]) -> list[schemas.JobView]:
    """Returns what the objects of these Jobs are made of, in a number of reads that their count does not change."""
    ids = [job.id for job in jobs]
    tasks = await store.tasks_of(session, ids)
    active = await store.active_counts(session, ids)
    money = await budget.views(session, [job.budget_id for job in jobs])
    fruitless = [job_id for job_id in ids if _is_fruitless(tasks[job_id])]
    only = await events.only_reasons(session, fruitless) if fruitless else {}
    refs = {job.id: (job.dataset_ref["name"], job.dataset_ref["version"]) for job in jobs}
    checked = await store.checked_versions(session, jobs[0].project_id, [*refs.values()]) if jobs else set()
    waiting = any(job.state not in JOB_TERMINAL for job in jobs)
    served = await liveness.served(session, context.dead_after_s) if waiting else frozenset[str]()
    return [
        schemas.JobView(
            job,
            tasks[job.id],
            active[job.id],
            money[job.budget_id],
            context.origin,
            only.get(job.id),
            is_served=job.state in JOB_TERMINAL or job.runner["backend"] in served,
            is_checked=refs[job.id] in checked,
        )
        for job in jobs
    ]


def _is_fruitless(tasks: Sequence[JobTaskRow]) -> bool:
    return any(task.n_failed for task in tasks) and not any(task.n_succeeded for task in tasks)
