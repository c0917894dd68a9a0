"""Statements of the installation's housekeeping on Jobs and Trials: of no user, so no actor scopes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.artifacts.tables import ArtifactRow
from tollbar.jobs.states import JOB_TERMINAL, TRIAL_TERMINAL, TrialState
from tollbar.jobs.tables import JobRow, JobTaskRow, SealRow, TrialRow


async def task_blobs(session: AsyncSession) -> set[str]:
    """Returns the blobs with the files of tasks of any Job."""
    return set(await session.scalars(select(JobTaskRow.files_sha256).distinct()))


async def manifest_blobs(session: AsyncSession) -> set[str]:
    """Returns the blobs with the manifests of all seals."""
    return set(await session.scalars(select(SealRow.manifest_blob).distinct()))


async def lapsed(session: AsyncSession, before: datetime, limit: int) -> list[str]:
    """Returns Trials of Jobs that ended before that moment and that have stored files or a seal, of any project."""
    files = select(ArtifactRow.id).where(ArtifactRow.trial_id == TrialRow.id, ArtifactRow.state == "available")
    sealed = select(SealRow.trial_id).where(SealRow.trial_id == TrialRow.id)
    ended = JobRow.state.in_([state.value for state in JOB_TERMINAL])
    query = select(TrialRow.id).join(JobRow, JobRow.id == TrialRow.job_id)
    query = query.where(ended, JobRow.finished_at < before, or_(files.exists(), sealed.exists()))
    return list(await session.scalars(query.order_by(TrialRow.id).limit(limit)))


async def drop_seals(session: AsyncSession, trial_ids: Sequence[str]) -> None:
    """Removes the seals of those Trials, which then cannot be graded again."""
    await session.execute(delete(SealRow).where(SealRow.trial_id.in_(trial_ids)))


async def live(session: AsyncSession, trial_ids: Sequence[str]) -> set[str]:
    """Returns those of the Trials that have not ended."""
    ended = [state.value for state in TRIAL_TERMINAL]
    query = select(TrialRow.id).where(TrialRow.id.in_(trial_ids), TrialRow.state.not_in(ended))
    return set(await session.scalars(query))


async def jobs_by_state(session: AsyncSession) -> dict[str, int]:
    """Returns how many Jobs are in each state."""
    found = await session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
    return {row[0]: row[1] for row in found}


async def live_trials(session: AsyncSession) -> dict[str, int]:
    """Returns how many Trials are in each state that is no end."""
    live = [state.value for state in TrialState if state not in TRIAL_TERMINAL]
    query = select(TrialRow.state, func.count()).where(TrialRow.state.in_(live)).group_by(TrialRow.state)
    return {row[0]: row[1] for row in await session.execute(query)}


async def ended_trials(session: AsyncSession) -> dict[str, int]:
    """Returns how many Trials ended how, from the sums of their tasks."""
    sums = (JobTaskRow.n_succeeded, JobTaskRow.n_failed, JobTaskRow.n_cancelled)
    row = (await session.execute(select(*(func.coalesce(func.sum(column), 0) for column in sums)))).one()
    return {name: int(value) for name, value in zip(("succeeded", "failed", "cancelled"), row, strict=True)}


async def failed_trials(session: AsyncSession) -> dict[str, int]:
    """Returns how many Trials failed for which reason."""
    query = select(TrialRow.reason, func.count()).where(TrialRow.state == TrialState.FAILED.value)
    return {str(row[0]): row[1] for row in await session.execute(query.group_by(TrialRow.reason))}
