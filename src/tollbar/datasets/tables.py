"""Tables of the catalogue: who owns a namespace, datasets, their immutable versions, and the tasks in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class DatasetNamespaceRow(Base):
    """A namespace; the first workspace that publishes in it keeps it."""

    __tablename__ = "dataset_namespace"

    namespace: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    created_at: Mapped[datetime]


class DatasetRow(Base):
    """A dataset's name; everything else belongs to its versions."""

    __tablename__ = "dataset"

    name: Mapped[str] = mapped_column(primary_key=True)
    namespace: Mapped[str] = mapped_column(ForeignKey("dataset_namespace.namespace"))
    type: Mapped[str]
    created_at: Mapped[datetime]


class DatasetVersionRow(Base):
    """One immutable version; `seq` orders all versions by publication, newest highest."""

    __tablename__ = "dataset_version"
    __table_args__ = (
        UniqueConstraint("name", "version"),
        Index("ix_dataset_version_newest", "name", "seq"),
        CheckConstraint("visibility IN ('public', 'private')", name="visibility"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(Identity(always=True), unique=True)
    name: Mapped[str] = mapped_column(ForeignKey("dataset.name"))
    version: Mapped[str]
    workspace_id: Mapped[str]
    project_id: Mapped[str]
    """The project that published it; alone sees it while it is private."""
    visibility: Mapped[str]
    manifest_sha256: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    digest: Mapped[str]
    description: Mapped[str]
    authors: Mapped[list[str]]
    splits: Mapped[dict[str, Any]]
    """Split -> number of tasks."""
    configs: Mapped[dict[str, Any]]
    """Config -> names of its tasks."""
    default_config: Mapped[str | None]
    threshold: Mapped[str]
    weights: Mapped[dict[str, Any]]
    default_profile: Mapped[str | None]
    task_count: Mapped[int]
    published_at: Mapped[datetime]


class DatasetTaskRow(Base):
    """One task of a version; `files_sha256` names the tar of its files among the blobs."""

    __tablename__ = "dataset_task"

    version_id: Mapped[str] = mapped_column(ForeignKey("dataset_version.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[str]
    digest: Mapped[str]
    split: Mapped[str | None]
    files_sha256: Mapped[str]
    threshold: Mapped[str | None]
    """The task's own; None: the version's."""
    weights: Mapped[dict[str, Any]]
    """The task's own; empty: the version's."""
    needs: Mapped[dict[str, Any]]
