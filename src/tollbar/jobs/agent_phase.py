"""The first step of a Trial: run the agent in a sandbox of its own and seal what it left.

Everything is checked before anything starts or costs: a task that this backend cannot honour is refused. At the
end the agent's processes are dead, whatever the end was, and the seal can no longer change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollbar.agents import service as profiles
from tollbar.agents.adapter import AgentPlan, AgentTask
from tollbar.agents.errors import AgentSetupFailed
from tollbar.artifacts import service as artifacts
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets.taskmodel import VerifierMode
from tollbar.jobs import endings, evidence, phase, refusals, store
from tollbar.jobs.cleanup import to_the_end
from tollbar.jobs.leases import CapReached, Meter, TryOver
from tollbar.jobs.phase import ENDED, GONE, SEALED, Environment, Outcome
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import AgentOutcome, Reason, TrialState
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes.errors import EnvironmentFailure
from tollbar.sandboxes.interface import ExecResult, Form, Purpose, Sandbox, SandboxName, SandboxSpec, Seal

_NO_FACTS: Final[dict[str, Any]] = {
    "agent_outcome": None,
    "message": None,
    "timings": {},
    "substitutions": [],
    "sandbox_forms": {},
    "flags": [],
    "refusals": [],
    "sealed_sha256": None,
}
"""What a Trial says of an agent phase before there is one."""


@dataclass(frozen=True)
class _Run:
    """One agent phase: everything that was decided before it starts."""

    found: WorkingSet
    local: LocalTask
    environment: Environment
    plan: AgentPlan
    timeout_s: float
    log: Path
    started: float

    @property
    def log_name(self) -> str:
        return f"agent/{self.plan.log}"


@dataclass(frozen=True)
class _Result:
    """How the agent ended, and what the collect hooks said."""

    agent: ExecResult | None
    hooks: list[dict[str, Any]]
    timings: dict[str, float]

    @property
    def outcome(self) -> AgentOutcome:
        if self.agent is None or self.agent.exit_code == 0:
            return AgentOutcome.COMPLETED
        return AgentOutcome.TIMEOUT if self.agent.timed_out else AgentOutcome.NONZERO_EXIT


async def run(tools: TrialTools, trial_id: str, try_no: int) -> Outcome:
    """Runs one try up to its seal; returns `sealed` (to be graded), `ended`, `gone`, or a failure's facts."""
    found = await _claim(tools, trial_id, try_no)
    if found is None:
        return GONE
    try:
        local = await tools.tasks.load(found.task_row.files_sha256, found.trial.task_name)
        separate = local.task.verifier_mode() is VerifierMode.SEPARATE
        if not await _sealed_before(tools, found, separate=separate):
            await _run_and_seal(tools, found, local, keep=not separate)
    except TryOver:
        return GONE
    except CapReached as error:
        await phase.cap_reached(tools, found, error)
        return ENDED
    except AgentSetupFailed as error:
        # What the adapter says of a frozen task will not change: no other try.
        await phase.end(tools, found, endings.unscored(Failure(Reason(error.reason), error.detail, error.message)))
        return ENDED
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


async def _sealed_before(tools: TrialTools, found: WorkingSet, *, separate: bool) -> bool:
    """Says whether an earlier try left a seal that suffices; in shared mode its sandbox is gone, so it does not.

    Then nothing of the earlier try may stand beside what this one will leave.
    """
    if found.try_no == 1:
        return False
    await evidence.drop_logs(tools.logs, found.trial.id)
    async with tools.database.transaction() as session:
        sealed = await store.seal(session, found.trial.id) is not None
        if separate or not sealed:
            return sealed
        if not await store.note_trial(session, found.trial.id, found.try_no, **_NO_FACTS):
            raise TryOver
        await store.drop_seal(session, found.trial.id, found.try_no)
        await _record(tools, found, session, [])
        return False


async def _run_and_seal(tools: TrialTools, found: WorkingSet, local: LocalTask, *, keep: bool) -> None:
    started = tools.clock.monotonic()
    phase.check(tools, found, local)
    environment = await phase.agent_environment(tools, found, local)
    if not keep:
        # Now, not after the agent: work that no verifier could judge is not paid for.
        await phase.verifier_environment(tools, found, local)
    log = tools.logs / f"{found.trial.id}-{found.try_no}-agent"
    timeout_s = phase.agent_timeout_s(tools, found, local)
    this = _Run(found, local, environment, _plan(found, local, environment), timeout_s, log, started)
    try:
        async with phase.meter(tools, found, environment, Payer.AGENT, timeout_s) as meter:
            sandbox = await tools.provider.create(await _spec(tools, this))
            kept = False
            try:
                meter.sandbox_stands()
                await phase.note_running(tools, found)
                await _seal(tools, this, sandbox, await _exec(this, sandbox, meter, tools))
                kept = keep
            finally:
                if kept:
                    tools.kept[found.trial.id, found.try_no] = sandbox
                else:
                    await to_the_end(phase.destroy(sandbox))
    finally:
        await to_the_end(phase.keep_log(tools, found, this.log_name, log))


