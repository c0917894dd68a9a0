"""The durable flows: expand a Job, run one try of a Trial, end what a stopped Job still runs.

A flow's body is only calls of steps; everything between stands in our rows. Names are stored with the engine's
rows, so they never change with the code.
"""

from __future__ import annotations

from typing import Any

from structlog.contextvars import bound_contextvars

from tollbar.budget.schemas import trial_subject
from tollbar.engine.port import Engine
from tollbar.jobs import agent_phase, endings, grading, keeping, metering, store
from tollbar.jobs.events import service as events
from tollbar.jobs.phase import ENDED, SEALED
from tollbar.jobs.pump import trial_work_id
from tollbar.jobs.retries import TRIES, Failure, pause_s
from tollbar.jobs.states import TrialState
from tollbar.jobs.tools import TrialTools
from tollbar.kit.cleanup import to_the_end


def register(engine: Engine, tools: TrialTools) -> None:
    """Registers every flow of Jobs; called once, before the engine starts."""

    @engine.flow("job")
    async def job(job_id: str) -> None:
        with bound_contextvars(job_id=job_id):
            await engine.step("expand", expand, tools, job_id)
            tools.kick_pump()

    @engine.flow("trial")
    async def trial(trial_id: str, try_no: int) -> None:
        # Every line that is logged meanwhile, by whatever library, says whose it is.
        with bound_contextvars(trial_id=trial_id, try_no=try_no):
            await _try(engine, tools, trial_id, try_no)

    @engine.flow("stop")
    async def stop(job_id: str) -> None:
        with bound_contextvars(job_id=job_id):
            await engine.step("end", end_running, tools, job_id)

    del job, trial, stop


async def _try(engine: Engine, tools: TrialTools, trial_id: str, try_no: int) -> None:
    try:
        async with tools.slot():
            outcome = await engine.step("agent", agent_phase.run, tools, trial_id, try_no, preemptible=True)
            if outcome == SEALED:
                outcome = await engine.step("grade", grading.run, tools, trial_id, try_no, preemptible=True)
        if isinstance(outcome, dict):
            # Waits without a slot.
            await engine.step("again", try_again, tools, trial_id, try_no, outcome, preemptible=True)
    finally:
        # A flow that is cancelled between two steps has no step left that could write its end.
        await to_the_end(leave(tools, trial_id, try_no))


async def expand(tools: TrialTools, job_id: str) -> int:
    """Writes the Trials of a Job, all or none, and returns how many."""
    async with tools.database.transaction() as session:
        job = await store.lock_job(session, job_id)
        if job is None:
            return 0
        return await metering.begin(session, tools.engine, tools.gateway, tools.adapters, job, tools.clock.now())


async def try_again(tools: TrialTools, trial_id: str, try_no: int, facts: dict[str, Any]) -> str:
    """Puts a Trial whose try failed for no fault of its agent under its next try, after a pause.

    A failure that turns out to be the last one ends it with that failure's reason.
    """
    failure = Failure.of(facts)
    async with tools.database.session() as session:
        found = await store.working_set(session, trial_id)
    if found is None:
        return ENDED
    trial = found[0]
    await tools.clock.sleep(pause_s(trial.losses + 1, trial_id))
    async with tools.database.transaction() as session:
        await store.lock_job(session, trial.job_id)
        bound = TRIES.get(failure.reason, 1)
        if await store.next_try(session, {trial_id: try_no}, lost=True, bound=bound):
            why = (failure.reason.value, failure.detail, failure.message)
            await events.store.add(session, [events.retried(trial, try_no, *why)])
        else:
            now = tools.clock.now()
            ending = endings.unscored(failure)
            await endings.end_trial(session, trial.job_id, trial_id, try_no, trial.task_seq, ending, now)
    return ENDED


async def end_running(tools: TrialTools, job_id: str) -> int:
    """Cancels in the engine what a stopping Job still runs; each running step then ends its own sandbox."""
    async with tools.database.session() as session:
        running = await store.stopping(session, job_id)
    await tools.engine.cancel([trial_work_id(trial_id, try_no) for trial_id, try_no in running])
    return len(running)


async def leave(tools: TrialTools, trial_id: str, try_no: int) -> None:
    """Keeps or destroys the sandbox that is left of a try, and ends a Trial that was being stopped."""
    waiting = tools.waiting.pop((trial_id, try_no), None)
    if waiting is not None:
        await keeping.leave(tools, trial_id, try_no, waiting)
    if tools.gateway is not None:
        tools.gateway.forget(trial_subject(trial_id, try_no))
    async with tools.database.glance() as session:
        stopping = await store.is_try(session, trial_id, try_no, [TrialState.STOPPING])
    if stopping:
        await _end_stopping(tools, trial_id, try_no)
    tools.trial_left()


async def _end_stopping(tools: TrialTools, trial_id: str, try_no: int) -> None:
    async with tools.database.transaction() as session:
        # Looked at again: another one may have ended it meanwhile.
        stopping = await store.is_try(session, trial_id, try_no, [TrialState.STOPPING])
        found = await store.working_set(session, trial_id) if stopping else None
        if found is not None:
            row = found[0]
            await endings.end_stopping(session, row.job_id, trial_id, try_no, row.task_seq, tools.clock.now())
