"""How a request becomes a Job: read, resolved to frozen facts, written with its budget, enqueued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.agents import service as profiles
from tollbar.agents.registry import ADAPTERS
from tollbar.budget import service as budget
from tollbar.budget.schemas import Level
from tollbar.datasets import selection
from tollbar.datasets.schemas import SelectedTask, Selection
from tollbar.engine.port import Work
from tollbar.jobs import endings, lookup, metering, refusals, retrying, spending, store, submission
from tollbar.jobs.context import JobsContext
from tollbar.jobs.errors import (
    InvalidJob,
    JobRequestConflict,
    MissingCap,
    ProfileRunnerConflict,
    UnsupportedCapability,
    UnsupportedCommand,
)
from tollbar.jobs.events import service as events
from tollbar.jobs.spending import Plan
from tollbar.jobs.states import JobState
from tollbar.jobs.submission import Execution, Submission
from tollbar.jobs.tables import JobRow, JobTaskRow
from tollbar.kit.ids import new_id
from tollbar.sandboxes import service as runners
from tollbar.sandboxes.interface import Capabilities


async def submit(
    session: AsyncSession,
    context: JobsContext,
    actor: Principal,
    request: Mapping[str, Any],
    *,
    needs_cap: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Submits an Agent Job in the caller's transaction; returns its object and whether it is new.

    The same `request_id` with the same arguments returns the first Job; with others raises `JobRequestConflict`. A
    dry run only resolves: it looks no `request_id` up and writes nothing. `needs_cap`: refuse a submission without
    `max_cost_usd` (the MCP interface never submits without one).
    """
    request_id = submission.request_id_of(request)
    if needs_cap and request.get("max_cost_usd") is None:
        raise MissingCap
    if request_id is not None and request.get("dry_run") is not True:
        first = await store.job_by_request(session, actor, request_id)
        if first is not None:
            return await _repeated(session, context, first, submission.read(request)), False
    wanted = submission.read(request)
    plan: Plan | None = None
    if "retry_of" in wanted.source:
        job, tasks = await retrying.resolve(session, context, actor, wanted)
    else:
        job, tasks, plan = await _resolve(session, context, actor, wanted)
    await profiles.require_software(session, job.agent, job.params)
    caps = await spending.caps_of(session, actor, wanted)
    if wanted.dry_run and plan is not None:
        offers = context.models
        models = {} if offers is None else await metering.asked_of(session, offers, ADAPTERS, job)
        return await spending.dry_run(session, actor, job, plan, caps, context.clock.now(), models), False
    await spending.require_balance(session, actor, context.clock.now())
    try:
        async with session.begin_nested():
            job.budget_id = await budget.open_budget(session, Level.JOB, job.id, caps.job_pusd)
            await store.add_job(session, job, tasks)
            await events.store.add(
                session, events.submitted(job.id, job.project_id, actor, plan.refused if plan else [])
            )
    except IntegrityError:
        # Two equal submissions at once: the unique index decided, the loser reads the winner's row.
        winner = await store.job_by_request(session, actor, request_id) if request_id else None
        if winner is None:
            raise
        return await _repeated(session, context, winner, wanted), False
    await context.engine.enqueue(
        session, Work(f"job:{job.id}", "job", endings.CONTROL_QUEUE, (job.id,), priority=job.rank_priority)
    )
    return await lookup.job_object(session, context, job), True


async def _repeated(session: AsyncSession, context: JobsContext, first: JobRow, wanted: Submission) -> dict[str, Any]:
    if first.request_sha256 != wanted.sha256():
        raise JobRequestConflict(first.id, submission.differing(first.request, wanted.normal()))
    return await lookup.job_object(session, context, first)


