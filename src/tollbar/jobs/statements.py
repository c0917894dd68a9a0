"""Statements of the installation's housekeeping on Jobs and Trials: of no user, so no actor scopes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.artifacts.tables import ArtifactRow
from tollbar.jobs.states import JOB_TERMINAL, TRIAL_TERMINAL
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
