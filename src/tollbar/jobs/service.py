"""What callers can do with Jobs and Trials: submit, ask, stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.agents import service as profiles
from tollbar.agents.registry import ADAPTERS
from tollbar.artifacts import service as artifacts
from tollbar.budget import service as budget
from tollbar.budget.schemas import Level
from tollbar.datasets import selection
from tollbar.datasets.schemas import SelectedTask, Selection
from tollbar.engine.port import Engine, Work
from tollbar.jobs import endings, refusals, schemas, spending, store, submission
from tollbar.jobs.errors import (
    InvalidJob,
    InvalidJobStatus,
    InvalidJobType,
    InvalidTrialStatus,
    JobNotFound,
    JobRequestConflict,
    MissingCap,
    ProfileRunnerConflict,
    TrialNotFound,
    UnsupportedCapability,
)
from tollbar.jobs.pump import PROJECT_LIMIT
from tollbar.jobs.spending import Plan
from tollbar.jobs.states import JOB_TERMINAL, JobState
from tollbar.jobs.submission import Submission
from tollbar.jobs.tables import JobRow, JobTaskRow, TrialRow
from tollbar.kit.clock import Clock
from tollbar.kit.ids import is_id, new_id
from tollbar.kit.paging import Page, PageRequest
from tollbar.sandboxes import service as runners
from tollbar.sandboxes.interface import Capabilities

MATRIX_LIMIT: Final = 10_000
_JOB_TYPES: Final = frozenset({"agent", "regrade"})
_FOREIGN_TYPES: Final = frozenset({"sandbox", "train", "inference"})
_JOB_STATES: Final = tuple(state.value for state in JobState)
_TRIAL_STATES: Final = (
    "pending", "starting", "running", "verifying", "stopping", "succeeded", "failed", "cancelled",
)  # fmt: skip


@dataclass(frozen=True)
class JobsContext:
    """What the rules of Jobs use beside a session and an actor."""

    engine: Engine
    clock: Clock
    origin: str
    """Public origin, for links."""
    capabilities: Capabilities | None = None
    """What the default backend can enforce; None when no backend works here."""
    project_running: int = PROJECT_LIMIT
    """Trials of one project that the workers run at once."""
    max_running: int = 64
    """Trials of one Job that may run at once."""


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
    job, tasks, plan = await _resolve(session, context, actor, wanted)
    caps = await spending.caps_of(session, actor, wanted)
    if wanted.dry_run:
        return await spending.dry_run(session, actor, job, plan, caps, context.clock.now()), False
    await spending.require_balance(session, actor, context.clock.now())
    try:
        async with session.begin_nested():
            job.budget_id = await budget.open_budget(session, Level.JOB, job.id, caps.job_pusd)
            await store.add_job(session, job, tasks)
    except IntegrityError:
        # Two equal submissions at once: the unique index decided, the loser reads the winner's row.
        winner = await store.job_by_request(session, actor, request_id) if request_id else None
        if winner is None:
            raise
        return await _repeated(session, context, winner, wanted), False
    await context.engine.enqueue(
        session, Work(f"job:{job.id}", "job", endings.CONTROL_QUEUE, (job.id,), priority=job.rank_priority)
    )
    return await _job_object(session, context, job), True


async def _repeated(session: AsyncSession, context: JobsContext, first: JobRow, wanted: Submission) -> dict[str, Any]:
    if first.request_sha256 != wanted.sha256():
        raise JobRequestConflict(first.id, submission.differing(first.request, wanted.normal()))
    return await _job_object(session, context, first)


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
    params = _params(profile.agent, profile.params, wanted.params, chosen)
    refused = _refusals(context, chosen, params, oracle=ADAPTERS[profile.agent].uses_solution)
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
        max_running=context.max_running,
        timeout_s=wanted.timeout_s,
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
    context: JobsContext, chosen: Selection, params: Mapping[str, Any], *, oracle: bool
) -> list[dict[str, str]]:
    """Returns the tasks of which no Trial could start, each with the reason; raises when it is all of them."""
    if context.capabilities is None:
        return []
    found = [
        (task.name, refusals.check(task.needs, context.capabilities, params, oracle=oracle)) for task in chosen.tasks
    ]
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


def _params(agent: str, own: Mapping[str, Any], given: Mapping[str, Any], chosen: Selection) -> dict[str, Any]:
    """Returns the Job's parameters: the agent's, and the variables that the tasks take from nowhere else."""
    variables = {
        name.upper() for task in chosen.tasks for key in ("variables", "solution_variables") for name in task.needs[key]
    }
    unknown = sorted(set(given) - ADAPTERS[agent].parameters - variables)
    if unknown:
        raise InvalidJob(f"Neither the agent {agent} nor a task knows the parameter {', '.join(unknown)}.")
    return {**own, **given}


async def status(session: AsyncSession, context: JobsContext, actor: Principal, job_id: str) -> dict[str, Any]:
    """Returns a Job: status, phase, scores so far, counts; the cost of asking does not depend on its Trials."""
    return await _job_object(session, context, await _job(session, actor, job_id))


async def result(
    session: AsyncSession, context: JobsContext, actor: Principal, job_id: str, page: PageRequest
) -> dict[str, Any]:
    """Returns a Job with its usage and a page of its Trials; `final` is false until it ends."""
    job = await _job(session, actor, job_id)
    rows = await store.trials_of_job(session, actor, job_id, page)
    cut = page.page(rows, lambda row: [row.task_seq, row.attempt])
    spent = await _spent(session, cut.items)
    items = [schemas.result_item(row, spent[row.id]["total"]) for row in cut.items]
    usage = {**schemas.NO_USAGE, "by_model": []}
    whole = await _job_object(session, context, job)
    return {**whole, "usage": usage, "trials": {"items": items, "next_cursor": cut.next_cursor}}


async def list_page(
    session: AsyncSession,
    context: JobsContext,
    actor: Principal,
    page: PageRequest,
    *,
    kind: str | None = None,
    state: str | None = None,
    tag: str | None = None,
) -> Page[dict[str, Any]]:
    """Returns a page of the project's Jobs, newest first; Jobs of kinds that do not exist here are an empty page."""
    if kind in _FOREIGN_TYPES:
        return Page([], None)
    if kind is not None and kind not in _JOB_TYPES:
        raise InvalidJobType
    if state is not None and state not in _JOB_STATES:
        raise InvalidJobStatus(_JOB_STATES)
    rows = await store.jobs_page(session, actor, page, state=state, tag=tag, kind=kind)
    cut = page.page(rows, lambda row: [row.id])
    views = await _views(session, context, cut.items)
    return Page([schemas.job_object(view) for view in views], cut.next_cursor)


