"""What the checks of a dataset version came to: a verdict for each of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.jobs import store
from tollbar.jobs.states import JOB_TERMINAL
from tollbar.jobs.tables import DatasetCheckRow, TrialRow
from tollbar.kit.clock import wire_time

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
