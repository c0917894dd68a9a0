"""The first step of a Trial: run the agent in a sandbox of its own and seal what it left.

Everything is checked before anything starts or costs: a task that this backend cannot honour is refused. At the
end the agent's processes are dead, whatever the end was, and the seal can no longer change. A task with steps is run
and graded step by step here (`stepwise.py`); its second step then only adds up.
"""

from __future__ import annotations

from typing import Any, Final

from tollbar.agents.errors import AgentSetupFailed
from tollbar.artifacts import service as artifacts
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget.schemas import Purpose as Payer
from tollbar.jobs import access, agent_run, evidence, phase, refusals, reports, stepwise, store
from tollbar.jobs.agent_run import AgentRun, Ran, Sealed
from tollbar.jobs.leases import CapReached, TryOver
from tollbar.jobs.parts import Part
from tollbar.jobs.phase import ENDED, GONE, SEALED, Outcome
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import Reason, TrialState
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, Waiting, WorkingSet
from tollbar.kit.cleanup import to_the_end
from tollbar.sandboxes.errors import EnvironmentFailure

_NO_FACTS: Final[dict[str, Any]] = {
    "agent_outcome": None,
    "message": None,
    "timings": {},
    "substitutions": [],
    "sandbox_forms": {},
    "flags": [],
    "refusals": [],
    "sealed_sha256": None,
    "steps": None,
    "agent_report": None,
}
"""What a Trial says of an agent phase before there is one."""


async def run(tools: TrialTools, trial_id: str, try_no: int) -> Outcome:
    """Runs one try up to its seal; returns `sealed` (to be graded), `ended`, `gone`, or a failure's facts."""
    found = await _claim(tools, trial_id, try_no)
    if found is None:
        return GONE
    try:
        tools = tools.on(found.job.runner["backend"])
        local = await tools.tasks.load(found.task_row.files_sha256, found.trial.task_name)
        if not await _sealed_before(tools, found, local):
            phase.check(tools, found, local)
            if local.task.steps:
                await stepwise.run(tools, found, local)
            else:
                await _run_and_seal(tools, found, local)
    except TryOver:
        return GONE
    except CapReached as error:
        await phase.cap_reached(tools, found, error)
        return ENDED
    except AgentSetupFailed as error:
        # What the adapter says of a frozen task will not change: no other try.
        failure = Failure(Reason(error.reason), error.detail, error.message, for_good=True)
        return await phase.fail(tools, found, failure)
    except phase.PhaseFailed as error:
        return await phase.fail(tools, found, error.failure)
    except EnvironmentFailure as error:
        return await phase.fail(tools, found, Failure(Reason(error.reason), error.detail, error.message))
    except Exception:  # noqa: BLE001 - whatever it was, the Trial must come to an end
        return await phase.fail(tools, found, phase.internal_error(found, "the agent phase failed"))
    return SEALED


async def _claim(tools: TrialTools, trial_id: str, try_no: int) -> WorkingSet | None:
    async with tools.database.transaction() as session:
        now = tools.clock.now()
        claimed = await store.move_trial(
            session, trial_id, try_no, TrialState.STARTING, owner=tools.executor_id, started_at=now
        )
        row = await store.working_set(session, trial_id) if claimed else None
    return None if row is None else WorkingSet(*row, try_no)


async def _sealed_before(tools: TrialTools, found: WorkingSet, local: LocalTask) -> bool:
    """Says whether an earlier try left a seal that suffices; a shared verifier's sandbox is gone, so it does not.

    A task with steps is sealed when all that ran are graded. Nothing of an earlier try that does not suffice may
    stand beside what this one will leave.
    """
    if found.try_no == 1:
        return False
    stepwise_task = bool(local.task.steps)
    await evidence.drop_logs(tools.logs, found.trial.id)
    async with tools.database.transaction() as session:
        sealed = await store.seal(session, found.trial.id) is not None
        if (sealed and (stepwise_task or Part(local.task).is_separate)) or not (sealed or stepwise_task):
            return sealed
        if not await store.note_trial(session, found.trial.id, found.try_no, **_NO_FACTS):
            raise TryOver
        await store.drop_seal(session, found.trial.id, found.try_no)
        await _record(tools, found, session, [])
        return False


