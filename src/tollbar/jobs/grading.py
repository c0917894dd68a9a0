"""The second step of a Trial: run the verifier on the sealed artifacts and record what it says, once.

A task with steps was graded step by step; here its steps are added up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tollbar.artifacts import service as artifacts
from tollbar.artifacts.schemas import NewArtifact
from tollbar.jobs import endings, phase, stepwise, store, verifying
from tollbar.jobs.endings import Ending
from tollbar.jobs.leases import CapReached, TryOver
from tollbar.jobs.parts import Part
from tollbar.jobs.phase import ENDED, GONE, Outcome
from tollbar.jobs.retries import Failure
from tollbar.jobs.rewards import Unscored
from tollbar.jobs.states import Reason, TrialState
from tollbar.jobs.tables import SealRow
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.jobs.verifying import Case, Verdict
from tollbar.kit.cleanup import to_the_end
from tollbar.sandboxes.errors import EnvironmentFailure
from tollbar.sandboxes.interface import Form


async def run(tools: TrialTools, trial_id: str, try_no: int) -> Outcome:
    """Grades one try and ends its Trial; returns `ended`, `gone` (stopped, or another try's), or a failure's facts."""
    found = await _claim(tools, trial_id, try_no)
    if found is None:
        return GONE
    try:
        await _grade(tools, found)
    except TryOver:
        return GONE
    except CapReached as error:
        await phase.cap_reached(tools, found, error)
    except EnvironmentFailure as error:
        return await phase.fail(tools, found, Failure(Reason(error.reason), error.detail, error.message))
    except Exception:  # noqa: BLE001 - whatever it was, the Trial must come to an end
        return await phase.fail(tools, found, phase.internal_error(found, "grading failed"))
    return ENDED


async def _claim(tools: TrialTools, trial_id: str, try_no: int) -> WorkingSet | None:
    origins = {TrialState.RUNNING, TrialState.STARTING}
    async with tools.database.transaction() as session:
        moved = await store.move_trial(session, trial_id, try_no, TrialState.VERIFYING, origins=origins)
        row = await store.working_set(session, trial_id) if moved else None
    return None if row is None else WorkingSet(*row, try_no)


async def _grade(tools: TrialTools, found: WorkingSet) -> None:
    """Runs the verifier and records what it came to."""
    started = tools.clock.monotonic()
    if found.trial.steps is not None:
        await _record(tools, found, stepwise.ending(found), [])
        return
    tools = tools.on(found.job.runner["backend"])
    local = await tools.tasks.load(found.task_row.files_sha256, found.trial.task_name)
    async with tools.database.session() as session:
        seal = await store.seal(session, found.trial.id)
    assert seal is not None
    part, waiting = Part(local.task), tools.waiting.get((found.trial.id, found.try_no))
    sandbox = None if waiting is None else waiting.sandbox
    form = Form(found.trial.sandbox_forms.get("agent", Form.ONE_SHOT))
    verdict = await verifying.verify(tools, Case(found, local, part, seal.manifest_blob, sandbox, form))
    await to_the_end(phase.let_go(tools, found))
    timings = {"verifier": round(tools.clock.monotonic() - started, 3)}
    await _record(tools, found, _ending(found, part, seal, verdict, timings), verdict.items)


async def _record(tools: TrialTools, found: WorkingSet, ending: Ending, items: list[NewArtifact]) -> None:
    """Writes artifacts and result in one transaction. Raises `TryOver` when the Trial is not this try's to end."""
    ending = replace(ending, values=tools.clean(ending.values))
    trial, now = found.trial, tools.clock.now()
    async with tools.database.transaction() as session:
        # Before the end, which locks the Job: nobody waits for the blobs that are looked at here.
        await artifacts.record(
            session,
            tools.blobs,
            tools.clock,
            items,
            trial_id=trial.id,
            project_id=found.job.project_id,
            try_no=found.try_no,
        )
        if not await endings.end_trial(session, trial.job_id, trial.id, found.try_no, trial.task_seq, ending, now):
            raise TryOver


def _ending(found: WorkingSet, part: Part, seal: SealRow, verdict: Verdict, timings: dict[str, float]) -> Ending:
    outcome, trial = verdict.outcome, found.trial
    values: dict[str, Any] = {
        "verifier": {
            "mode": part.mode.value,
            "exit_code": verdict.exit_code,
            "tests": "task",
            "sealed_sha256": seal.manifest_sha256,
            "runs": verdict.runs,
        },
        "timings": {**trial.timings, **timings},
        "sandbox_forms": {**trial.sandbox_forms, "verifier": verdict.form.value},
        "substitutions": trial.substitutions
        + [dict(made) for made in verdict.substitutions if made not in trial.substitutions],
    }
    if isinstance(outcome, Unscored):
        failure = Failure(Reason(outcome.reason), outcome.detail, outcome.message or trial.message)
        return endings.unscored(failure, **values)
    flags = [*trial.flags, *outcome.flags]
    if verdict.exit_code:
        flags.append("verifier_exit_nonzero")
    return endings.scored(outcome, found.task_row.threshold, **values, flags=flags)
