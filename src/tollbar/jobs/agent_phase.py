"""The first step of a Trial: run the agent in a sandbox of its own and seal what it left.

Everything is checked before anything starts or costs: a task that this backend cannot honour is refused. At the
end the agent's processes are dead, whatever the end was, and the seal can no longer change.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from tollbar.agents import service as profiles
from tollbar.agents.adapter import AgentPlan, AgentTask
from tollbar.agents.errors import AgentSetupFailed
from tollbar.artifacts import service as artifacts
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets.taskmodel import VerifierMode
from tollbar.jobs import endings, evidence, phase, refusals, store
from tollbar.jobs.leases import CapReached, Meter
from tollbar.jobs.phase import Environment
from tollbar.jobs.states import AgentOutcome, Reason, TrialState
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes.errors import EnvironmentFailure
from tollbar.sandboxes.interface import ExecResult, Form, Purpose, Sandbox, SandboxName, SandboxSpec

SEALED: Final = "sealed"
ENDED: Final = "ended"
GONE: Final = "gone"

_log = structlog.get_logger()


async def run(tools: TrialTools, trial_id: str, try_no: int) -> str:
    """Runs one try up to its seal; returns `sealed` (to be graded), `ended`, or `gone` (another try, or stopped)."""
    found = await _claim(tools, trial_id, try_no)
    if found is None:
        return GONE
    log = _log.bind(job_id=found.job.id, trial_id=trial_id, try_no=try_no)
    try:
        local = await tools.tasks.load(found.task_row.files_sha256, found.trial.task_name)
        separate = local.task.verifier_mode() is VerifierMode.SEPARATE
        if await _sealed_before(tools, found, separate=separate):
            return SEALED
        await _run_and_seal(tools, found, local, keep=not separate)
    except CapReached as error:
        await phase.cap_reached(tools, found, error)
        return ENDED
    except (EnvironmentFailure, AgentSetupFailed) as error:
        ending = endings.unscored(Reason(error.reason), error.detail, error.message)
        await phase.end(tools, found, ending)
        return ENDED
    except Exception:
        log.exception("the agent phase failed")
        ending = endings.unscored(Reason.INTERNAL_ERROR, None, "Something went wrong inside the server.")
        await phase.end(tools, found, ending)
        return ENDED
    return SEALED


async def _claim(tools: TrialTools, trial_id: str, try_no: int) -> WorkingSet | None:
    async with tools.database.transaction() as session:
        now = tools.clock.now()
        claimed = await store.move_trial(
            session, trial_id, try_no, TrialState.STARTING, owner=tools.executor_id, started_at=now
        )
        row = await store.working_set(session, trial_id) if claimed else None
    return None if row is None else WorkingSet(*row, try_no)


async def _sealed_before(tools: TrialTools, found: WorkingSet, *, separate: bool) -> bool:
    """Says whether an earlier try left a seal that suffices; in shared mode its sandbox is gone, so it does not."""
    async with tools.database.transaction() as session:
        if not separate:
            await store.drop_seal(session, found.trial.id, found.try_no)
            return False
        return await store.seal(session, found.trial.id) is not None


async def _run_and_seal(tools: TrialTools, found: WorkingSet, local: LocalTask, *, keep: bool) -> None:
    started = tools.clock.monotonic()
    phase.check(tools, found, local)
    environment = await phase.agent_environment(tools, found, local)
    plan = _plan(found, local, environment)
    name = SandboxName(found.trial.id, found.try_no, Purpose.AGENT)
    timeout_s = phase.agent_timeout_s(tools, found, local)
    async with phase.meter(tools, found, environment, Payer.AGENT, timeout_s) as meter:
        sandbox = await tools.provider.create(await _spec(tools, local, environment, plan, name))
        kept = False
        try:
            await phase.note(tools, found, TrialState.RUNNING)
            prepared = tools.clock.monotonic()
            result, log_path = await _exec(tools, found, sandbox, plan, meter, timeout_s)
            await sandbox.kill()
            ran = tools.clock.monotonic()
            timings = {"prepare": round(prepared - started, 3), "agent": round(ran - prepared, 3)}
            await _seal(tools, found, local, sandbox, environment, plan, result, timings, log_path)
            kept = keep
        finally:
            if kept:
                tools.kept[found.trial.id, found.try_no] = sandbox
            else:
                await asyncio.shield(sandbox.destroy())


def _plan(found: WorkingSet, local: LocalTask, environment: Environment) -> AgentPlan:
    task = AgentTask(
        instruction=local.task.instruction_of().text,
        has_solution=local.task.has_solution(),
        solution_env=phase.variables_of(found, local.task.solution_env()),
        workdir=environment.workdir,
    )
    return profiles.adapter_of(found.job.agent).plan(task, found.job.params)


async def _spec(
    tools: TrialTools, local: LocalTask, environment: Environment, plan: AgentPlan, name: SandboxName
) -> SandboxSpec:
    inputs = (await tools.tasks.input_layer(local, "solution", "/solution"),) if plan.needs_solution else ()
    return SandboxSpec(
        name=name,
        owner=tools.executor_id,
        form=Form.ONE_SHOT,
        image=environment.image,
        workdir=environment.workdir,
        env=environment.env,
        limits=environment.limits,
        inputs=inputs,
        directories=(environment.workdir, "/logs/agent", "/logs/artifacts"),
    )


async def _exec(
    tools: TrialTools, found: WorkingSet, sandbox: Sandbox, plan: AgentPlan, meter: Meter, timeout_s: float
) -> tuple[ExecResult | None, Any]:
    if plan.argv is None:
        return None, None
    log_path = tools.logs / f"{found.trial.id}-{found.try_no}-agent"
    work = sandbox.exec(plan.argv, env=plan.env, timeout_s=timeout_s, output=log_path)
    return await meter.run(work), log_path


async def _seal(
    tools: TrialTools,
    found: WorkingSet,
    local: LocalTask,
    sandbox: Sandbox,
    environment: Environment,
    plan: AgentPlan,
    result: ExecResult | None,
    timings: dict[str, float],
    log_path: Any,
) -> None:
    """Seals the declared artifacts and logs, then writes seal, artifacts and facts in one transaction."""
    started = tools.clock.monotonic()
    paths = evidence.agent_paths(local.task)
    seal = await sandbox.seal(paths, tools.seal_limits, tools.blobs.put_fd)
    manifest_blob = await tools.blobs.put_bytes(seal.manifest)
    items = evidence.agent_artifacts(seal)
    if log_path is not None:
        items = await evidence.with_log(tools.blobs, items, f"agent/{plan.log}", log_path)
    outcome = _outcome(result)
    timings["seal"] = round(tools.clock.monotonic() - started, 3)
    async with tools.database.transaction() as session:
        new = await store.add_seal(
            session,
            {
                "trial_id": found.trial.id,
                "try_no": found.try_no,
                "manifest_blob": manifest_blob,
                "manifest_sha256": seal.sha256,
                "facts": {"agent_outcome": outcome.value, "exit_code": result.exit_code if result else None},
                "created_at": tools.clock.now(),
            },
        )
        if new:
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
        await store.note_trial(
            session,
            found.trial.id,
            found.try_no,
            agent_outcome=outcome.value,
            timings=timings,
            substitutions=[*map(dict, environment.substitutions), *refusals.substitutions(local.needs)],
            sandbox_forms={"agent": Form.ONE_SHOT.value},
            refusals=[{"name": refusal.name, "reason": refusal.reason} for refusal in seal.refusals],
            sealed_sha256=seal.sha256,
        )


def _outcome(result: ExecResult | None) -> AgentOutcome:
    if result is None or result.exit_code == 0:
        return AgentOutcome.COMPLETED
    return AgentOutcome.TIMEOUT if result.timed_out else AgentOutcome.NONZERO_EXIT
