"""Queries on artifacts, each scoped by the actor's project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts.tables import ArtifactRow
from tollbar.kit.paging import PageRequest


async def add(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Adds artifacts; a name that the Trial has already keeps its first content."""
    if rows:
        await session.execute(insert(ArtifactRow).on_conflict_do_nothing(), rows)


async def drop_older_tries(session: AsyncSession, trial_id: str, try_no: int) -> None:
    await session.execute(delete(ArtifactRow).where(ArtifactRow.trial_id == trial_id, ArtifactRow.try_no < try_no))


async def page(session: AsyncSession, actor: Principal, trial_id: str, request: PageRequest) -> list[ArtifactRow]:
    """Returns artifacts by name, one row more than the page."""
    query = select(ArtifactRow).where(ArtifactRow.trial_id == trial_id, ArtifactRow.project_id == actor.project_id)
    if request.after is not None:
        query = query.where(ArtifactRow.name > request.after[0])
    return list(await session.scalars(query.order_by(ArtifactRow.name).limit(request.limit + 1)))


async def one(session: AsyncSession, actor: Principal, trial_id: str, artifact_id: str) -> ArtifactRow | None:
    return await session.scalar(
        select(ArtifactRow).where(
            ArtifactRow.id == artifact_id,
            ArtifactRow.trial_id == trial_id,
            ArtifactRow.project_id == actor.project_id,
        )
    )
