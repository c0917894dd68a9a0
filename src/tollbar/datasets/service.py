"""Rules of the catalogue: publishing immutable versions, showing them, and resolving what a submission names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.datasets import packing, store
from tollbar.datasets.archive import read_upload
from tollbar.datasets.content import ENVIRONMENT, Dataset, load_dataset
from tollbar.datasets.errors import (
    DatasetManifestConflict,
    DatasetNotFound,
    DatasetSelectionNotFound,
    NamespaceTaken,
)
from tollbar.datasets.names import LABEL_RULE, NAME_RULE, is_label, is_name
from tollbar.datasets.problems import Problem
from tollbar.datasets.schemas import dataset_detail, dataset_item, task_object, version_object
from tollbar.datasets.selection import find_version, select
from tollbar.datasets.tables import DatasetVersionRow
from tollbar.datasets.taskfile import Task, stored_task
from tollbar.datasets.taskneeds import needs
from tollbar.datasets.tree import Tree, read_folder
from tollbar.kit.clock import Clock
from tollbar.kit.errors import InvalidRequest
from tollbar.kit.ids import new_id
from tollbar.kit.paging import Page, PageRequest

__all__ = [
    "Blobs",
    "get",
    "list_page",
    "load",
    "publish",
    "publish_folder",
    "select",
    "task_files",
    "tasks_page",
    "version",
    "versions_page",
]

VISIBILITIES: Final = ("public", "private")
TYPES: Final = (ENVIRONMENT, "trajectory")


class Blobs(Protocol):
    """What publishing and loading need of the blob store."""

    async def put_bytes(self, data: bytes) -> str: ...

    async def get(self, sha256: str) -> bytes: ...


async def publish(
    session: AsyncSession,
    actor: Principal,
    *,
    archive: Path,
    name: str,
    version: str | None,
    visibility: str | None,
    blobs: Blobs,
    clock: Clock,
) -> tuple[dict[str, Any], bool]:
    """Publishes an uploaded tar as a version; returns the version's object and whether it is new.

    Without a version that of `dataset.toml` counts; without a visibility a new version is private. Raises
    `UnsupportedTaskFormat` (422), `DatasetManifestConflict` (409), `NamespaceTaken` (403), `RequestTooLarge` (413).
    """

    def read(problems: list[Problem]) -> Tree:
        return read_upload(archive, problems)

    return await _publish(session, actor, read, name, version, visibility, blobs, clock)


async def publish_folder(
    session: AsyncSession,
    actor: Principal,
    *,
    folder: Traversable,
    name: str,
    version: str | None,
    visibility: str | None,
    blobs: Blobs,
    clock: Clock,
) -> tuple[dict[str, Any], bool]:
    """Publishes a folder (a path, or a resource of a package) by the same rules as an upload; for seeding."""

    def read(problems: list[Problem]) -> Tree:
        del problems
        return read_folder(folder)

    return await _publish(session, actor, read, name, version, visibility, blobs, clock)


async def _publish(
    session: AsyncSession,
    actor: Principal,
    read: Callable[[list[Problem]], Tree],
    name: str,
    version: str | None,
    visibility: str | None,
    blobs: Blobs,
    clock: Clock,
) -> tuple[dict[str, Any], bool]:
    _check_request(name, version, visibility)

    def load() -> Dataset:
        problems: list[Problem] = []
        return load_dataset(read(problems), name=name, version=version, problems=problems)

    dataset = await asyncio.to_thread(load)
    if await store.claim_namespace(session, actor, name, clock.now()) != actor.workspace_id:
        raise NamespaceTaken(name.partition("/")[0])
    existing = await store.any_version(session, name, dataset.version)
    if existing is None:
        row = await _add(session, actor, dataset, visibility or "private", blobs, clock)
        if row is not None:
            return version_object(row), True
        existing = await store.any_version(session, name, dataset.version)
        assert existing is not None
    _check_same(actor, existing, dataset, visibility)
    return version_object(existing), False


def _check_request(name: str, version: str | None, visibility: str | None) -> None:
    fields: list[dict[str, str]] = []
    if not is_name(name):
        fields.append({"path": "name", "problem": f"must be {NAME_RULE}"})
    if version is not None and not is_label(version):
        fields.append({"path": "version", "problem": f"must be {LABEL_RULE}"})
    if visibility is not None and visibility not in VISIBILITIES:
        fields.append({"path": "visibility", "problem": "must be public or private"})
    if fields:
        raise InvalidRequest(fields)


def _check_same(actor: Principal, existing: DatasetVersionRow, dataset: Dataset, visibility: str | None) -> None:
    """A label is used once: only the same content, seen by the same people, is the same version again."""
    what = f"{existing.name}@{existing.version}"
    another = "Publish under another version."
    if existing.project_id != actor.project_id and existing.visibility == "private":
        raise DatasetManifestConflict(what, "was published by another project of this workspace", another)
    if existing.manifest_sha256 != dataset.manifest_sha256():
        raise DatasetManifestConflict(what, "was published with other content", another)
    if visibility is not None and visibility != existing.visibility:
        raise DatasetManifestConflict(
            what, f"is {existing.visibility}; a version's visibility does not change", another
        )


async def _add(
    session: AsyncSession, actor: Principal, dataset: Dataset, visibility: str, blobs: Blobs, clock: Clock
) -> DatasetVersionRow | None:
    """Stores files, then rows; None when another publication of that label was quicker."""
    await store.unhurried(session)  # storing the files can take longer than a transaction may stand still
    version_id = new_id("dsv")
    tasks: list[dict[str, Any]] = []
    for entry in dataset.tasks:
        packed = await asyncio.to_thread(packing.pack_task, entry.files)
        own = entry.task.config.own
        tasks.append(
            {
                "version_id": version_id,
                "name": entry.task.name,
                "task_id": entry.task.task_id,
                "digest": entry.task.digest,
                "split": entry.split,
                "files_sha256": await blobs.put_bytes(packed),
                "threshold": own.pass_threshold,
                "weights": dict(own.weights),
                "needs": needs(entry.task),
            }
        )
    for data in dataset.files.values():
        await blobs.put_bytes(data)
    row: dict[str, Any] = {
        "id": version_id,
        "name": dataset.name,
        "version": dataset.version,
        "workspace_id": actor.workspace_id,
        "project_id": actor.project_id,
        "visibility": visibility,
        "manifest_sha256": dataset.manifest_sha256(),
        "manifest": dataset.manifest(),
        "digest": dataset.digest(),
        "description": dataset.description,
        "authors": list(dataset.authors),
        "splits": dict(dataset.splits),
        "configs": {name: list(members) for name, members in dataset.configs.items()},
        "default_config": dataset.default_config,
        "threshold": dataset.threshold,
        "weights": dict(dataset.weights),
        "default_profile": dataset.default_profile,
        "task_count": len(tasks),
        "published_at": clock.now(),
    }
    if not await store.add_version(session, ENVIRONMENT, row, tasks):
        return None
    return await store.any_version(session, dataset.name, dataset.version)


async def list_page(
    session: AsyncSession, actor: Principal, page: PageRequest, *, dataset_type: str | None = None, q: str | None = None
) -> Page[dict[str, Any]]:
    """Returns datasets that the project can use, newest first; `q` is a part of the name in any case."""
    if dataset_type is not None and dataset_type not in TYPES:
        raise InvalidRequest([{"path": "type", "problem": f"must be one of {', '.join(TYPES)}"}])
    found = await store.summaries_page(session, actor, page, dataset_type=dataset_type, part=q)
    cut = page.page(found, lambda summary: [summary.newest.seq])
    return Page([dataset_item(summary) for summary in cut.items], cut.next_cursor)


async def get(session: AsyncSession, actor: Principal, name: str) -> dict[str, Any]:
    """Returns one dataset; raises `DatasetNotFound`."""
    summary = await store.summary(session, actor, name)
    if summary is None:
        raise DatasetNotFound(name)
    return dataset_detail(summary)


async def versions_page(
    session: AsyncSession, actor: Principal, name: str, page: PageRequest, *, label: str | None = None
) -> Page[dict[str, Any]]:
    """Returns the versions of a dataset, newest first; `label` keeps exactly that one."""
    found = await store.versions_page(session, actor, name, page, label=label)
    if not found and await store.newest(session, actor, name) is None:
        raise DatasetNotFound(name)
    cut = page.page(found, lambda row: [row.seq])
    return Page([version_object(row) for row in cut.items], cut.next_cursor)


async def version(session: AsyncSession, actor: Principal, name: str, revision: str) -> dict[str, Any]:
    """Returns one version by its label or revision."""
    return version_object(await find_version(session, actor, name, revision))


async def tasks_page(
    session: AsyncSession, actor: Principal, name: str, revision: str, page: PageRequest, *, split: str | None = None
) -> Page[dict[str, Any]]:
    """Returns the tasks of a version by name; `split` keeps those of one split."""
    found = await find_version(session, actor, name, revision)
    if split is not None and split not in found.splits:
        raise DatasetSelectionNotFound(f"{found.name}@{found.version}", f"there is no split {split}")
    rows = await store.tasks_page(session, found, page, split=split)
    cut = page.page(rows, lambda row: [row.name])
    return Page([task_object(found, row) for row in cut.items], cut.next_cursor)


async def blob_in_use(session: AsyncSession) -> str | None:
    """Returns the name of a blob that every store of this installation has; None before the first dataset."""
    return await store.any_blob(session)


async def task_files(blobs: Blobs, files_sha256: str) -> dict[str, bytes]:
    """Returns the files of a stored task by path."""
    packed = await blobs.get(files_sha256)
    return await asyncio.to_thread(packing.task_files, packed)


async def load(blobs: Blobs, files_sha256: str, name: str) -> tuple[Task, dict[str, bytes]]:
    """Returns a stored task and its files; `name` is the one that it has in its dataset."""
    files = await task_files(blobs, files_sha256)
    return await asyncio.to_thread(stored_task, files, name), files
