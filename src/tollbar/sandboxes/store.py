"""Queries on runner revisions. Runners belong to the installation, so every actor sees the public ones."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import or_, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.kit.paging import PageRequest
from tollbar.sandboxes.runners import Description, Reference
from tollbar.sandboxes.tables import RunnerRevisionRow


async def labelled(session: AsyncSession, namespace: str, name: str, label: str) -> RunnerRevisionRow | None:
    """Returns the revision that has the label now."""
    row = RunnerRevisionRow
    return await session.scalar(
        select(row).where(row.namespace == namespace, row.name == name, row.source_ref == label)
    )


async def add(
    session: AsyncSession, namespace: str, name: str, label: str, description: Description, now: datetime
) -> None:
    """Adds a public revision with a label, unless the revision or the label is there already."""
    values = insert(RunnerRevisionRow).values(
        namespace=namespace,
        name=name,
        revision=description.revision(),
        source_ref=label,
        visibility="public",
        description=description.facts(),
        created_at=now,
    )
    await session.execute(values.on_conflict_do_nothing())


async def find(session: AsyncSession, reference: Reference) -> RunnerRevisionRow | None:
    """Returns the public revision with that hash or label; a hash goes before a label of the same text."""
    row = RunnerRevisionRow
    query = select(row).where(
        row.namespace == reference.namespace,
        row.name == reference.short_name,
        row.visibility == "public",
        or_(row.revision == reference.revision, row.source_ref == reference.revision),
    )
    return await session.scalar(query.order_by((row.revision == reference.revision).desc()).limit(1))


async def page(session: AsyncSession, page: PageRequest) -> list[RunnerRevisionRow]:
    """Returns public revisions by name and revision, one row more than the page."""
    row = RunnerRevisionRow
    query = select(row).where(row.visibility == "public")
    start = page.start(str, str, str)
    if start is not None:
        query = query.where(tuple_(row.namespace, row.name, row.revision) > tuple_(*start))
    query = query.order_by(row.namespace, row.name, row.revision).limit(page.limit + 1)
    return list(await session.scalars(query))
