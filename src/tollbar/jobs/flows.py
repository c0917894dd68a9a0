"""The durable flows: expand a Job, run one try of a Trial, end what a stopped Job still runs.

A flow's body is only calls of steps; everything between stands in our rows. Names are stored with the engine's
rows, so they never change with the code.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tollbar.engine.port import Engine
from tollbar.jobs import agent_phase, endings, grading, store
from tollbar.jobs.pump import trial_work_id
from tollbar.jobs.states import JobState, TrialState
from tollbar.jobs.tables import JobRow, JobTaskRow
from tollbar.jobs.tools import TrialTools
from tollbar.kit.ids import new_id

_BATCH: Final = 500
SEALED: Final = "sealed"


def register(engine: Engine, tools: TrialTools) -> None:
    """Registers every flow of Jobs; called once, before the engine starts."""

    @engine.flow("job")
    async def job(job_id: str) -> None:
        await engine.step("expand", expand, tools, job_id)
        tools.kick_pump()

    @engine.flow("trial")
    async def trial(trial_id: str, try_no: int) -> None:
        try:
            async with tools.slots:
                sealed = await engine.step("agent", agent_phase.run, tools, trial_id, try_no, preemptible=True)
                if sealed == SEALED:
                    await engine.step("grade", grading.run, tools, trial_id, try_no, preemptible=True)
        finally:
            # A flow that is cancelled between two steps has no step left that could write its end.
            await asyncio.shield(_leave(tools, trial_id, try_no))

    @engine.flow("stop")
    async def stop(job_id: str) -> None:
        await engine.step("end", end_running, tools, job_id)

    del job, trial, stop


async def expand(tools: TrialTools, job_id: str) -> int:
    """Writes the Trials of a Job, all or none, and returns how many; a Job that is stopping gets none."""
    async with tools.database.transaction() as session:
        job = await store.lock_job(session, job_id)
        if job is None or job.expanded:
            return 0
        now = tools.clock.now()
        if job.state == JobState.PENDING:
            await store.move_job(session, job_id, JobState.RUNNING, started_at=now)
        rows = _trial_rows(job, await store.tasks(session, job_id), now)
        for start in range(0, len(rows), _BATCH):
            await store.add_trials(session, rows[start : start + _BATCH])
        await store.mark_expanded(session, job_id)
        return len(rows)


def _trial_rows(job: JobRow, tasks: list[JobTaskRow], now: Any) -> list[dict[str, Any]]:
    """One row per slot, first attempts of all tasks first: early scores then cover the whole dataset."""
    slots = [(attempt, task) for attempt in range(1, job.attempts + 1) for task in tasks]
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


async def end_running(tools: TrialTools, job_id: str) -> int:
    """Cancels in the engine what a stopping Job still runs; each running step then ends its own sandbox."""
    async with tools.database.session() as session:
        running = await store.stopping(session, job_id)
    await tools.engine.cancel([trial_work_id(trial_id, try_no) for trial_id, try_no in running])
    return len(running)


async def _leave(tools: TrialTools, trial_id: str, try_no: int) -> None:
    """Ends a Trial that was being stopped, and lets go of a sandbox that was kept for its grading."""
    sandbox = tools.kept.pop((trial_id, try_no), None)
    if sandbox is not None:
        await sandbox.destroy()
    async with tools.database.transaction() as session:
        found = await store.working_set(session, trial_id)
        if found is not None and found[0].state == TrialState.STOPPING and found[0].try_no == try_no:
            row = found[0]
            await endings.end_stopping(session, row.job_id, trial_id, try_no, row.task_seq, tools.clock.now())
    tools.kick_pump()
