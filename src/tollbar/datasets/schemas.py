"""What the rest of the product gets from the catalogue: the wire objects, and what a selector resolved to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollbar.datasets.tables import DatasetTaskRow, DatasetVersionRow
from tollbar.kit.clock import wire_time


@dataclass(frozen=True)
class DatasetSummary:
    """A dataset as one actor sees it: its newest visible version, and what its visible versions have in common."""

    type: str
    newest: DatasetVersionRow
    labels: tuple[str, ...]
    """Newest first, bounded."""
    version_count: int
    visibilities: frozenset[str]


@dataclass(frozen=True)
class SelectedTask:
    """One task of a selection, as a Job freezes it; threshold and weights are the task's own, else the dataset's."""

    name: str
    task_id: str
    digest: str
    split: str | None
    files_sha256: str
    threshold: float
    weights: Mapping[str, float]
    needs: Mapping[str, Any]
    """What the task asks of a runner (`taskneeds.needs`)."""


@dataclass(frozen=True)
class Selection:
    """What a selector means: one dataset version and some of its tasks, by name."""

    dataset: str
    version: str
    manifest_sha256: str
    digest: str
    selection: Mapping[str, str | None]
    """`config`, `split` and `task_id`, as far as they were chosen or are the default."""
    threshold: float
    weights: Mapping[str, float]
    default_profile: str | None
    tasks: tuple[SelectedTask, ...]

    def dataset_ref(self) -> dict[str, str]:
        """Returns the object that pins this version."""
        return {
            "kind": "dataset",
            "name": self.dataset,
            "version": self.version,
            "manifest_sha256": self.manifest_sha256,
        }


def selected_task(version: DatasetVersionRow, row: DatasetTaskRow) -> SelectedTask:
    weights: dict[str, Any] = row.weights or version.weights
    return SelectedTask(
        name=row.name,
        task_id=row.task_id,
        digest=row.digest,
        split=row.split,
        files_sha256=row.files_sha256,
        threshold=float(row.threshold or version.threshold),
        weights={name: float(weight) for name, weight in weights.items()},
        needs=row.needs,
    )


def dataset_item(summary: DatasetSummary) -> dict[str, Any]:
    """Returns a dataset as it stands in a list."""
    newest = summary.newest
    return {
        "name": newest.name,
        "type": summary.type,
        "visibility": next(iter(summary.visibilities)) if len(summary.visibilities) == 1 else "mixed",
        "splits": sorted(newest.splits),
        "authors": list(newest.authors),
        "versions": list(summary.labels),
        "version_count": summary.version_count,
        "default_version": newest.version,
        "catalog_updated_at": wire_time(newest.published_at),
    }


def dataset_detail(summary: DatasetSummary) -> dict[str, Any]:
    """Returns one dataset: the list item, its description and the names of its configs."""
    newest = summary.newest
    return dataset_item(summary) | {"description": newest.description, "configs": sorted(newest.configs)}


def version_object(row: DatasetVersionRow) -> dict[str, Any]:
    """Returns one version."""
    return {
        "name": row.name,
        "type": row.manifest["type"],
        "version": row.version,
        "revision": row.manifest_sha256,
        "revision_ref": None,
        "manifest_sha256": row.manifest_sha256,
        "digest": row.digest,
        "task_count": row.task_count,
        "splits": {name: row.splits[name] for name in sorted(row.splits)},
        "configs": sorted(row.configs),
        "threshold": float(row.threshold),
        "check": None,
        "published_at": wire_time(row.published_at),
    }


def task_object(version: DatasetVersionRow, row: DatasetTaskRow) -> dict[str, Any]:
    """Returns one task of a version with the reference that can be submitted as it is."""
    return {
        "name": row.name,
        "task_id": row.task_id,
        "version": version.version,
        "revision": version.manifest_sha256,
        "digest": row.digest,
        "split": row.split,
        "task_ref": {
            "kind": "task",
            "dataset": version.name,
            "version": version.version,
            "task_id": row.task_id,
            "digest": row.digest,
        },
    }
