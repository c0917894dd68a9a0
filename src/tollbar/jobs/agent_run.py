"""One run of the agent in its sandbox: made ready, run, its processes ended, what it left collected and sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tollbar.agents import software
from tollbar.agents.adapter import AgentPlan, AgentReport, AgentTask, DriveEnd, DriveResult
from tollbar.artifacts.schemas import NewArtifact
from tollbar.budget import usage as model_usage
from tollbar.jobs import driving, evidence, forms, networks, outlet, phase, reports, upstream
from tollbar.jobs.access import Access
from tollbar.jobs.driving import Driven
from tollbar.jobs.leases import Meter
from tollbar.jobs.parts import Part
from tollbar.jobs.phase import Environment, PhaseFailed
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import AgentOutcome, Reason
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed
from tollbar.sandboxes.interface import ExecResult, Form, Purpose, Sandbox, SandboxName, SandboxSpec, Seal

_DRIVE_OUTCOMES: Final[Mapping[DriveEnd, AgentOutcome]] = {
    DriveEnd.CONTEXT_OVERFLOW: AgentOutcome.CONTEXT_OVERFLOW,
    DriveEnd.REFUSED: AgentOutcome.REFUSED,
}
_REPORT_LOG_BYTES: Final = 10 << 20


@dataclass(frozen=True)
class AgentRun:
    """One run of the agent: everything that was decided before it starts."""

    found: WorkingSet
    local: LocalTask
    part: Part
    environment: Environment
    plan: AgentPlan
    form: Form
    timeout_s: float
    log: Path
    access: Access | None = None

    @property
    def log_name(self) -> str:
        """Returns under which name the Trial shows the log."""
        return f"{self.part.prefix}agent/{self.plan.log}"


@dataclass(frozen=True)
class Ran:
    """How the agent ended, and what the collect hooks came to; times in seconds."""

    agent: ExecResult | None
    hooks: list[dict[str, Any]]
    timings: Mapping[str, float]
    report: AgentReport = field(default_factory=AgentReport)
    driven: DriveResult | None = None
    """How a loop of ours ended."""
    calls_before: int = 0
    """How many model calls an earlier step of this try had made."""

    @property
    def outcome(self) -> AgentOutcome:
        if self.driven is not None and self.driven.end in _DRIVE_OUTCOMES:
            return _DRIVE_OUTCOMES[self.driven.end]
        if self.agent is None or self.agent.exit_code == 0:
            return AgentOutcome.COMPLETED
        return AgentOutcome.TIMEOUT if self.agent.timed_out else AgentOutcome.NONZERO_EXIT

    @property
    def flags(self) -> list[str]:
        return ["collect_hook_failed"] if any(hook["exit_code"] != 0 for hook in self.hooks) else []


@dataclass(frozen=True)
class Sealed:
    """What a run left: the seal, its manifest among the blobs, and the artifacts by their names on the Trial."""

    seal: Seal
    manifest_blob: str
    items: list[NewArtifact]
    seal_s: float

    @property
    def refusals(self) -> list[dict[str, str]]:
        return [{"name": refusal.name, "reason": refusal.reason} for refusal in self.seal.refusals]


def prepared(
    tools: TrialTools,
    found: WorkingSet,
    local: LocalTask,
    part: Part,
    environment: Environment,
    access: Access | None = None,
) -> AgentRun:
    """Returns a run of a part of a task. Raises `AgentSetupFailed`, `EnvironmentRefused` (a form that cannot do it)."""
    task = AgentTask(
        instruction=part.task.instruction_of(part.step).text,
        has_solution=part.task.has_solution(part.step),
        solution_env=phase.variables_of(found, part.task.solution_env()),
        workdir=environment.workdir,
        gateway=None if access is None else access.inside,
    )
    plan = tools.adapters[found.job.agent].plan(task, found.job.params)
    held = forms.held_for(local.needs, plan, gateway=access is not None)
    if found.job.sandbox_form == forms.AskedForm.ONE_SHOT and held is not None:
        raise EnvironmentRefused("key", f"execution.sandbox_form one_shot: {held} needs a held sandbox.")
    can = tools.provider.capabilities()
    form = forms.agent_form(found.job.sandbox_form, can, local.needs, plan, gateway=access is not None)
    step = "" if part.step is None else f"{part.number}-"
    log = tools.logs / f"{found.trial.id}-{found.try_no}-{step}agent"
    timeout_s = phase.agent_timeout_s(tools, found, part)
    return AgentRun(found, local, part, environment, plan, form, timeout_s, log, access)


async def new_sandbox(tools: TrialTools, run: AgentRun) -> Sandbox:
    """Makes the agent's sandbox; only the oracle's has the solution, which a task with steps gets step by step."""
    folder = run.part.task.solution_folder() if run.plan.needs_solution and run.part.step is None else None
    environment = run.environment
    inputs = [] if run.plan.software is None else [await _software(tools, run.plan.software)]
    if folder is not None:
        inputs.append(await tools.tasks.input_layer(run.local, folder, "/solution"))
    return await tools.provider.create(
        SandboxSpec(
            name=SandboxName(run.found.trial.id, run.found.try_no, Purpose.AGENT),
            owner=tools.executor_id,
            form=run.form,
            image=environment.image,
            workdir=environment.workdir,
            env=environment.env,
            limits=environment.limits,
            ceiling=environment.ceiling,
            network=networks.of_agents_sandbox(run.local.needs, gateway=run.access is not None),
            inputs=tuple(inputs),
            directories=(environment.workdir, "/logs/agent", "/logs/artifacts"),
        )
    )


async def _software(tools: TrialTools, wanted: str) -> Path:
    """Returns the layer of an agent's software; another worker's machine may have what this one lacks."""
    found = None if tools.software is None else await asyncio.to_thread(software.find, tools.software, wanted)
    if found is None:
        text = f"This worker's machine lacks {wanted}; there, with its data directory: tollbar agents install {wanted}"
        raise PhaseFailed(Failure(Reason.AGENT_SETUP_FAILED, "install", text))
    return await software.layer(tools.provider, found)


async def keep_logs(tools: TrialTools, run: AgentRun) -> None:
    """Keeps the logs of a run that came to nothing; none is left to keep of one that was sealed."""
    await phase.keep_log(tools, run.found, run.log_name, run.log)
    await outlet.keep_log(tools, run.found, run.part, networks.AGENT)


async def set_up(run: AgentRun, sandbox: Sandbox) -> None:
    """Makes the agent ready. Raises `PhaseFailed` with `AGENT_SETUP_FAILED` when a command of its set-up fails."""
    for argv in run.plan.setup:
        result = await sandbox.exec(argv, env=run.plan.env, timeout_s=run.plan.setup_timeout_s)
        phase.check_memory(result, run.environment)
        if result.timed_out:
            text = phase.timer_message("agent's set-up", result, run.plan.setup_timeout_s)
            raise PhaseFailed(Failure(Reason.AGENT_SETUP_FAILED, "timeout", text))
        if result.exit_code != 0:
            text = f"The agent could not be made ready: {phase.how_it_failed(result)}"
            raise PhaseFailed(Failure(Reason.AGENT_SETUP_FAILED, "install", text))


async def execute(tools: TrialTools, run: AgentRun, sandbox: Sandbox, meter: Meter, started: float) -> Ran:
    """Runs the agent and then, its processes dead, the collect hooks; afterwards nothing lives in there."""
    prepared_at = tools.clock.monotonic()
    before = await _calls_so_far(tools, run)
    async with outlet.opened(tools, run.found, run.part, networks.AGENT, sandbox, run.environment) as announced:
        agent, driven = await _agent(tools, run, sandbox, meter, announced)
        await sandbox.kill()
    phase.check_memory(agent, run.environment)
    ran_at = tools.clock.monotonic()
    report = AgentReport()
    if driven is not None:
        report = driven.report
    elif agent is not None:
        adapter = tools.adapters[run.found.job.agent]
        log = await evidence.read_log(run.log, _REPORT_LOG_BYTES)
        report = await reports.of_command(adapter, run.plan, sandbox, agent, log)
    # Best effort: what a hook did not collect shows as missing, and its end is kept with the seal.
    wanted = run.part.task.collect_hooks(run.part.step)
    hooks = [await _hook(sandbox, meter, hook.command, hook.timeout_s) for hook in wanted]
    if hooks:
        await sandbox.kill()
    timings = {"prepare": round(prepared_at - started, 3), "agent": round(ran_at - prepared_at, 3)}
    return Ran(agent, hooks, timings, report, None if driven is None else driven.result, before)


async def _agent(
    tools: TrialTools, run: AgentRun, sandbox: Sandbox, meter: Meter, announced: Mapping[str, str]
) -> tuple[ExecResult | None, Driven | None]:
    """Runs the agent's loop, or its command with the gateway in its sandbox; (None, None): it has neither.

    `announced` are variables of every command, by which it knows its way out.
    """
    plan, access = run.plan, run.access
    if plan.drive is not None:
        assert access is not None, "a loop calls models"
        work = driving.run(
            plan.drive,
            access,
            sandbox,
            run.environment,
            announced,
            timeout_s=run.timeout_s,
            log=run.log,
            clock=tools.clock,
        )
        driven = await meter.run(work)
        return driven.command, driven
    if plan.argv is None:
        return None, None
    if access is not None:
        await access.expose(sandbox)
    command = sandbox.exec(plan.argv, env={**plan.env, **announced}, timeout_s=run.timeout_s, output=run.log)
    return await meter.run(command), None


async def _calls_so_far(tools: TrialTools, run: AgentRun) -> int:
    if run.access is None or run.part.step is None:
        return 0
    async with tools.database.session() as session:
        return len(await model_usage.calls_of(session, run.access.subject))


async def _hook(sandbox: Sandbox, meter: Meter, command: str, timeout_s: float) -> dict[str, Any]:
    try:
        ended = await meter.run(sandbox.exec(("sh", "-c", command), timeout_s=timeout_s))
    except EnvironmentStartFailed as error:
        # The sandbox worked before the agent had it: no fault of the infrastructure that another try would mend.
        return {"exit_code": None, "timed_out": False, "message": error.message}
    return {"exit_code": ended.exit_code, "timed_out": ended.timed_out}


async def check_models(tools: TrialTools, run: AgentRun, ran: Ran) -> None:
    """Raises `PhaseFailed` with `MODEL_UNAVAILABLE` when the agent gave up because its model's provider failed."""
    if run.access is None or ran.outcome is not AgentOutcome.NONZERO_EXIT:
        return
    async with tools.database.session() as session:
        calls = await model_usage.calls_of(session, run.access.subject)
    failure = upstream.failure(calls[ran.calls_before :])
    if failure is not None:
        raise PhaseFailed(failure)