async def _run_and_seal(tools: TrialTools, found: WorkingSet, local: LocalTask) -> None:
    started, part = tools.clock.monotonic(), Part(local.task)
    environment = await phase.agent_environment(tools, found, local)
    if part.is_separate:
        # Now, not after the agent: work that no verifier could judge is not paid for.
        await phase.verifier_environment(tools, found, local, part)
    uses = tools.adapters[found.job.agent].models(found.job.params)
    key = await access.granted(tools, found, uses, phase.agent_timeout_s(tools, found, part))
    this = agent_run.prepared(tools, found, local, part, environment, key)
    try:
        async with phase.meter(tools, found, environment, Payer.AGENT, this.timeout_s) as meter:
            sandbox = await agent_run.new_sandbox(tools, this)
            kept = False
            try:
                meter.sandbox_stands()
                await meter.run(phase.healthy(tools, sandbox, environment.healthcheck))
                await meter.run(agent_run.set_up(this, sandbox))
                await phase.note_running(tools, found)
                ran = await agent_run.execute(tools, this, sandbox, meter, started)
                await agent_run.check_models(tools, this, ran)
                await _seal(tools, this, ran, await agent_run.sealed(tools, this, ran, sandbox))
                kept = not part.is_separate
            finally:
                if kept or found.job.keep_failed_s:
                    tools.waiting[found.trial.id, found.try_no] = Waiting(sandbox, found.job.keep_failed_s)
                else:
                    await to_the_end(phase.destroy(sandbox))
    finally:
        await to_the_end(agent_run.keep_logs(tools, this))


async def _seal(tools: TrialTools, this: AgentRun, ran: Ran, left: Sealed) -> None:
    """Writes seal, artifacts and facts in one transaction."""
    found = this.found
    row = {
        "trial_id": found.trial.id,
        "try_no": found.try_no,
        "manifest_blob": left.manifest_blob,
        "manifest_sha256": left.seal.sha256,
        "facts": {
            "agent_outcome": ran.outcome.value,
            "exit_code": ran.agent.exit_code if ran.agent else None,
            "collect": ran.hooks,
        },
        "created_at": tools.clock.now(),
    }
    async with tools.database.transaction() as session:
        # The fence comes first: a try that was taken over must not leave a seal for the next one to grade.
        if not await store.note_trial(session, found.trial.id, found.try_no, **tools.clean(_facts(this, ran, left))):
            raise TryOver
        if not await store.add_seal(session, row):
            raise TryOver
        await _record(tools, found, session, left.items)


def _facts(this: AgentRun, ran: Ran, left: Sealed) -> dict[str, Any]:
    return {
        "agent_outcome": ran.outcome.value,
        "message": agent_run.message(this, ran),
        "timings": {**ran.timings, "seal": left.seal_s},
        "substitutions": [*map(dict, this.environment.substitutions), *refusals.substitutions(this.local.needs)],
        "sandbox_forms": {"agent": this.form.value},
        "flags": ran.flags,
        "refusals": left.refusals,
        "sealed_sha256": left.seal.sha256,
        "agent_report": reports.document(ran.report),
    }


async def _record(tools: TrialTools, found: WorkingSet, session: Any, items: list[NewArtifact]) -> None:
    """Records a new seal's artifacts in place of everything that older tries left."""
    await artifacts.record(
        session,
        tools.blobs,
        tools.clock,
        items,
        trial_id=found.trial.id,
        project_id=found.job.project_id,
        try_no=found.try_no,
        replaces_older=True,
    )