async def stop(session: AsyncSession, context: JobsContext, actor: Principal, job_id: str) -> dict[str, Any]:
    """Stops a Job in the caller's transaction and returns it; one that ended stays as it is."""
    await _job(session, actor, job_id)
    job = await store.lock_job(session, job_id)
    assert job is not None
    if job.state not in JOB_TERMINAL:
        await endings.stop_job(session, context.engine, job, context.clock.now())
    return await status(session, context, actor, job_id)


async def trials_page(
    session: AsyncSession,
    actor: Principal,
    page: PageRequest,
    *,
    job_id: str | None = None,
    kind: str | None = None,
    state: str | None = None,
) -> Page[dict[str, Any]]:
    """Returns a page of Trials, newest first."""
    if kind is not None and kind not in _JOB_TYPES | _FOREIGN_TYPES:
        raise InvalidJobType
    if state is not None and state not in _TRIAL_STATES:
        raise InvalidTrialStatus(_TRIAL_STATES)
    if kind not in {None, "agent"}:
        return Page([], None)
    states = None if state is None else schemas.states_of(state)
    rows = await store.trials_page(session, actor, page, job_id=job_id, states=states)
    cut = page.page(rows, lambda row: [row.id])
    return Page([schemas.trial_object(row, "agent") for row in cut.items], cut.next_cursor)


async def trial(session: AsyncSession, actor: Principal, trial_id: str) -> dict[str, Any]:
    """Returns one Trial."""
    return schemas.trial_object(await _trial(session, actor, trial_id), "agent")


async def trial_result(session: AsyncSession, actor: Principal, trial_id: str) -> dict[str, Any]:
    """Returns one Trial's reward or reason, structured result, evidence, cost, and first page of artifacts."""
    row = await _trial(session, actor, trial_id)
    spent = await _spent(session, [row])
    files = await artifacts.first_page(session, actor, row.id)
    return schemas.trial_result_object(
        row, "agent", spent[row.id], {"items": files.items, "next_cursor": files.next_cursor}
    )


async def _spent(session: AsyncSession, rows: Sequence[TrialRow]) -> dict[str, dict[str, int]]:
    """Returns what all tries of these Trials cost, by Trial."""
    tries = {row.id: [f"trial:{row.id}:{number}" for number in range(1, row.try_no + 1)] for row in rows}
    return await budget.spent_on_many(session, tries)


async def running_trials(session: AsyncSession, actor: Principal) -> int:
    """Returns how many Trials of the project are at work, or handed to a worker."""
    return await store.running_in_project(session, actor)


async def require_trial(session: AsyncSession, actor: Principal, trial_id: str) -> None:
    """Raises `TrialNotFound` unless the Trial is the project's."""
    await _trial(session, actor, trial_id)


async def matrix(session: AsyncSession, actor: Principal, job_id: str) -> dict[str, Any]:
    """Returns a Job's Trials as rows of tasks and columns of attempts, and its reasons for missing rewards.

    `tasks` holds `{task_id, name, cells}`, each cell a Trial as a result lists it; `complete` is false when the Job
    has more Trials than the first 10,000.
    """
    job = await _job(session, actor, job_id)
    rows: dict[int, dict[str, Any]] = {}
    trials = await store.all_trials(session, actor, job_id, MATRIX_LIMIT)
    for row in trials:
        task = rows.setdefault(row.task_seq, {"task_id": row.task_id, "name": row.task_name, "cells": []})
        task["cells"].append(schemas.matrix_cell(row))
    reasons = [{"code": code, "count": count} for code, count in await store.reasons(session, job_id)]
    complete = len(trials) == job.total_tasks * job.attempts or not job.expanded
    return {"tasks": list(rows.values()), "reasons": reasons, "complete": complete}


async def _job(session: AsyncSession, actor: Principal, job_id: str) -> JobRow:
    job = await store.job(session, actor, job_id) if is_id(job_id, "job") else None
    if job is None:
        raise JobNotFound
    return job


async def _trial(session: AsyncSession, actor: Principal, trial_id: str) -> TrialRow:
    row = await store.trial(session, actor, trial_id) if is_id(trial_id, "trial") else None
    if row is None:
        raise TrialNotFound
    return row


async def _job_object(session: AsyncSession, context: JobsContext, job: JobRow) -> dict[str, Any]:
    return schemas.job_object((await _views(session, context, [job]))[0])


async def _views(session: AsyncSession, context: JobsContext, jobs: Sequence[JobRow]) -> list[schemas.JobView]:
    ids = [job.id for job in jobs]
    tasks = await store.tasks_of(session, ids)
    active = await store.active_counts(session, ids)
    money = await budget.views(session, [job.budget_id for job in jobs])
    return [schemas.JobView(job, tasks[job.id], active[job.id], money[job.budget_id], context.origin) for job in jobs]
