"""What a submission may spend, what it would cost at most, and whether its project has anything left today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.budget import limits as project_limits
from tollbar.budget.limits import Today
from tollbar.datasets.schemas import Selection
from tollbar.gateway.offers import Offer
from tollbar.jobs import limits, schemas
from tollbar.jobs.models import ModelNotServed
from tollbar.jobs.submission import Submission
from tollbar.jobs.tables import JobRow
from tollbar.kit.money import format_usd


@dataclass(frozen=True)
class Plan:
    """What a submission would run and cannot run."""

    chosen: Selection
    refused: list[dict[str, str]]

    def worst_try_pusd(self, job: JobRow) -> int:
        """Returns what one try of the dearest task that can run costs at most."""
        out = {item["task"] for item in self.refused}
        runnable = [task for task in self.chosen.tasks if task.name not in out]
        return max(limits.worst_case_pusd(task.needs, job.runner, job.timeout_s) for task in runnable)


@dataclass(frozen=True)
class Caps:
    """The caps of a Job in pUSD; None is no cap."""

    job_pusd: int | None
    """Its own, else the project's default."""
    trial_pusd: int | None
    is_default: bool


async def caps_of(session: AsyncSession, actor: Principal, wanted: Submission) -> Caps:
    """Returns what the Job and each of its Trials may spend."""
    if wanted.cap_pusd is not None:
        return Caps(wanted.cap_pusd, wanted.trial_cap_pusd, is_default=False)
    default = (await project_limits.limits_of(session, actor.project_id)).job_cap_pusd
    return Caps(default, wanted.trial_cap_pusd, is_default=default is not None)


async def require_balance(session: AsyncSession, actor: Principal, now: datetime) -> None:
    """Raises `InsufficientBalance` when the project has spent what it may spend today."""
    await project_limits.require_balance(session, actor.project_id, now)


async def dry_run(
    session: AsyncSession,
    actor: Principal,
    job: JobRow,
    plan: Plan,
    caps: Caps,
    now: datetime,
    models: Mapping[str, Offer | ModelNotServed],
) -> dict[str, Any]:
    """Returns what a submission would run, what of it cannot run, and what it can cost at most.

    How often an agent calls its models nobody knows before: only caps bound that, and without one the worst case is
    None.
    """
    today = await project_limits.today(session, actor.project_id, now)
    worst = plan.worst_try_pusd(job)
    n_total = job.total_tasks * job.attempts
    trial, whole = _bounds(worst, n_total - len(plan.refused) * job.attempts, caps, has_models=bool(models))
    return {
        "dry_run": True,
        "dataset_ref": job.dataset_ref,
        "selection": job.selection,
        "profile": job.profile,
        "agent": {"name": job.agent, "model": job.model},
        "runner": {key: job.runner[key] for key in ("name", "revision", "source_ref")},
        "params": job.params,
        "attempts": job.attempts,
        "total_tasks": job.total_tasks,
        "n_total": n_total,
        "max_cost_usd": None if caps.job_pusd is None else format_usd(caps.job_pusd),
        "max_cost_per_trial_usd": None if caps.trial_pusd is None else format_usd(caps.trial_pusd),
        "project_day": today.wire(),
        "allow_base_substitution": job.allow_base_substitution,
        "execution": schemas.execution_object(job),
        "worst_case_usd": None if trial is None else format_usd(trial),
        "worst_case_total_usd": None if whole is None else format_usd(whole),
        "models": [_model(name, found) for name, found in models.items()],
        "refused": plan.refused[:100],
        "warnings": [*_warnings(plan, caps, worst, today), *_model_warnings(caps, today, models)],
    }


def _bounds(sandbox_pusd: int, trials: int, caps: Caps, *, has_models: bool) -> tuple[int | None, int | None]:
    """Returns what one try, and the whole Job, can cost at most."""
    if not has_models:
        trial = sandbox_pusd if caps.trial_pusd is None else min(sandbox_pusd, caps.trial_pusd)
        return sandbox_pusd, trial * trials if caps.job_pusd is None else min(trial * trials, caps.job_pusd)
    known = [cap for cap in (caps.trial_pusd, caps.job_pusd) if cap is not None]
    whole = [
        cap for cap in (None if caps.trial_pusd is None else caps.trial_pusd * trials, caps.job_pusd) if cap is not None
    ]
    return min(known, default=None), min(whole, default=None)


def _model(name: str, found: Offer | ModelNotServed) -> dict[str, Any]:
    """Returns a model as a submission shows it: prices in USD per million tokens, and what small calls reserve."""
    if isinstance(found, ModelNotServed):
        return {"name": name, "problem": found.message, "priced": None, "simulated": None, "prices": None,
                "least_call_usd": None, "usual_call_usd": None}  # fmt: skip
    return {
        "name": name,
        "problem": None,
        "priced": found.priced,
        "simulated": found.simulated,
        "prices": found.prices,
        "least_call_usd": None if found.least_pusd is None else format_usd(found.least_pusd),
        "usual_call_usd": None if found.usual_pusd is None else format_usd(found.usual_pusd),
    }


def _model_warnings(caps: Caps, today: Today, models: Mapping[str, Offer | ModelNotServed]) -> list[str]:
    found: list[str] = []
    lefts = [left for left in (caps.job_pusd, caps.trial_pusd, today.left_pusd) if left is not None]
    for name, model in models.items():
        if isinstance(model, ModelNotServed):
            found.append(model.message)
        elif model.least_pusd is None and lefts:
            found.append(f"{name} has no price: under a cap the Job ends as BUDGET_UNMETERED and starts nothing.")
        elif model.least_pusd is not None and lefts and model.least_pusd > min(lefts):
            found.append(f"A small call of {name} reserves {format_usd(model.least_pusd)} USD, more than a cap leaves.")
    return found


def _warnings(plan: Plan, caps: Caps, worst_pusd: int, today: Today) -> list[str]:
    found: list[str] = []
    if plan.refused:
        found.append(f"{len(plan.refused)} of {len(plan.chosen.tasks)} tasks cannot run here.")
    if caps.is_default:
        found.append(f"The project's default cap holds: {format_usd(caps.job_pusd or 0)} USD.")
    if caps.job_pusd is not None and worst_pusd > caps.job_pusd:
        found.append("One try of a Trial can cost more than the cap.")
    if caps.trial_pusd is not None and worst_pusd > caps.trial_pusd:
        found.append("One try of a Trial can cost more than a Trial may.")
    if today.is_used_up:
        found.append("The project's daily cap is used up; a submission is refused until the day ends.")
    elif today.left_pusd is not None and worst_pusd > today.left_pusd:
        found.append("One try of a Trial can cost more than the project's daily cap has left.")
    return found
