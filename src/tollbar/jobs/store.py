"""Every statement on Jobs and Trials. Reads for people are scoped by the actor's project; moves are compare-and-set.

A Job's row is locked before its Trials wherever both are written, so the last of two Trials that end at once sees
the other's end and closes the Job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, and_, bindparam, exists, func, or_, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from tollbar.access.principal import Principal
from tollbar.jobs.states import (
    JOB_MOVES,
    JOB_TERMINAL,
    TRIAL_ACTIVE,
    TRIAL_MOVES,
    TRIAL_TERMINAL,
    TRIAL_WORKING,
    JobState,
    TrialState,
)
from tollbar.jobs.tables import DatasetCheckRow, JobRow, JobTaskRow, SealRow, TrialRow
from tollbar.kit.paging import PageRequest

_LIVE: Final = tuple(state.value for state in TrialState if state not in TRIAL_TERMINAL)
_ACTIVE: Final = tuple(sorted(TRIAL_ACTIVE))
_WORKING: Final = tuple(sorted(TRIAL_WORKING))
_ENDED_JOBS: Final = tuple(sorted(JOB_TERMINAL))
_IDS: Final = bindparam("ids", type_=ARRAY(TEXT))

_CANCEL_WAITING = text(
    """
    WITH gone AS (
      UPDATE trial SET state = 'cancelled', reason = :reason, finished_at = :now
       WHERE job_id = :job AND state IN ('pending', 'admitted') RETURNING task_seq),
    sums AS (SELECT task_seq, count(*) AS n FROM gone GROUP BY task_seq)
    UPDATE job_task SET n_cancelled = n_cancelled + sums.n FROM sums
     WHERE job_task.job_id = :job AND job_task.seq = sums.task_seq
    """
)

_NEXT_TRY = text(
    """
    UPDATE trial SET state = 'pending', try_no = trial.try_no + 1, owner = NULL, losses = losses + :lost
      FROM unnest(:ids, :tries) AS mine(id, try_no)
     WHERE trial.id = mine.id AND trial.try_no = mine.try_no
       AND state IN ('admitted', 'starting', 'running', 'verifying') AND losses + :lost < :bound
    RETURNING trial.id
    """
).bindparams(_IDS, bindparam("tries", type_=ARRAY(BigInteger)))


# --- submission and expansion


async def add_job(session: AsyncSession, job: JobRow, tasks: Iterable[JobTaskRow]) -> None:
    session.add(job)
    await session.flush()
    session.add_all(tasks)
    await session.flush()


async def job_by_request(session: AsyncSession, actor: Principal, request_id: str) -> JobRow | None:
    return await session.scalar(
        select(JobRow).where(JobRow.project_id == actor.project_id, JobRow.request_id == request_id)
    )


async def lock_job(session: AsyncSession, job_id: str) -> JobRow | None:
    """Returns the Job with its row locked until the transaction ends."""
    query = select(JobRow).where(JobRow.id == job_id).with_for_update(key_share=True)
    return await session.scalar(query.execution_options(populate_existing=True))


async def lock_jobs_of(session: AsyncSession, trial_ids: Sequence[str]) -> list[JobRow]:
    """Returns the Jobs of these Trials with their rows locked, in the order of their ids."""
    owners = select(TrialRow.job_id).where(TrialRow.id.in_(trial_ids))
    query = select(JobRow).where(JobRow.id.in_(owners)).order_by(JobRow.id).with_for_update(key_share=True)
    return list(await session.scalars(query.execution_options(populate_existing=True)))


async def tasks(session: AsyncSession, job_id: str) -> list[JobTaskRow]:
    query = select(JobTaskRow).where(JobTaskRow.job_id == job_id).order_by(JobTaskRow.seq)
    return list(await session.scalars(query.execution_options(populate_existing=True)))


async def tasks_of(session: AsyncSession, job_ids: Sequence[str]) -> dict[str, list[JobTaskRow]]:
    found: dict[str, list[JobTaskRow]] = {job_id: [] for job_id in job_ids}
    query = select(JobTaskRow).where(JobTaskRow.job_id.in_(job_ids)).order_by(JobTaskRow.job_id, JobTaskRow.seq)
    for row in await session.scalars(query):
        found[row.job_id].append(row)
    return found


async def add_trials(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Adds Trials once: a repeated expansion finds them there."""
    await session.execute(upsert(TrialRow).on_conflict_do_nothing(), rows)


