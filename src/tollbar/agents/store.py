"""Queries on profiles, each scoped by the actor's project."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.agents.tables import ProfileRow, ProfileVersionRow
from tollbar.kit.paging import PageRequest


async def add_version(session: AsyncSession, actor: Principal, row: dict[str, Any]) -> bool:
    """Adds a version (and its profile) once; says whether it was new."""
    profile = insert(ProfileRow).values(
        project_id=actor.project_id, name=row["name"], default_version=None, updated_at=row["created_at"]
    )
    await session.execute(profile.on_conflict_do_nothing())
    version = insert(ProfileVersionRow).values(project_id=actor.project_id, **row).on_conflict_do_nothing()
    return await session.scalar(version.returning(ProfileVersionRow.version)) is not None


async def profile(session: AsyncSession, actor: Principal, name: str, *, lock: bool = False) -> ProfileRow | None:
    query = select(ProfileRow).where(ProfileRow.project_id == actor.project_id, ProfileRow.name == name)
    return await session.scalar(query.with_for_update() if lock else query)


async def project_default(session: AsyncSession, actor: Principal) -> ProfileRow | None:
    return await session.scalar(
        select(ProfileRow).where(ProfileRow.project_id == actor.project_id, ProfileRow.is_project_default)
    )


async def version(session: AsyncSession, actor: Principal, name: str, label: str) -> ProfileVersionRow | None:
    row = ProfileVersionRow
    return await session.scalar(
        select(row).where(row.project_id == actor.project_id, row.name == name, row.version == label)
    )


async def profiles_page(session: AsyncSession, actor: Principal, page: PageRequest) -> list[Any]:
    """Returns (profile, number of versions) by name, one row more than the page."""
    versions = (
        select(func.count())
        .where(
            ProfileVersionRow.project_id == ProfileRow.project_id,
            ProfileVersionRow.name == ProfileRow.name,
        )
        .scalar_subquery()
    )
    query = select(ProfileRow, versions).where(ProfileRow.project_id == actor.project_id)
    start = page.start(str)
    if start is not None:
        query = query.where(ProfileRow.name > start[0])
    query = query.order_by(ProfileRow.name).limit(page.limit + 1)
    return list((await session.execute(query)).all())


async def versions_page(
    session: AsyncSession, actor: Principal, name: str, page: PageRequest, *, archived: bool
) -> list[ProfileVersionRow]:
    """Returns versions, newest first, one row more than the page."""
    row = ProfileVersionRow
    query = select(row).where(row.project_id == actor.project_id, row.name == name)
    if not archived:
        query = query.where(row.archived_at.is_(None))
    start = page.start(int)
    if start is not None:
        query = query.where(row.seq < start[0])
    return list(await session.scalars(query.order_by(row.seq.desc()).limit(page.limit + 1)))
