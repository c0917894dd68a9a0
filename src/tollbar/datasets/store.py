"""Queries on the catalogue. A user sees public versions and those of the own project, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, text
from sqlalchemy.dialects.postgresql import aggregate_order_by, array_agg, insert
from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.datasets.names import namespace_of
from tollbar.datasets.schemas import DatasetSummary
from tollbar.datasets.tables import DatasetNamespaceRow, DatasetRow, DatasetTaskRow, DatasetVersionRow
from tollbar.kit.paging import PageRequest

MAX_LABELS = 100
"""Most labels that stand in a dataset's own object; all of them are on the page of versions."""


def _visible(actor: Principal) -> ColumnElement[bool]:
    return or_(DatasetVersionRow.visibility == "public", DatasetVersionRow.project_id == actor.project_id)


async def claim_namespace(session: AsyncSession, actor: Principal, name: str, now: datetime) -> str:
    """Gives the namespace of `name` to the actor's workspace unless it has an owner; returns the owner."""
    namespace = namespace_of(name)
    row = insert(DatasetNamespaceRow).values(namespace=namespace, workspace_id=actor.workspace_id, created_at=now)
    await session.execute(row.on_conflict_do_nothing())
    owner = await session.scalar(
        select(DatasetNamespaceRow.workspace_id).where(DatasetNamespaceRow.namespace == namespace)
    )
    assert owner is not None
    return owner


async def any_version(session: AsyncSession, name: str, label: str) -> DatasetVersionRow | None:
    """Returns a version whoever may see it: only for the rule that a label is used once."""
    row = DatasetVersionRow
    return await session.scalar(select(row).where(row.name == name, row.version == label))


async def unhurried(session: AsyncSession) -> None:
    """Lets this transaction stand still as long as it must, because it waits for something else than the database."""
    await session.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))


async def any_blob(session: AsyncSession) -> str | None:
    """Returns the name of a blob that the store must have, whoever may see it; None before the first dataset."""
    return await session.scalar(select(DatasetTaskRow.files_sha256).limit(1))


async def add_version(
    session: AsyncSession, dataset_type: str, row: dict[str, Any], tasks: Sequence[dict[str, Any]]
) -> bool:
    """Adds a version with its tasks; says False when its label was taken meanwhile."""
    dataset = insert(DatasetRow).values(
        name=row["name"], namespace=namespace_of(row["name"]), type=dataset_type, created_at=row["published_at"]
    )
    await session.execute(dataset.on_conflict_do_nothing())
    version = insert(DatasetVersionRow).values(**row).on_conflict_do_nothing().returning(DatasetVersionRow.id)
    if await session.scalar(version) is None:
        return False
    await session.execute(insert(DatasetTaskRow), list(tasks))
    return True


async def version(session: AsyncSession, actor: Principal, name: str, ref: str) -> DatasetVersionRow | None:
    """Returns the version with that label or revision."""
    row = DatasetVersionRow
    query = select(row).where(row.name == name, or_(row.version == ref, row.manifest_sha256 == ref), _visible(actor))
    return await session.scalar(query)


async def newest(session: AsyncSession, actor: Principal, name: str) -> DatasetVersionRow | None:
    row = DatasetVersionRow
    return await session.scalar(select(row).where(row.name == name, _visible(actor)).order_by(row.seq.desc()).limit(1))


async def versions_page(
    session: AsyncSession, actor: Principal, name: str, page: PageRequest, *, label: str | None
) -> list[DatasetVersionRow]:
    """Returns versions, newest first, one row more than the page."""
    row = DatasetVersionRow
    query = select(row).where(row.name == name, _visible(actor))
    if label is not None:
        query = query.where(row.version == label)
    start = page.start(int)
    if start is not None:
        query = query.where(row.seq < start[0])
    return list(await session.scalars(query.order_by(row.seq.desc()).limit(page.limit + 1)))


async def summaries_page(
    session: AsyncSession, actor: Principal, page: PageRequest, *, dataset_type: str | None, part: str | None
) -> list[DatasetSummary]:
    """Returns datasets by their newest visible version, newest first, one more than the page."""
    return await _summaries(session, actor, page, dataset_type=dataset_type, part=part)


async def summary(session: AsyncSession, actor: Principal, name: str) -> DatasetSummary | None:
    found = await _summaries(session, actor, None, name=name)
    return found[0] if found else None


async def _summaries(
    session: AsyncSession,
    actor: Principal,
    page: PageRequest | None,
    *,
    dataset_type: str | None = None,
    part: str | None = None,
    name: str | None = None,
) -> list[DatasetSummary]:
    row = DatasetVersionRow
    grouped = (
        select(
            func.max(row.seq).label("newest"),
            func.count().label("version_count"),
            array_agg(aggregate_order_by(row.version, row.seq.desc())).label("labels"),
            array_agg(row.visibility.distinct()).label("visibilities"),
        )
        .where(_visible(actor))
        .group_by(row.name)
    )
    if name is not None:
        grouped = grouped.where(row.name == name)
    if part is not None:
        grouped = grouped.where(func.strpos(func.lower(row.name), part.lower()) > 0)
    groups = grouped.subquery()
    query = (
        select(row, DatasetRow.type, groups.c.labels, groups.c.version_count, groups.c.visibilities)
        .join(groups, groups.c.newest == row.seq)
        .join(DatasetRow, DatasetRow.name == row.name)
        .order_by(row.seq.desc())
    )
    if dataset_type is not None:
        query = query.where(DatasetRow.type == dataset_type)
    if page is not None:
        query = query.limit(page.limit + 1)
        start = page.start(int)
        if start is not None:
            query = query.where(row.seq < start[0])
    return [
        DatasetSummary(kind, version_row, tuple(labels[:MAX_LABELS]), count, frozenset(visibilities))
        for version_row, kind, labels, count, visibilities in (await session.execute(query)).all()
    ]


async def tasks_page(
    session: AsyncSession, found: DatasetVersionRow, page: PageRequest, *, split: str | None
) -> list[DatasetTaskRow]:
    """Returns tasks of a version that the actor may see, by name, one row more than the page."""
    row = DatasetTaskRow
    query = select(row).where(row.version_id == found.id)
    if split is not None:
        query = query.where(row.split == split)
    start = page.start(str)
    if start is not None:
        query = query.where(row.name.collate("C") > start[0])
    return list(await session.scalars(query.order_by(row.name.collate("C")).limit(page.limit + 1)))


async def tasks(
    session: AsyncSession,
    found: DatasetVersionRow,
    *,
    split: str | None = None,
    names: Sequence[str] | None = None,
    task: str | None = None,
    digest: str | None = None,
) -> list[DatasetTaskRow]:
    """Returns the tasks of a version that fit all that is given; `task` is a `task_id` or a whole name."""
    row = DatasetTaskRow
    query = select(row).where(row.version_id == found.id)
    if split is not None:
        query = query.where(row.split == split)
    if names is not None:
        query = query.where(row.name.in_(names))
    if task is not None:
        query = query.where(or_(row.task_id == task, row.name == task))
    if digest is not None:
        query = query.where(row.digest == digest)
    return list(await session.scalars(query.order_by(row.name.collate("C"))))


async def blobs(session: AsyncSession) -> set[str]:
    """Returns the blobs that versions and tasks of any project name."""
    named = set(await session.scalars(select(DatasetTaskRow.files_sha256).distinct()))
    for manifest in await session.scalars(select(DatasetVersionRow.manifest)):
        named.update(file["digest"].removeprefix("sha256:") for file in manifest["files"])
    return named
