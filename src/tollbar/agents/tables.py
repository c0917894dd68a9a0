"""Profiles: how an agent is run, in immutable versions with one explicit default."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class ProfileRow(Base):
    """A profile of a project; `is_project_default` marks the one that a submission without a profile uses."""

    __tablename__ = "profile"
    __table_args__ = (
        Index(
            "uq_profile_project_default",
            "project_id",
            unique=True,
            postgresql_where="is_project_default",
        ),
    )

    project_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    default_version: Mapped[str | None]
    is_project_default: Mapped[bool] = mapped_column(server_default="false")
    updated_at: Mapped[datetime]


class ProfileVersionRow(Base):
    """One immutable version; `spec` is exactly the JSON that was stored, `sha256` the hash of its canonical form."""

    __tablename__ = "profile_version"
    __table_args__ = (ForeignKeyConstraint(["project_id", "name"], ["profile.project_id", "profile.name"]),)

    project_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int]
    spec: Mapped[dict[str, Any]]
    sha256: Mapped[str]
    archived_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