async def sealed(tools: TrialTools, run: AgentRun, ran: Ran, sandbox: Sandbox) -> Sealed:
    """Seals the declared artifacts and logs, while no process lives; the run's log file is stored and gone then."""
    started = tools.clock.monotonic()
    seal = await sandbox.seal(evidence.agent_paths(run.part), tools.seal_limits, tools.sink.put_fd)
    manifest_blob = await tools.blobs.put_bytes(seal.manifest)
    items = evidence.archived(evidence.agent_artifacts(seal), run.part)
    items = await evidence.with_log(tools.sink, items, run.log_name, run.log)
    items = await outlet.with_log(tools, run.found, run.part, networks.AGENT, items)
    items = await _with_trajectory(tools, run, ran, items)
    return Sealed(seal, manifest_blob, items, round(tools.clock.monotonic() - started, 3))


async def _with_trajectory(tools: TrialTools, run: AgentRun, ran: Ran, items: list[NewArtifact]) -> list[NewArtifact]:
    """Adds what the agent did, with the ledger's figures, in place of what has that name."""
    if ran.report.trajectory is None:
        return items
    trajectory = dict(ran.report.trajectory)
    if run.access is not None:
        async with tools.database.session() as session:
            calls = await model_usage.calls_of(session, run.access.subject)
        trajectory = reports.with_figures(trajectory, calls[ran.calls_before :])
    name = f"{run.part.prefix}agent/trajectory.json"
    return await evidence.with_bytes(tools.sink, items, name, reports.encoded(trajectory))


def message(run: AgentRun, ran: Ran) -> str | None:
    """Returns which timer ended the agent, or what its loop said at its end, or None."""
    if ran.driven is not None:
        return ran.driven.message
    if ran.agent is None or not ran.agent.timed_out:
        return None
    return phase.timer_message("agent's", ran.agent, run.timeout_s)
