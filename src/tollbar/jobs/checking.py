"""The check of a dataset version: can its tasks be solved, and is nothing given away for free.

Two Jobs say so: the oracle, three times, and the agent that does nothing, once. No model runs. That one sealed attempt
grades the same a second time is not part of it: grading again is not offered yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts.blobs import BlobStore
from tollbar.datasets import lint, selection
from tollbar.datasets import service as datasets
from tollbar.datasets.schemas import Selection
from tollbar.jobs import store, submission, submitting
from tollbar.jobs.context import JobsContext
from tollbar.jobs.states import JOB_TERMINAL
from tollbar.jobs.tables import DatasetCheckRow, TrialRow
from tollbar.kit.clock import wire_time
from tollbar.kit.ids import new_id
from tollbar.kit.money import format_usd, parse_usd

ORACLE_ATTEMPTS: Final = 3
_ORACLE_SHARE: Final = Decimal("0.75")
_SAME: Final = 1e-9


class Verdict(StrEnum):
    """What a check says of a task."""

    OK = "ok"
    ORACLE_FAILS = "oracle_fails"
    NOP_NOT_ZERO = "nop_not_zero"
    FLAKY = "flaky"
    UNSCORED = "unscored"


@dataclass(frozen=True)
class Attempts:
    """What both Jobs came to for one task."""

    oracle: Sequence[TrialRow]
    nop: Sequence[TrialRow]

    def verdict(self) -> tuple[Verdict, str | None]:
        """Returns the verdict with a sentence; the first rule that holds."""
        lost = next((trial for trial in (*self.oracle, *self.nop) if trial.reward is None), None)
        if lost is not None:
            said = lost.message or lost.reason_detail or ""
            return Verdict.UNSCORED, f"No reward: {lost.reason}{f' ({said})' if said else ''}."
        rewards = [trial.reward or 0.0 for trial in self.oracle]
        if max(rewards) - min(rewards) > _SAME:
            return Verdict.FLAKY, f"The oracle's rewards differ: {', '.join(f'{reward:g}' for reward in rewards)}."
        if not any(trial.passed for trial in self.oracle):
            return Verdict.ORACLE_FAILS, f"The oracle gets {rewards[0]:g} and does not pass."
        free = max((trial.reward or 0.0 for trial in self.nop), default=0.0)
        if free > 0:
            return Verdict.NOP_NOT_ZERO, f"Doing nothing gets {free:g}."
        return Verdict.OK, None


async def check(
    session: AsyncSession,
    context: JobsContext,
    actor: Principal,
    blobs: BlobStore,
    name: str,
    revision: str,
    request: Mapping[str, Any],
) -> dict[str, Any]:
    """Starts the check of a version in the caller's transaction: returns both Jobs, and what needs no run.

    `request` may hold `request_id`, which makes repeating safe, and `max_cost_usd` for both Jobs together.
    """
    version = await selection.find_version(session, actor, name, revision)
    chosen = await selection.select(session, actor, {"dataset": {"name": version.name, "version": version.version}})
    found = await _lint(blobs, chosen)
    jobs: dict[str, dict[str, Any]] = {}
    for agent, attempts, cap in _parts(request):
        body = {
            "dataset": {"name": version.name, "version": version.version},
            "profile_name": f"tollbar/{agent}",
            "attempts": attempts,
            "tag": "check",
            "max_cost_usd": cap,
            "request_id": _request_id(request, agent),
        }
        jobs[agent], _ = await submitting.submit(session, context, actor, body)
    row = {
        "id": new_id("check"),
        "project_id": actor.project_id,
        "name": version.name,
        "version": version.version,
        "oracle_job_id": jobs["oracle"]["job_id"],
        "nop_job_id": jobs["nop"]["job_id"],
        "created_at": context.clock.now(),
    }
    await store.add_check(session, row)
    return {"oracle": jobs["oracle"], "nop": jobs["nop"], "lint": found}


async def outcomes(
    session: AsyncSession, actor: Principal, name: str, versions: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns, by version, the outcome of the last check that ended of those that the actor's project started."""
    made: dict[str, dict[str, Any]] = {}
    for found, oracle, nop in await store.checks(session, actor, name, versions):
        if found.version in made or oracle.state not in JOB_TERMINAL or nop.state not in JOB_TERMINAL:
            continue
        made[found.version] = await _outcome(session, found)
    return made


async def _outcome(session: AsyncSession, found: DatasetCheckRow) -> dict[str, Any]:
    oracle = await store.trials_by_task(session, found.oracle_job_id)
    nop = await store.trials_by_task(session, found.nop_job_id)
    verdicts = {task: Attempts(trials, nop.get(task, [])).verdict() for task, trials in oracle.items()}
    ends = [trial.finished_at for trials in (*oracle.values(), *nop.values()) for trial in trials]
    return {
        "oracle_score": _mean(oracle),
        "nop_score": _mean(nop),
        "flaky_tasks": [task for task, (verdict, _) in verdicts.items() if verdict is Verdict.FLAKY],
        "problems": [
            {"task": task, "verdict": verdict.value, "message": said}
            for task, (verdict, said) in verdicts.items()
            if verdict is not Verdict.OK
        ],
        "oracle_job_id": found.oracle_job_id,
        "nop_job_id": found.nop_job_id,
        "checked_at": wire_time(max((end for end in ends if end is not None), default=None)),
    }


def _mean(tasks: Mapping[str, Sequence[TrialRow]]) -> float | None:
    """Returns the mean of the tasks' means over what has a reward; None without any."""
    scored = [[trial.reward for trial in trials if trial.reward is not None] for trials in tasks.values()]
    means = [sum(rewards) / len(rewards) for rewards in scored if rewards]
    return sum(means) / len(means) if means else None


async def _lint(blobs: BlobStore, chosen: Selection) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for task in chosen.tasks:
        read, files = await datasets.load(blobs, task.files_sha256, task.name)
        found += [
            {"task": task.name, "code": each.code.value, "message": each.message} for each in lint.lint(read, files)
        ]
    return found


def _parts(request: Mapping[str, Any]) -> tuple[tuple[str, int, str | None], tuple[str, int, str | None]]:
    """Returns agent, attempts and cap of both Jobs; three of four attempts are the oracle's."""
    given = request.get("max_cost_usd")
    if given is None:
        return ("oracle", ORACLE_ATTEMPTS, None), ("nop", 1, None)
    whole = parse_usd(given, field="max_cost_usd", minimum=submission.MIN_CAP_USD, maximum=submission.MAX_CAP_USD)
    oracle = int(whole * _ORACLE_SHARE)
    return ("oracle", ORACLE_ATTEMPTS, format_usd(oracle)), ("nop", 1, format_usd(whole - oracle))


def _request_id(request: Mapping[str, Any], agent: str) -> str | None:
    given = submission.request_id_of(request)
    return None if given is None else f"{given[:120]}:{agent}"
