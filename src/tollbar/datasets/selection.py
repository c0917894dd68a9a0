"""Resolves a selector to a dataset version and the tasks of it that run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.datasets import store
from tollbar.datasets.errors import (
    DatasetConfigRequired,
    DatasetManifestConflict,
    DatasetNotFound,
    DatasetRevisionNotFound,
    DatasetSelectionNotFound,
    InvalidDatasetSelector,
    TaskMemberNotFound,
)
from tollbar.datasets.schemas import Selection, selected_task
from tollbar.datasets.selectors import Selector, read_selector
from tollbar.datasets.tables import DatasetTaskRow, DatasetVersionRow


async def find_version(session: AsyncSession, actor: Principal, name: str, revision: str) -> DatasetVersionRow:
    """Returns the version with that label or revision; raises `DatasetNotFound`, `DatasetRevisionNotFound`."""
    found = await store.version(session, actor, name, revision)
    if found is not None:
        return found
    if await store.newest(session, actor, name) is None:
        raise DatasetNotFound(name)
    raise DatasetRevisionNotFound(name, revision)


async def select(session: AsyncSession, actor: Principal, source: Mapping[str, Any]) -> Selection:
    """Returns what the one member `dataset`, `dataset_ref` or `task_ref` of `source` means now.

    Raises `InvalidDatasetSelector`, `DatasetNotFound`, `DatasetRevisionNotFound`, `DatasetSelectionNotFound`,
    `TaskMemberNotFound`, `DatasetConfigRequired`, `DatasetManifestConflict`.
    """
    selector = read_selector(source)
    version = await _version(session, actor, selector)
    config = _config(version, selector)
    rows = await _tasks(session, version, selector, config)
    return Selection(
        dataset=version.name,
        version=version.version,
        manifest_sha256=version.manifest_sha256,
        digest=version.digest,
        selection={"config": config, "split": selector.split, "task_id": rows[0].task_id if selector.task_id else None},
        threshold=float(version.threshold),
        weights={name: float(weight) for name, weight in version.weights.items()},
        default_profile=version.default_profile,
        tasks=tuple(selected_task(version, row) for row in rows),
    )


async def _version(session: AsyncSession, actor: Principal, selector: Selector) -> DatasetVersionRow:
    if not selector.versions:
        newest = await store.newest(session, actor, selector.name)
        if newest is None:
            raise DatasetNotFound(selector.name)
        return newest
    found = [await find_version(session, actor, selector.name, ref) for ref in selector.versions]
    if found[0].id != found[-1].id:
        raise InvalidDatasetSelector("dataset.version and dataset.revision name two versions")
    if selector.manifest_sha256 is not None and selector.manifest_sha256 != found[0].manifest_sha256:
        raise DatasetManifestConflict(selector.shown, "has another manifest_sha256 than the reference")
    return found[0]


def _config(version: DatasetVersionRow, selector: Selector) -> str | None:
    """Returns the config that counts. One task that is named needs none; a single config is chosen by itself."""
    if selector.config is not None:
        if selector.config not in version.configs:
            raise DatasetSelectionNotFound(_shown(version), f"there is no config {selector.config}")
        return selector.config
    if selector.task_id is not None or not version.configs:
        return None
    if version.default_config is not None:
        return version.default_config
    if len(version.configs) > 1:
        raise DatasetConfigRequired(_shown(version), sorted(version.configs))
    return next(iter(version.configs))


async def _tasks(
    session: AsyncSession, version: DatasetVersionRow, selector: Selector, config: str | None
) -> list[DatasetTaskRow]:
    if selector.split is not None and selector.split not in version.splits:
        raise DatasetSelectionNotFound(_shown(version), f"there is no split {selector.split}")
    if selector.task_id is not None:
        await _check_task(session, version, selector.task_id, selector.digest)
    rows = await store.tasks(
        session,
        version,
        split=selector.split,
        names=None if config is None else list(version.configs[config]),
        task=selector.task_id,
        digest=selector.digest,
    )
    if not rows:
        raise DatasetSelectionNotFound(_shown(version), "no task is in all that was asked for")
    if selector.task_id is not None and len(rows) > 1:
        raise InvalidDatasetSelector(f"several tasks have this task_id: {', '.join(row.name for row in rows[:5])}")
    return rows


async def _check_task(session: AsyncSession, version: DatasetVersionRow, task_id: str, digest: str | None) -> None:
    members = await store.tasks(session, version, task=task_id)
    if not members:
        raise TaskMemberNotFound(_shown(version), task_id)
    if digest is not None and all(member.digest != digest for member in members):
        raise DatasetManifestConflict(
            f"The task {task_id} of {_shown(version)}", "has another digest than the reference"
        )


def _shown(version: DatasetVersionRow) -> str:
    return f"{version.name}@{version.version}"
