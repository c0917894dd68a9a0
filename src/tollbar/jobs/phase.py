"""What both phases of a Trial share: the environment that a task asks for, its limits, its meter, its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents import service as profiles
from tollbar.budget.schemas import Purpose as Payer
from tollbar.datasets import variables
from tollbar.datasets.taskfile import ImagePlan
from tollbar.datasets.taskmodel import EnvironmentConfig
from tollbar.jobs import endings, refusals, store
from tollbar.jobs.endings import Ending
from tollbar.jobs.leases import CapReached, Meter, rate_of
from tollbar.jobs.states import Reason, TrialState
from tollbar.jobs.taskcache import LocalTask
from tollbar.jobs.tools import TrialTools, WorkingSet
from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.interface import ImageRef, ImageSpec, Limits

_REPEATABLE: Final = {"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
"""Set in every sandbox unless the task says otherwise, so that runs can be repeated."""
_OVERHEAD_S: Final = 5.0
"""What a sandbox lives longer than its command: start, sealing, removal."""


@dataclass(frozen=True)
class Environment:
    """The world of one phase, ready to be made: image, working directory, variables, limits."""

    image: ImageRef
    workdir: str
    env: Mapping[str, str]
    limits: Limits
    substitutions: tuple[Mapping[str, Any], ...]


def check(tools: TrialTools, found: WorkingSet, local: LocalTask) -> None:
    """Raises `EnvironmentRefused` when the backend cannot give what the task asks."""
    oracle = profiles.adapter_of(found.job.agent).uses_solution
    refused = refusals.check(local.needs, tools.provider.capabilities(), found.job.params, oracle=oracle)
    if refused is not None:
        raise EnvironmentRefused(refused.detail, refused.message)


def variables_of(found: WorkingSet, table: Mapping[str, str]) -> dict[str, str]:
    """Returns a table of the task with its variables taken from the Job's parameters, never from the server."""
    return variables.resolve(table, {name: str(value) for name, value in found.job.params.items()}).env


async def agent_environment(tools: TrialTools, found: WorkingSet, local: LocalTask) -> Environment:
    """Returns the agent's world (and that of a shared verifier)."""
    plan = local.task.environment_image()
    return await _environment(tools, found, local, local.task.config.environment, plan, "environment")


async def verifier_environment(tools: TrialTools, found: WorkingSet, local: LocalTask) -> Environment:
    """Returns a separate verifier's world."""
    plan = local.task.verifier_image()
    return await _environment(tools, found, local, local.task.verifier_environment(), plan, "verifier")


async def _environment(
    tools: TrialTools,
    found: WorkingSet,
    local: LocalTask,
    config: EnvironmentConfig,
    plan: ImagePlan,
    purpose: str,
) -> Environment:
    spec = ImageSpec(
        context=None if plan.context is None else local.folder / plan.context,
        docker_image=plan.docker_image,
        allow_base_substitution=found.job.allow_base_substitution,
        timeout_s=config.build_timeout_s,
    )
    image = await tools.tasks.image(local, spec, purpose)
    return Environment(
        image=image,
        workdir=config.workdir or image.workdir,
        env={**_REPEATABLE, **image.env, **variables_of(found, config.env)},
        limits=limits_of(config, found.job.runner),
        substitutions=tuple(image.substitutions),
    )


def limits_of(config: EnvironmentConfig, runner: Mapping[str, Any]) -> Limits:
    """Returns the task's limits up to the runner revision's maxima, and its defaults where the task is silent."""
    default, maximum = runner["limits"], runner["maxima"]

    def pick(own: float | None, name: str) -> Any:
        return min(default[name] if own is None else own, maximum[name])

    return Limits(
        cpus=float(pick(config.cpus, "cpus")),
        memory_mb=int(pick(config.memory_mb, "memory_mb")),
        disk_mb=int(pick(config.storage_mb, "disk_mb")),
        pids=int(default["pids"]),
        nofile=int(default["nofile"]),
    )


def agent_timeout_s(tools: TrialTools, found: WorkingSet, local: LocalTask) -> float:
    """Returns the agent's time limit: the task's (else the longest allowed), bounded by the Job's."""
    own = local.task.agent_timeout_s() or tools.max_phase_s
    return min(own, tools.max_phase_s, found.job.timeout_s or math.inf)


def meter(tools: TrialTools, found: WorkingSet, environment: Environment, payer: Payer, timeout_s: float) -> Meter:
    """Returns the meter that pays for one phase's sandbox from the Job's budget."""
    limits = environment.limits
    return Meter(
        database=tools.database,
        clock=tools.clock,
        chain=found.chain,
        trial_id=found.trial.id,
        try_no=found.try_no,
        purpose=payer,
        worker_id=tools.executor_id,
        rate_pusd=rate_of(limits.cpus, limits.memory_mb, found.job.runner["prices"]),
        limit_s=timeout_s + _OVERHEAD_S,
    )


async def note(tools: TrialTools, found: WorkingSet, to: TrialState) -> None:
    """Moves the Trial on; a Trial that was stopped meanwhile stays as it is (its step is about to be cancelled)."""
    async with tools.database.transaction() as session:
        await store.move_trial(session, found.trial.id, found.try_no, to)


async def end(tools: TrialTools, found: WorkingSet, ending: Ending) -> bool:
    """Ends the Trial, and its Job with the last one."""
    async with tools.database.transaction() as session:
        trial = found.trial
        return await endings.end_trial(
            session, trial.job_id, trial.id, found.try_no, trial.task_seq, ending, tools.clock.now()
        )


async def cap_reached(tools: TrialTools, found: WorkingSet, error: CapReached) -> None:
    """Stops the Job at its cap and ends this Trial with it."""
    now = tools.clock.now()
    async with tools.database.transaction() as session:
        await endings.cap_reached(session, tools.engine, found.job.id, error.reached, error.lease_id, now)
    trial = found.trial
    async with tools.database.transaction() as session:
        done = await endings.end_stopping(session, trial.job_id, trial.id, found.try_no, trial.task_seq, now)
        if not done:
            ending = Ending(TrialState.FAILED, {"reason": Reason.BUDGET_EXCEEDED.value})
            await endings.end_trial(session, trial.job_id, trial.id, found.try_no, trial.task_seq, ending, now)
