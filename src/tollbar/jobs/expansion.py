"""From a Job to its Trials: one row per slot, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget import service as budget
from tollbar.jobs import store
from tollbar.jobs.states import JobState, TrialState
from tollbar.jobs.tables import JobRow, JobTaskRow
from tollbar.kit.ids import new_id

_BATCH: Final = 500


async def expand(session: AsyncSession, job: JobRow, now: datetime) -> int:
    """Begins a (locked) Job: writes its Trials, once, and returns how many; a Job that was stopped has them already."""
    if job.expanded:
        return 0
    await store.move_job(session, job.id, JobState.RUNNING, started_at=now)
    return await write_trials(session, job, now)


async def write_trials(session: AsyncSession, job: JobRow, now: datetime) -> int:
    """Writes the Trials of a (locked) Job that has none yet and returns how many they are."""
    rows = _rows(job, await store.tasks(session, job.id), now)
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        await store.add_trials(session, part)
        if job.trial_cap_pusd is not None:
            await budget.open_shares(session, [row["id"] for row in part], job.trial_cap_pusd)
    await store.mark_expanded(session, job.id)
    await session.refresh(job)
    return len(rows)


def _rows(job: JobRow, tasks: Sequence[JobTaskRow], now: datetime) -> list[dict[str, Any]]:
    """One row per slot, first attempts of all tasks first: early scores then cover the whole dataset."""
    by_seq = {task.seq: task for task in tasks}
    if job.slots is None:
        slots = [(attempt, task) for attempt in range(1, job.attempts + 1) for task in tasks]
    else:
        slots = [(attempt, by_seq[seq]) for seq, attempt in job.slots]
    return [
        {
            "id": new_id("trial"),
            "job_id": job.id,
            "project_id": job.project_id,
            "seq": seq,
            "task_seq": task.seq,
            "task_name": task.name,
            "task_id": task.task_id,
            "task_digest": task.digest,
            "split": task.split,
            "attempt": attempt,
            "state": TrialState.PENDING.value,
            "created_at": now,
        }
        for seq, (attempt, task) in enumerate(slots)
    ]