async def mark_expanded(session: AsyncSession, job_id: str) -> None:
    await session.execute(update(JobRow).where(JobRow.id == job_id).values(expanded=True))


async def move_job(session: AsyncSession, job_id: str, to: JobState, **values: Any) -> bool:
    """Moves a Job if its state allows it; says whether this call did it."""
    origins = [state.value for state, targets in JOB_MOVES.items() if to in targets]
    result: Any = await session.execute(
        update(JobRow).where(JobRow.id == job_id, JobRow.state.in_(origins)).values(state=to.value, **values)
    )
    return result.rowcount == 1


# --- Trials on their way


async def move_trial(
    session: AsyncSession,
    trial_id: str,
    try_no: int,
    to: TrialState,
    *,
    origins: Iterable[TrialState] | None = None,
    **values: Any,
) -> bool:
    """Moves a Trial of exactly this try if its state allows it: what a zombie writes changes no row."""
    allowed = {state for state, targets in TRIAL_MOVES.items() if to in targets}
    chosen = allowed if origins is None else allowed & set(origins)
    result: Any = await session.execute(
        update(TrialRow)
        .where(TrialRow.id == trial_id, TrialRow.try_no == try_no, TrialRow.state.in_([s.value for s in chosen]))
        .values(state=to.value, **values)
    )
    return result.rowcount == 1


async def is_try(
    session: AsyncSession, trial_id: str, try_no: int, states: Iterable[TrialState], *, lock: bool = False
) -> bool:
    """Says whether a Trial is in one of these states under exactly this try; `lock` keeps it so to the end."""
    query = select(TrialRow.id).where(
        TrialRow.id == trial_id, TrialRow.try_no == try_no, TrialRow.state.in_([state.value for state in states])
    )
    return await session.scalar(query.with_for_update(key_share=True) if lock else query) is not None


async def note_trial(session: AsyncSession, trial_id: str, try_no: int, **values: Any) -> bool:
    """Writes facts of a working Trial of exactly this try; False: it is another try's now, or being stopped."""
    result: Any = await session.execute(
        update(TrialRow)
        .where(TrialRow.id == trial_id, TrialRow.try_no == try_no, TrialRow.state.in_(_WORKING))
        .values(**values)
    )
    return result.rowcount == 1


async def note_kept(
    session: AsyncSession, trial_id: str, try_no: int, until: datetime | None, host: str | None
) -> bool:
    """Writes where the sandbox of a Trial is kept, and until when; False: this try did not end it, or it passed."""
    result: Any = await session.execute(
        update(TrialRow)
        .where(
            TrialRow.id == trial_id,
            TrialRow.try_no == try_no,
            TrialRow.state.in_((TrialState.FAILED, TrialState.SUCCEEDED)),
            TrialRow.passed.is_not(True),
        )
        .values(kept_until=until, kept_on=host)
    )
    return result.rowcount == 1


async def kept_trials(session: AsyncSession, actor: Principal, now: datetime) -> list[tuple[TrialRow, JobRow]]:
    """Returns the project's Trials whose sandbox is kept, with their Jobs, those that go first at the top."""
    query = (
        select(TrialRow, JobRow)
        .join(JobRow, JobRow.id == TrialRow.job_id)
        .where(TrialRow.project_id == actor.project_id, TrialRow.kept_until > now)
        .order_by(TrialRow.kept_until, TrialRow.id)
    )
    return [(row[0], row[1]) for row in await session.execute(query)]


async def add_to_task(
    session: AsyncSession, job_id: str, task_seq: int, end: TrialState, reward: float | None, *, passed: bool
) -> None:
    """Adds an ended Trial to the sums of its task."""
    column = {
        TrialState.SUCCEEDED: JobTaskRow.n_succeeded,
        TrialState.FAILED: JobTaskRow.n_failed,
        TrialState.CANCELLED: JobTaskRow.n_cancelled,
    }[end]
    values: dict[Any, Any] = {column: column + 1}
    if reward is not None:
        values[JobTaskRow.reward_sum] = JobTaskRow.reward_sum + reward
        values[JobTaskRow.n_passed] = JobTaskRow.n_passed + int(passed)
    await session.execute(
        update(JobTaskRow).where(JobTaskRow.job_id == job_id, JobTaskRow.seq == task_seq).values(values)
    )


