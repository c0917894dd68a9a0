"""Retry of what has no reward: a new Job on the frozen snapshot of an ended one, with its unscored slots alone.

The source never changes, and a slot that has a reward, a zero included, is never run again.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.budget import service as budget
from tollbar.jobs import lookup, schemas, statistics, store
from tollbar.jobs.context import JobsContext
from tollbar.jobs.errors import InvalidJob
from tollbar.jobs.states import JOB_TERMINAL, JobState
from tollbar.jobs.statistics import TaskScore
from tollbar.jobs.submission import Submission
from tollbar.jobs.tables import JobRow, JobTaskRow
from tollbar.kit.ids import new_id
from tollbar.kit.money import format_usd

_FROZEN: Final = (
    "workspace_id", "project_id", "type", "dataset_ref", "selection", "profile", "agent", "model", "params", "runner",
    "attempts", "threshold", "seed", "timeout_s", "sandbox_form", "keep_failed_s", "allow_base_substitution",
)  # fmt: skip
_TASK: Final = ("seq", "name", "task_id", "digest", "split", "files_sha256", "threshold", "weights")
_SUMS: Final = ("n_succeeded", "n_failed", "n_cancelled", "n_passed")


async def resolve(
    session: AsyncSession, context: JobsContext, actor: Principal, wanted: Submission
) -> tuple[JobRow, list[JobTaskRow]]:
    """Returns a retry's Job with its tasks; raises `JobNotFound`, and `InvalidJob` when there is nothing to retry."""
    source = await lookup.job_row(session, actor, wanted.source["retry_of"])
    if wanted.dry_run:
        raise InvalidJob("A retry has no dry run: what it runs is what the source left without a reward.")
    if source.state not in JOB_TERMINAL:
        raise InvalidJob("The Job to retry has not ended.", hint="Wait for its end, or stop it.")
    slots = await store.unscored_slots(session, actor, source.id)
    if not slots:
        raise InvalidJob("Every Trial of that Job has a reward; nothing is left to retry.")
    seqs = {seq for seq, _ in slots}
    tasks = [row for row in await store.tasks(session, source.id) if row.seq in seqs]
    job = JobRow(
        id=new_id("job"),
        **{name: getattr(source, name) for name in _FROZEN},
        name=source.name,
        state=JobState.PENDING.value,
        request_id=wanted.request_id,
        request_sha256=wanted.sha256(),
        request=wanted.normal(),
        tag=wanted.tag or source.tag,
        total_tasks=len(tasks),
        retry_of=source.id,
        slots=[list(slot) for slot in slots],
        rank_priority=1000 - wanted.priority,
        max_running=min(context.max_running, wanted.max_concurrent or context.max_running),
        budget_id="",
        trial_cap_pusd=wanted.trial_cap_pusd,
        expanded=False,
        created_at=context.clock.now(),
    )
    return job, [_copy(job.id, row) for row in tasks]


def _copy(job_id: str, row: JobTaskRow) -> JobTaskRow:
    return JobTaskRow(
        job_id=job_id, **{name: getattr(row, name) for name in _TASK}, **dict.fromkeys(_SUMS, 0), reward_sum=0.0
    )


async def merged(session: AsyncSession, actor: Principal, job: JobRow) -> dict[str, Any]:
    """Returns what a retry and the Jobs that it goes back to come to together: each slot's reward counts once."""
    chain = [job]
    while chain[-1].retry_of is not None:
        chain.append(await lookup.job_row(session, actor, chain[-1].retry_of))
    first = chain[-1]
    sums: dict[str, list[float]] = {}
    for rows in (await store.tasks_of(session, [one.id for one in chain])).values():
        for row in rows:
            whole = sums.setdefault(row.name, [0, 0, 0.0])
            for place, value in enumerate((row.n_succeeded, row.n_passed, row.reward_sum)):
                whole[place] += value
    found = [TaskScore(int(n), int(passed), total / n) for n, passed, total in sums.values() if n]
    scores = statistics.score(found, attempts=first.attempts, n_total=first.n_slots)
    money = await budget.views(session, [one.budget_id for one in chain])
    spent = sum(view.spent_pusd for view in money.values())
    return {
        "job_ids": [one.id for one in reversed(chain)],
        **schemas.scores_object(scores, job.threshold),
        "cost": {"total_usd": format_usd(spent)},
    }
