"""Tables of access. Of a secret only its SHA-256 is kept."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class WorkspaceRow(Base):
    """A workspace: the organisation that owns projects."""

    __tablename__ = "workspace"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    created_at: Mapped[datetime]


class ProjectRow(Base):
    """A project: what jobs, profiles, private datasets and keys belong to."""

    __tablename__ = "project"
    __table_args__ = (UniqueConstraint("workspace_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspace.id"))
    name: Mapped[str]
    created_at: Mapped[datetime]


class ApiKeyRow(Base):
    """A key. `capabilities` is what was granted at creation, so an upgrade never widens a key by itself."""

    __tablename__ = "api_key"
    __table_args__ = (
        Index("ix_api_key_project_newest", "project_id", "id"),
        CheckConstraint("kind IN ('project')", name="kind"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    secret_sha256: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspace.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    preset: Mapped[str]
    capabilities: Mapped[list[str]]
    shown: Mapped[str]
    """The first characters of the secret, by which its owner knows it again."""
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """To the minute: written at most once in 60 s."""


class SignInLinkRow(Base):
    """A link that signs a browser in once."""

    __tablename__ = "sign_in_link"

    token_sha256: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspace.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class ConsoleSessionRow(Base):
    """A signed-in browser, known by the SHA-256 of its cookie."""

    __tablename__ = "console_session"

    id: Mapped[str] = mapped_column(primary_key=True)
    cookie_sha256: Mapped[str] = mapped_column(unique=True)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspace.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    created_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    """To the minute."""
    expires_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