async def working_set(session: AsyncSession, trial_id: str) -> tuple[TrialRow, JobRow, JobTaskRow] | None:
    """Returns a Trial with its Job and task, as they are now."""
    query = (
        select(TrialRow, JobRow, JobTaskRow)
        .join(JobRow, JobRow.id == TrialRow.job_id)
        .join(JobTaskRow, and_(JobTaskRow.job_id == TrialRow.job_id, JobTaskRow.seq == TrialRow.task_seq))
        .where(TrialRow.id == trial_id)
    )
    row = (await session.execute(query)).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


async def unscored_slots(session: AsyncSession, actor: Principal, job_id: str) -> list[tuple[int, int]]:
    """Returns (task, attempt) of every ended Trial of a Job that has no reward, first attempts first."""
    query = (
        select(TrialRow.task_seq, TrialRow.attempt)
        .where(TrialRow.job_id == job_id, TrialRow.project_id == actor.project_id, TrialRow.reward.is_(None))
        .order_by(TrialRow.attempt, TrialRow.task_seq)
    )
    return [(row[0], row[1]) for row in await session.execute(query)]


async def trial_ids(session: AsyncSession, job_id: str) -> list[str]:
    return list(await session.scalars(select(TrialRow.id).where(TrialRow.job_id == job_id)))


async def live_exists(session: AsyncSession, job_id: str) -> bool:
    """Says whether a Trial of the Job has not ended."""
    query = select(exists().where(TrialRow.job_id == job_id, TrialRow.state.in_(_LIVE)))
    return bool(await session.scalar(query))


async def cancel_waiting(session: AsyncSession, job_id: str, reason: str, now: Any) -> None:
    """Cancels every Trial of a Job that no sandbox was started for, and counts them."""
    await session.execute(_CANCEL_WAITING, {"job": job_id, "reason": reason, "now": now})


async def stop_active(session: AsyncSession, job_id: str) -> int:
    """Marks every Trial of a Job that may have a sandbox as stopping; returns how many are so now."""
    await session.execute(
        update(TrialRow)
        .where(TrialRow.job_id == job_id, TrialRow.state.in_(_ACTIVE))
        .values(state=TrialState.STOPPING.value)
    )
    query = select(func.count()).where(TrialRow.job_id == job_id, TrialRow.state == TrialState.STOPPING.value)
    return int(await session.scalar(query) or 0)


async def stopping(session: AsyncSession, job_id: str) -> list[tuple[str, int]]:
    """Returns (trial, try) of what must be ended."""
    query = select(TrialRow.id, TrialRow.try_no).where(
        TrialRow.job_id == job_id, TrialRow.state == TrialState.STOPPING.value
    )
    return [(row[0], row[1]) for row in await session.execute(query)]


async def next_try(session: AsyncSession, tries: Mapping[str, int], *, lost: bool, bound: int) -> set[str]:
    """Puts Trials (by id, each under exactly this try) back in the queue under their next try; returns which.

    Their Jobs are locked: a stop must see them either running or waiting. A loss beyond `bound` is left for the
    caller to fail.
    """
    values = {"ids": list(tries), "tries": list(tries.values()), "lost": int(lost), "bound": bound}
    return {row[0] for row in await session.execute(_NEXT_TRY, values)}


async def live_among(session: AsyncSession, trial_ids: Sequence[str]) -> list[TrialRow]:
    """Returns those of the Trials that have not ended and are not waiting in the queue."""
    query = select(TrialRow).where(
        TrialRow.id.in_(trial_ids), TrialRow.state.in_(_LIVE), TrialRow.state != TrialState.PENDING.value
    )
    return list(await session.scalars(query.execution_options(populate_existing=True)))


async def owned_by(session: AsyncSession, worker_id: str) -> list[tuple[str, int]]:
    """Returns (trial, try) of what that worker began and has not ended."""
    query = select(TrialRow.id, TrialRow.try_no).where(TrialRow.owner == worker_id, TrialRow.state.in_(_ACTIVE))
    return [(row[0], row[1]) for row in await session.execute(query)]


