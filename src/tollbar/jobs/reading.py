"""What callers can ask of Jobs and Trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts import service as artifacts
from tollbar.budget import service as budget
from tollbar.budget import usage as model_usage
from tollbar.budget.schemas import Spent, trial_subject
from tollbar.jobs import checks, lookup, retrying, schemas, store
from tollbar.jobs.context import JobsContext
from tollbar.jobs.errors import (
    InvalidJobStatus,
    InvalidJobType,
    InvalidTrialStatus,
)
from tollbar.jobs.states import JobState
from tollbar.jobs.tables import TrialRow
from tollbar.kit.paging import Page, PageRequest

MATRIX_LIMIT: Final = 10_000
_JOB_TYPES: Final = frozenset({"agent", "regrade"})
_FOREIGN_TYPES: Final = frozenset({"sandbox", "train", "inference"})
_JOB_STATES: Final = tuple(state.value for state in JobState)
_TRIAL_STATES: Final = (
    "pending", "starting", "running", "verifying", "stopping", "succeeded", "failed", "cancelled",
)  # fmt: skip


async def status(session: AsyncSession, context: JobsContext, actor: Principal, job_id: str) -> dict[str, Any]:
    """Returns a Job: status, phase, scores so far, counts; the cost of asking does not depend on its Trials."""
    return await lookup.job_object(session, context, await lookup.job_row(session, actor, job_id))


async def result(
    session: AsyncSession, context: JobsContext, actor: Principal, job_id: str, page: PageRequest
) -> dict[str, Any]:
    """Returns a Job with its usage and a page of its Trials; `final` is false until it ends."""
    job = await lookup.job_row(session, actor, job_id)
    rows = await store.trials_of_job(session, actor, job_id, page)
    cut = page.page(rows, lambda row: [row.task_seq, row.attempt])
    spent = await _spent(session, cut.items)
    items = [schemas.result_item(row, spent[row.id]) for row in cut.items]
    usage = await model_usage.of_budget(session, job.budget_id)
    whole = await lookup.job_object(session, context, job)
    if job.retry_of is not None:
        whole["merged"] = await retrying.merged(session, actor, job)
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
    views = await lookup.job_views(session, context, cut.items)
    return Page([schemas.job_object(view) for view in views], cut.next_cursor)


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
    spent = await _spent(session, cut.items)
    items = [schemas.trial_object(row, "agent", simulated=spent[row.id].simulated) for row in cut.items]
    return Page(items, cut.next_cursor)


async def trial(session: AsyncSession, actor: Principal, trial_id: str) -> dict[str, Any]:
    """Returns one Trial."""
    row = await lookup.trial_row(session, actor, trial_id)
    spent = await _spent(session, [row])
    return schemas.trial_object(row, "agent", simulated=spent[row.id].simulated)


async def trial_result(session: AsyncSession, actor: Principal, trial_id: str) -> dict[str, Any]:
    """Returns one Trial's reward or reason, structured result, evidence, cost, and first page of artifacts."""
    row = await lookup.trial_row(session, actor, trial_id)
    spent = await _spent(session, [row])
    usage = await model_usage.of_subjects(session, _subjects(row))
    files = await artifacts.first_page(session, actor, row.id)
    return schemas.trial_result_object(
        row, "agent", spent[row.id], usage, {"items": files.items, "next_cursor": files.next_cursor}
    )


async def _spent(session: AsyncSession, rows: Sequence[TrialRow]) -> dict[str, Spent]:
    """Returns what all tries of these Trials cost, by Trial."""
    return await budget.spent_on_many(session, {row.id: _subjects(row) for row in rows})


def _subjects(row: TrialRow) -> list[str]:
    """Returns under which names the ledger has the tries of a Trial."""
    return [trial_subject(row.id, number) for number in range(1, row.try_no + 1)]


async def require_trial(session: AsyncSession, actor: Principal, trial_id: str) -> None:
    """Raises `TrialNotFound` unless the Trial is the project's."""
    await lookup.trial_row(session, actor, trial_id)


async def matrix(session: AsyncSession, actor: Principal, job_id: str) -> dict[str, Any]:
    """Returns a Job's Trials as rows of tasks and columns of attempts, and its reasons for missing rewards.

    `tasks` holds `{task_id, name, flaky, cells}`, each cell a Trial as a result lists it; `flaky` is what the last
    check of the version says. `complete` is false when the Job has more Trials than the first 10,000.
    """
    job = await lookup.job_row(session, actor, job_id)
    version = job.dataset_ref["version"]
    checked = await checks.outcomes(session, actor, job.dataset_ref["name"], [version])
    flaky = set(checked[version]["flaky_tasks"]) if version in checked else set[str]()
    rows: dict[int, dict[str, Any]] = {}
    trials = await store.all_trials(session, actor, job_id, MATRIX_LIMIT)
    for row in trials:
        new = {"task_id": row.task_id, "name": row.task_name, "flaky": row.task_name in flaky, "cells": []}
        task = rows.setdefault(row.task_seq, new)
        task["cells"].append(schemas.matrix_cell(row))
    reasons = [{"code": code, "count": count} for code, count in await store.reasons(session, job_id)]
    complete = len(trials) == job.n_slots or not job.expanded
    return {"tasks": list(rows.values()), "reasons": reasons, "complete": complete}
