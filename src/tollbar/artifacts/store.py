"""Queries on artifacts, each scoped by the actor's project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts.tables import ArtifactRow
from tollbar.kit.jsonio import compact
from tollbar.kit.paging import PageRequest

# All rows in one document: one statement and one round trip, the same text however many there are.
_PUT: Final = text(
    """
    INSERT INTO artifact (id, trial_id, project_id, try_no, name, kind, media_type, size, sha256, state, upload_state,
                          created_at)
    SELECT id, trial_id, project_id, try_no, name, kind, media_type, size, sha256, state, upload_state, created_at
      FROM jsonb_populate_recordset(CAST(NULL AS artifact), CAST(:rows AS jsonb))
    ON CONFLICT (trial_id, name) DO UPDATE
      SET id = excluded.id, project_id = excluded.project_id, try_no = excluded.try_no, kind = excluded.kind,
          media_type = excluded.media_type, size = excluded.size, sha256 = excluded.sha256, state = excluded.state,
          upload_state = excluded.upload_state, created_at = excluded.created_at
      WHERE artifact.try_no <= excluded.try_no
    """
)


async def put(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Adds artifacts; one that the Trial has already under that name is replaced, unless a later try wrote it."""
    if rows:
        document = [{**row, "created_at": row["created_at"].isoformat()} for row in rows]
        await session.execute(_PUT, {"rows": compact(document)})


async def drop_older_tries(session: AsyncSession, trial_id: str, try_no: int) -> None:
    await session.execute(delete(ArtifactRow).where(ArtifactRow.trial_id == trial_id, ArtifactRow.try_no < try_no))


async def page(session: AsyncSession, actor: Principal, trial_id: str, request: PageRequest) -> list[ArtifactRow]:
    """Returns artifacts by name, one row more than the page."""
    query = select(ArtifactRow).where(ArtifactRow.trial_id == trial_id, ArtifactRow.project_id == actor.project_id)
    start = request.start(str)
    if start is not None:
        query = query.where(ArtifactRow.name > start[0])
    return list(await session.scalars(query.order_by(ArtifactRow.name).limit(request.limit + 1)))


async def one(session: AsyncSession, actor: Principal, trial_id: str, artifact_id: str) -> ArtifactRow | None:
    return await session.scalar(
        select(ArtifactRow).where(
            ArtifactRow.id == artifact_id,
            ArtifactRow.trial_id == trial_id,
            ArtifactRow.project_id == actor.project_id,
        )
    )


async def blobs(session: AsyncSession) -> set[str]:
    """Returns the blobs that artifacts of any project name and that must be there."""
    query = select(ArtifactRow.sha256).where(ArtifactRow.sha256.is_not(None), ArtifactRow.state != "expired").distinct()
    return {name for name in await session.scalars(query) if name is not None}


async def expire(session: AsyncSession, trial_ids: Sequence[str]) -> None:
    """Takes the content away from all artifacts of those Trials; their names, sizes and hashes stay."""
    await session.execute(
        update(ArtifactRow)
        .where(ArtifactRow.trial_id.in_(trial_ids), ArtifactRow.state == "available")
        .values(state="expired", upload_state="deleted")
    )


async def sums(session: AsyncSession) -> list[tuple[str, str, int, int]]:
    """Returns (kind, state, number, bytes) over the artifacts of all projects; bytes shared by several count again."""
    kind, state = ArtifactRow.kind, ArtifactRow.state
    query = select(kind, state, func.count(), func.sum(ArtifactRow.size)).group_by(kind, state).order_by(kind, state)
    return [(row[0], row[1], row[2], int(row[3] or 0)) for row in await session.execute(query)]