async def in_engine(session: AsyncSession, after: str, limit: int) -> list[tuple[str, int, str]]:
    """Returns (trial, try, state) of the next Trials by id that the engine should know of."""
    states = [state for state in _LIVE if state != TrialState.PENDING.value]
    query = (
        select(TrialRow.id, TrialRow.try_no, TrialRow.state)
        .where(TrialRow.state.in_(states), TrialRow.id > after)
        .order_by(TrialRow.id)
        .limit(limit)
    )
    return [(row[0], row[1], row[2]) for row in await session.execute(query)]


async def live_jobs(session: AsyncSession) -> list[JobRow]:
    """Returns Jobs that have not ended."""
    states = [JobState.PENDING.value, JobState.RUNNING.value, JobState.STOPPING.value]
    return list(await session.scalars(select(JobRow).where(JobRow.state.in_(states)).order_by(JobRow.id)))


# --- seals


async def add_seal(session: AsyncSession, seal: dict[str, Any]) -> bool:
    """Stores a Trial's seal once; False: there is one already, and it stays."""
    statement = upsert(SealRow).values(**seal).on_conflict_do_nothing().returning(SealRow.trial_id)
    return await session.scalar(statement) is not None


async def seal(session: AsyncSession, trial_id: str) -> SealRow | None:
    return await session.scalar(select(SealRow).where(SealRow.trial_id == trial_id))


async def drop_seal(session: AsyncSession, trial_id: str, try_no: int) -> None:
    """Drops the seal of an older try of a shared-mode Trial, whose sandbox is gone with its worker."""
    await session.execute(
        text("DELETE FROM seal WHERE trial_id = :trial AND try_no < :try_no"), {"trial": trial_id, "try_no": try_no}
    )


# --- what people read


async def job(session: AsyncSession, actor: Principal, job_id: str) -> JobRow | None:
    return await session.scalar(
        select(JobRow)
        .where(JobRow.id == job_id, JobRow.project_id == actor.project_id)
        .execution_options(populate_existing=True)
    )