def _plan(found: WorkingSet, local: LocalTask, environment: Environment) -> AgentPlan:
    task = AgentTask(
        instruction=local.task.instruction_of().text,
        has_solution=local.task.has_solution(),
        solution_env=phase.variables_of(found, local.task.solution_env()),
        workdir=environment.workdir,
    )
    return profiles.adapter_of(found.job.agent).plan(task, found.job.params)


async def _spec(tools: TrialTools, this: _Run) -> SandboxSpec:
    solution = this.plan.needs_solution
    environment = this.environment
    return SandboxSpec(
        name=SandboxName(this.found.trial.id, this.found.try_no, Purpose.AGENT),
        owner=tools.executor_id,
        form=Form.ONE_SHOT,
        image=environment.image,
        workdir=environment.workdir,
        env=environment.env,
        limits=environment.limits,
        inputs=(await tools.tasks.input_layer(this.local, "solution", "/solution"),) if solution else (),
        directories=(environment.workdir, "/logs/agent", "/logs/artifacts"),
    )


async def _exec(this: _Run, sandbox: Sandbox, meter: Meter, tools: TrialTools) -> _Result:
    """Runs the agent and then, its processes dead, the task's collect hooks; afterwards nothing lives in there."""
    prepared = tools.clock.monotonic()
    agent: ExecResult | None = None
    if this.plan.argv is not None:
        work = sandbox.exec(this.plan.argv, env=this.plan.env, timeout_s=this.timeout_s, output=this.log)
        agent = await meter.run(work)
        await sandbox.kill()
    phase.check_memory(agent, this.environment)
    ran = tools.clock.monotonic()
    hooks: list[dict[str, Any]] = []
    for hook in this.local.task.collect_hooks():
        # Best effort: what a hook did not collect shows as missing, and its end is kept with the seal.
        ended = await meter.run(sandbox.exec(("sh", "-c", hook.command), timeout_s=hook.timeout_s))
        await sandbox.kill()
        hooks.append({"exit_code": ended.exit_code, "timed_out": ended.timed_out})
    timings = {"prepare": round(prepared - this.started, 3), "agent": round(ran - prepared, 3)}
    return _Result(agent, hooks, timings)


async def _seal(tools: TrialTools, this: _Run, sandbox: Sandbox, result: _Result) -> None:
    """Seals the declared artifacts and logs, then writes seal, artifacts and facts in one transaction."""
    started, found = tools.clock.monotonic(), this.found
    seal = await sandbox.seal(evidence.agent_paths(this.local.task), tools.seal_limits, tools.blobs.put_fd)
    manifest_blob = await tools.blobs.put_bytes(seal.manifest)
    items = await evidence.with_log(tools.blobs, evidence.agent_artifacts(seal), this.log_name, this.log)
    sealing_s = round(tools.clock.monotonic() - started, 3)
    row = {
        "trial_id": found.trial.id,
        "try_no": found.try_no,
        "manifest_blob": manifest_blob,
        "manifest_sha256": seal.sha256,
        "facts": {
            "agent_outcome": result.outcome.value,
            "exit_code": result.agent.exit_code if result.agent else None,
            "collect": result.hooks,
        },
        "created_at": tools.clock.now(),
    }
    async with tools.database.transaction() as session:
        # The fence comes first: a try that was taken over must not leave a seal for the next one to grade.
        facts = _facts(this, result, seal, sealing_s)
        if not await store.note_trial(session, found.trial.id, found.try_no, **facts):
            raise TryOver
        if not await store.add_seal(session, row):
            raise TryOver
        await _record(tools, found, session, items)


def _facts(this: _Run, result: _Result, seal: Seal, sealing_s: float) -> dict[str, Any]:
    timed_out = result.agent is not None and result.agent.timed_out
    failed_hooks = any(hook["exit_code"] != 0 for hook in result.hooks)
    return {
        "agent_outcome": result.outcome.value,
        "message": phase.timer_message("agent's", result.agent, this.timeout_s) if timed_out and result.agent else None,
        "timings": {**result.timings, "seal": sealing_s},
        "substitutions": [
            *map(dict, this.environment.substitutions),
            *refusals.substitutions(this.local.needs),
        ],
        "sandbox_forms": {"agent": Form.ONE_SHOT.value},
        "flags": ["collect_hook_failed"] if failed_hooks else [],
        "refusals": [{"name": refusal.name, "reason": refusal.reason} for refusal in seal.refusals],
        "sealed_sha256": seal.sha256,
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