async def _resolve(
    session: AsyncSession, context: JobsContext, actor: Principal, wanted: Submission
) -> tuple[JobRow, list[JobTaskRow], Plan]:
    """Turns names into frozen facts: dataset revision, profile version, runner revision, parameters."""
    chosen = await selection.select(session, actor, wanted.source)
    profile = await profiles.resolve(session, actor, wanted.profile_name, wanted.profile_version)
    if profile is None:
        raise InvalidJob("No profile is named and the project has no default one.", hint="Give profile_name.")
    runner = await runners.resolve(session, wanted.runner or profile.runner or "envhub/base@main")
    await _agree(session, profile.name, profile.runner, wanted.runner)
    params = _params(profile.agent, profile.params, wanted, chosen)
    can = context.capabilities.get(runner.backend)
    refused = [] if can is None else _refusals(can, chosen, params, profile.agent, wanted.execution)
    job_id, ref = new_id("job"), chosen.dataset_ref()
    job = JobRow(
        id=job_id,
        workspace_id=actor.workspace_id,
        project_id=actor.project_id,
        type="agent",
        name=f"{ref['name']}@{ref['version']} with {profile.name}@{profile.version}",
        state=JobState.PENDING.value,
        request_id=wanted.request_id,
        request_sha256=wanted.sha256(),
        request=wanted.normal(),
        tag=wanted.tag,
        dataset_ref=ref,
        selection=dict(chosen.selection),
        profile=profile.wire(),
        agent=profile.agent,
        model=params.get("MODEL"),
        params=params,
        runner=runner.frozen(),
        attempts=wanted.attempts,
        total_tasks=len(chosen.tasks),
        threshold=chosen.threshold,
        seed=wanted.seed,
        rank_priority=1000 - wanted.priority,
        max_running=min(context.max_running, wanted.max_concurrent or context.max_running),
        timeout_s=wanted.execution.timeout_s,
        sandbox_form=wanted.execution.sandbox_form.value,
        keep_failed_s=wanted.execution.keep_failed_s,
        allow_base_substitution=(
            runner.allow_base_substitution if wanted.allow_base_substitution is None else wanted.allow_base_substitution
        ),
        budget_id="",
        trial_cap_pusd=wanted.trial_cap_pusd,
        expanded=False,
        created_at=context.clock.now(),
    )
    return job, [_task_row(job_id, seq, task) for seq, task in enumerate(chosen.tasks)], Plan(chosen, refused)


def _task_row(job_id: str, seq: int, task: SelectedTask) -> JobTaskRow:
    return JobTaskRow(
        job_id=job_id,
        seq=seq,
        name=task.name,
        task_id=task.task_id,
        digest=task.digest,
        split=task.split,
        files_sha256=task.files_sha256,
        threshold=task.threshold,
        weights=dict(task.weights),
        n_succeeded=0,
        n_failed=0,
        n_cancelled=0,
        n_passed=0,
        reward_sum=0.0,
    )


def _refusals(
    can: Capabilities, chosen: Selection, params: Mapping[str, Any], agent: str, execution: Execution
) -> list[dict[str, str]]:
    """Returns the tasks of which no Trial could start, each with the reason; raises when it is all of them."""
    if execution.keep_failed_s and not can.keeps:
        raise UnsupportedCapability("This runner's backend keeps no sandboxes (execution.keep_failed_sec).")
    oracle, form = ADAPTERS[agent].uses_solution, execution.sandbox_form
    found = [(task.name, refusals.check(task.needs, can, params, oracle=oracle, form=form)) for task in chosen.tasks]
    refused = [{"task": name, **asdict(why)} for name, why in found if why is not None]
    if len(refused) == len(chosen.tasks):
        raise UnsupportedCapability(f"None of the tasks can run here: {refused[0]['message']}", refused=refused[:100])
    return refused


async def _agree(session: AsyncSession, profile: str, bound: str | None, asked: str | None) -> None:
    """Refuses a runner that contradicts the profile; the seeded profiles run on any (they are bound to the base)."""
    if bound is None or asked is None or profile.startswith("tollbar/"):
        return
    if (await runners.resolve(session, bound)).revision != (await runners.resolve(session, asked)).revision:
        raise ProfileRunnerConflict(profile, bound)


def _params(agent: str, own: Mapping[str, Any], wanted: Submission, chosen: Selection) -> dict[str, Any]:
    """Returns the Job's parameters: the agent's, and the variables that the tasks take from nowhere else."""
    variables = {
        name.upper() for task in chosen.tasks for key in ("variables", "solution_variables") for name in task.needs[key]
    }
    given = dict(wanted.params)
    if wanted.command is not None:
        if agent != "command":
            raise UnsupportedCommand(agent)
        given["COMMAND"] = wanted.command
    unknown = sorted(set(given) - ADAPTERS[agent].parameters - variables)
    if unknown:
        raise InvalidJob(f"Neither the agent {agent} nor a task knows the parameter {', '.join(unknown)}.")
    params = {**own, **given}
    problem = ADAPTERS[agent].problem(params)
    if problem is not None:
        raise InvalidJob(f"{problem[0].upper()}{problem[1:]}.")
    return params