async def active_counts(session: AsyncSession, job_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Returns per Job how many Trials are in each state between admission and end: bounded by the slots."""
    query = (
        select(TrialRow.job_id, TrialRow.state, func.count())
        .where(TrialRow.job_id.in_(job_ids), TrialRow.state.in_(_ACTIVE))
        .group_by(TrialRow.job_id, TrialRow.state)
    )
    found: dict[str, dict[str, int]] = {job_id: {} for job_id in job_ids}
    for job_id, state, count in await session.execute(query):
        found[job_id][state] = count
    return found


async def jobs_page(
    session: AsyncSession, actor: Principal, page: PageRequest, *, state: str | None, tag: str | None, kind: str | None
) -> list[JobRow]:
    """Returns Jobs, newest first, one row more than the page."""
    query = select(JobRow).where(JobRow.project_id == actor.project_id)
    if state is not None:
        query = query.where(JobRow.state == state)
    if tag is not None:
        query = query.where(JobRow.tag == tag)
    if kind is not None:
        query = query.where(JobRow.type == kind)
    start = page.start(str)
    if start is not None:
        query = query.where(JobRow.id < start[0])
    return list(await session.scalars(query.order_by(JobRow.id.desc()).limit(page.limit + 1)))


async def trial(session: AsyncSession, actor: Principal, trial_id: str) -> TrialRow | None:
    return await session.scalar(
        select(TrialRow)
        .where(TrialRow.id == trial_id, TrialRow.project_id == actor.project_id)
        .execution_options(populate_existing=True)
    )


async def trials_of_job(session: AsyncSession, actor: Principal, job_id: str, page: PageRequest) -> list[TrialRow]:
    """Returns a Job's Trials by task and attempt, one row more than the page."""
    query = select(TrialRow).where(TrialRow.job_id == job_id, TrialRow.project_id == actor.project_id)
    start = page.start(int, int)
    if start is not None:
        query = query.where(tuple_(TrialRow.task_seq, TrialRow.attempt) > tuple_(*start))
    query = query.order_by(TrialRow.task_seq, TrialRow.attempt).limit(page.limit + 1)
    return list(await session.scalars(query))


async def trials_page(
    session: AsyncSession, actor: Principal, page: PageRequest, *, job_id: str | None, states: Sequence[str] | None
) -> list[TrialRow]:
    """Returns Trials of the project, newest first, one row more than the page."""
    query = select(TrialRow).where(TrialRow.project_id == actor.project_id)
    if job_id is not None:
        query = query.where(TrialRow.job_id == job_id)
    if states is not None:
        query = query.where(TrialRow.state.in_(states))
    start = page.start(str)
    if start is not None:
        query = query.where(TrialRow.id < start[0])
    return list(await session.scalars(query.order_by(TrialRow.id.desc()).limit(page.limit + 1)))


async def reasons(session: AsyncSession, job_id: str) -> list[tuple[str | None, int]]:
    """Returns (reason, count) of a Job's Trials without reward."""
    query = (
        select(TrialRow.reason, func.count())
        .where(TrialRow.job_id == job_id, or_(TrialRow.state == "failed", TrialRow.state == "cancelled"))
        .group_by(TrialRow.reason)
        .order_by(func.count().desc())
    )
    return [(row[0], row[1]) for row in await session.execute(query)]


async def all_trials(session: AsyncSession, actor: Principal, job_id: str, limit: int) -> list[TrialRow]:
    """Returns up to `limit` Trials of a Job by task and attempt, for the matrix."""
    query = (
        select(TrialRow)
        .where(TrialRow.job_id == job_id, TrialRow.project_id == actor.project_id)
        .order_by(TrialRow.task_seq, TrialRow.attempt)
        .limit(limit)
    )
    return list(await session.scalars(query))


# --- checks of datasets


async def add_check(session: AsyncSession, row: dict[str, Any]) -> None:
    """Writes a check; one of the same Jobs, submitted again, stays as it is."""
    await session.execute(upsert(DatasetCheckRow).values(**row).on_conflict_do_nothing())


async def checks(
    session: AsyncSession, actor: Principal, name: str, versions: Sequence[str]
) -> list[tuple[DatasetCheckRow, JobRow, JobRow]]:
    """Returns the project's checks of those versions of a dataset with their two Jobs, the newest first."""
    oracle, nop = aliased(JobRow), aliased(JobRow)
    query = (
        select(DatasetCheckRow, oracle, nop)
        .join(oracle, oracle.id == DatasetCheckRow.oracle_job_id)
        .join(nop, nop.id == DatasetCheckRow.nop_job_id)
        .where(
            DatasetCheckRow.project_id == actor.project_id,
            DatasetCheckRow.name == name,
            DatasetCheckRow.version.in_(versions),
        )
        .order_by(DatasetCheckRow.id.desc())
    )
    return [(row[0], row[1], row[2]) for row in await session.execute(query)]


async def checked_versions(
    session: AsyncSession, project_id: str, versions: Sequence[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Returns which of these versions (name, version) a check of that project has looked at to its end."""
    oracle, nop = aliased(JobRow), aliased(JobRow)
    key = tuple_(DatasetCheckRow.name, DatasetCheckRow.version)
    query = (
        select(DatasetCheckRow.name, DatasetCheckRow.version)
        .join(oracle, oracle.id == DatasetCheckRow.oracle_job_id)
        .join(nop, nop.id == DatasetCheckRow.nop_job_id)
        .where(DatasetCheckRow.project_id == project_id, key.in_(versions))
        .where(oracle.state.in_(_ENDED_JOBS), nop.state.in_(_ENDED_JOBS))
    )
    return {(row[0], row[1]) for row in await session.execute(query)}


async def trials_by_task(session: AsyncSession, job_id: str) -> dict[str, list[TrialRow]]:
    """Returns the Trials of a Job by the name of their task, in the order of its tasks."""
    query = select(TrialRow).where(TrialRow.job_id == job_id).order_by(TrialRow.task_seq, TrialRow.attempt)
    found: dict[str, list[TrialRow]] = {}
    for trial in await session.scalars(query):
        found.setdefault(trial.task_name, []).append(trial)
    return found
