"""What both phases of a Trial share: the environment that a task asks for, its limits, its meter, its end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog

from tollbar.agents import service as profiles
from tollbar.artifacts import service as artifacts
from tollbar.artifacts.errors import StoreUnreachable
from tollbar.budget.schemas import Level
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets import variables
from tollbar.datasets.taskfile import ImagePlan
from tollbar.datasets.taskmodel import EnvironmentConfig, Healthcheck
from tollbar.jobs import endings, evidence, limits, refusals, store
from tollbar.jobs.endings import Ending
from tollbar.jobs.leases import CapReached, Meter, TryOver
from tollbar.jobs.parts import Part
from tollbar.jobs.retries import Failure
from tollbar.jobs.states import TRIAL_ACTIVE, Reason, TrialState
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.kit.jsonio import compact
from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.healthcheck import run_healthcheck
from tollbar.sandboxes.interface import ExecResult, ImageRef, ImageSpec, Limits, Sandbox

Outcome = str | dict[str, Any]
"""What a step returns: `sealed` (to be graded), `ended`, `gone` (another try's, or stopped), or a failure's facts."""
SEALED: Final = "sealed"
ENDED: Final = "ended"
GONE: Final = "gone"

_REPEATABLE: Final = {"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
"""Set in every sandbox unless the task says otherwise, so that runs can be repeated."""

_SAID_BYTES: Final = 1024

_log = structlog.get_logger()


class PhaseFailed(Exception):
    """The phase came to nothing for a reason that is no agent's doing."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason.value)
        self.failure = failure


@dataclass(frozen=True)
class Environment:
    """The world of one phase, ready to be made: image, working directory, variables, limits, and when it is ready."""

    image: ImageRef
    workdir: str
    env: Mapping[str, str]
    limits: Limits
    substitutions: tuple[Mapping[str, Any], ...]
    healthcheck: Healthcheck | None = None
    ceiling: Limits | None = None
    """The most that a service beside it may have."""


def check(tools: TrialTools, found: WorkingSet, local: LocalTask) -> None:
    """Raises `EnvironmentRefused` when the backend cannot give what the task asks."""
    oracle = profiles.adapter_of(found.job.agent).uses_solution
    can = tools.provider.capabilities()
    form = found.job.sandbox_form
    refused = refusals.check(local.needs, can, found.job.params, oracle=oracle, form=form)
    refused = refused or refusals.check_task(local.task, can)
    if refused is not None:
        raise EnvironmentRefused(refused.detail, refused.message)


def variables_of(found: WorkingSet, table: Mapping[str, str]) -> dict[str, str]:
    """Returns a table of the task with its variables taken from the Job's parameters, never from the server."""
    values: dict[str, str] = {}
    for text in table.values():
        wanted = variables.reference(text)
        if wanted is not None and wanted.name.upper() in found.job.params:
            value = found.job.params[wanted.name.upper()]
            values[wanted.name] = value if isinstance(value, str) else compact(value)
    return variables.resolve(table, values).env


async def agent_environment(tools: TrialTools, found: WorkingSet, local: LocalTask) -> Environment:
    """Returns the agent's world (and that of a shared verifier)."""
    plan = local.task.environment_image()
    return await _environment(tools, found, local, local.task.config.environment, plan, "environment")


async def verifier_environment(tools: TrialTools, found: WorkingSet, local: LocalTask, part: Part) -> Environment:
    """Returns the world of a separate verifier."""
    plan = part.task.verifier_image(part.step)
    purpose = "verifier" if part.step is None else f"verifier:{part.step.name}"
    return await _environment(tools, found, local, part.task.verifier_environment(part.step), plan, purpose)


async def _environment(
    tools: TrialTools,
    found: WorkingSet,
    local: LocalTask,
    config: EnvironmentConfig,
    plan: ImagePlan,
    purpose: str,
) -> Environment:
    can = tools.provider.capabilities()
    spec = ImageSpec(
        context=None if plan.context is None else local.folder / plan.context,
        docker_image=plan.docker_image,
        services=local.folder / plan.services if plan.services is not None and can.compose else None,
        allow_base_substitution=found.job.allow_base_substitution,
        timeout_s=config.build_timeout_s,
    )
    image = await tools.tasks.image(local, spec, purpose)
    asked = {"cpus": config.cpus, "memory_mb": config.memory_mb, "storage_mb": config.storage_mb}
    return Environment(
        image=image,
        workdir=config.workdir or image.workdir,
        env={**_REPEATABLE, **image.env, **variables_of(found, config.env)},
        limits=limits.limits_of(asked, found.job.runner),
        substitutions=tuple(image.substitutions),
        healthcheck=config.healthcheck,
        ceiling=Limits(**found.job.runner["maxima"]),
    )


def agent_timeout_s(tools: TrialTools, found: WorkingSet, part: Part) -> float:
    """Returns the agent's time limit: the task's (else the longest allowed), bounded by the Job's."""
    return limits.agent_timeout_s(part.task.agent_timeout_s(part.step), found.job.timeout_s, tools.max_phase_s)


async def healthy(tools: TrialTools, sandbox: Sandbox, check: Healthcheck | None) -> None:
    """Waits until a sandbox is ready. Raises `EnvironmentStartFailed` (`healthcheck`) when it does not become so."""
    if check is not None:
        await run_healthcheck(
            sandbox,
            check.command,
            interval_s=check.interval_s,
            timeout_s=check.timeout_s,
            start_period_s=check.start_period_s,
            start_interval_s=check.start_interval_s,
            retries=check.retries,
            clock=tools.clock,
        )


def meter(
    tools: TrialTools, found: WorkingSet, environment: Environment, payer: Payer, timeout_s: float, *, run_no: int = 1
) -> Meter:
    """Returns the meter that pays for one phase's sandbox from the Job's budget."""
    return Meter(
        database=tools.database,
        clock=tools.clock,
        chain=found.chain,
        trial_id=found.trial.id,
        try_no=found.try_no,
        purpose=payer,
        worker_id=tools.executor_id,
        sku=found.job.runner["name"],
        rate_pusd=limits.rate_of(environment.limits, found.job.runner["prices"]),
        limit_s=timeout_s + limits.OVERHEAD_S,
        run_no=run_no,
    )


def check_memory(result: ExecResult | None, environment: Environment) -> None:
    """Raises `PhaseFailed` when the sandbox as a whole was ended for memory; one process is its command's affair."""
    if result is not None and result.oom_killed and result.exit_code is None:
        message = f"The sandbox was ended for memory: its limit is {environment.limits.memory_mb} MiB."
        raise PhaseFailed(Failure(Reason.SANDBOX_OOM, None, message))


def timer_message(whose: str, result: ExecResult, limit_s: float) -> str:
    """Returns which timer ended a command, with its limit and what had passed."""
    return f"The {whose} time limit of {limit_s:g} s was reached after {result.wall_s:.1f} s."


def how_it_failed(result: ExecResult) -> str:
    """Returns the exit code of a command of ours and the last that it said."""
    how = "it took too long." if result.timed_out else f"exit code {result.exit_code}."
    said = (result.stdout_tail + result.stderr_tail)[-_SAID_BYTES:].decode(errors="replace").replace("\0", " ").strip()
    return f"{how} {said}".strip()


async def destroy(sandbox: Sandbox) -> None:
    """Destroys a sandbox; what cannot be removed is left to the reaper, since no result may be lost for it."""
    try:
        await sandbox.destroy()
    except Exception:  # noqa: BLE001 - its processes are dead; files that stay cost nobody a reward
        _log.exception("a sandbox could not be removed", sandbox=sandbox.handle.name)


async def let_go(tools: TrialTools, found: WorkingSet) -> None:
    """Destroys the agent's sandbox that waited for this Trial's verifier, unless its Job may want it kept."""
    key = (found.trial.id, found.try_no)
    if key in tools.waiting and not found.job.keep_failed_s:
        await destroy(tools.waiting.pop(key).sandbox)


async def note_running(tools: TrialTools, found: WorkingSet) -> None:
    """Says that the agent begins. Raises `TryOver` for a Trial that was stopped meanwhile: nothing is started then."""
    async with tools.database.transaction() as session:
        if not await store.move_trial(session, found.trial.id, found.try_no, TrialState.RUNNING):
            raise TryOver


async def end(tools: TrialTools, found: WorkingSet, ending: Ending) -> bool:
    """Ends the Trial, and its Job with the last one."""
    async with tools.database.transaction() as session:
        trial = found.trial
        return await endings.end_trial(
            session, trial.job_id, trial.id, found.try_no, trial.task_seq, ending, tools.clock.now()
        )


async def fail(tools: TrialTools, found: WorkingSet, failure: Failure) -> Outcome:
    """Ends the Trial with a failure that is final; another one is returned for its next try."""
    failure = replace(failure, message=tools.redactor.value(failure.message))
    if not failure.is_final(found.trial.losses):
        return failure.facts()
    await end(tools, found, endings.unscored(failure))
    return ENDED


async def cap_reached(tools: TrialTools, found: WorkingSet, error: CapReached) -> None:
    """Stops the Job at its cap, or at its project's, and ends this Trial with it; at its own share only this Trial."""
    now, trial = tools.clock.now(), found.trial
    async with tools.database.transaction() as session:
        if error.reached.level is Level.TRIAL:
            await endings.share_reached(session, trial, found.try_no, error.reached, error.refused, now)
            return
        await endings.cap_reached(session, tools.engine, found.job.id, error.reached, error.refused, now)
        await endings.end_stopping(session, trial.job_id, trial.id, found.try_no, trial.task_seq, now)


async def keep_log(tools: TrialTools, found: WorkingSet, name: str, path: Path) -> None:
    """Keeps the log of a phase that came to nothing, while the Trial is this try's; its file goes in any case."""
    try:
        log = await evidence.take_log(tools.sink, name, path)
        if log is None:
            return
        async with tools.database.transaction() as session:
            if await store.is_try(session, found.trial.id, found.try_no, TRIAL_ACTIVE, lock=True):
                await artifacts.record(
                    session,
                    tools.blobs,
                    tools.clock,
                    [log],
                    trial_id=found.trial.id,
                    project_id=found.job.project_id,
                    try_no=found.try_no,
                )
    except Exception:  # noqa: BLE001 - a lost log must not hide why the phase ended
        _log.exception("a log could not be kept", trial_id=found.trial.id, try_no=found.try_no)


def internal_error(found: WorkingSet, what: str) -> Failure:
    """Logs the exception that is being handled and returns the failure that stands for it."""
    _log.exception(what, job_id=found.job.id, trial_id=found.trial.id, try_no=found.try_no)
    error = sys.exc_info()[1]
    if isinstance(error, StoreUnreachable):
        return Failure(Reason.INTERNAL_ERROR, "storage", error.message)
    return Failure(Reason.INTERNAL_ERROR, None, "Something went wrong inside the server.")
