"""The table of runner revisions. Rows are never changed, except that a label moves from one to another."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class RunnerRevisionRow(Base):
    """One revision of a runner of this installation."""

    __tablename__ = "runner_revision"
    __table_args__ = (
        UniqueConstraint("namespace", "name", "source_ref"),
        CheckConstraint("visibility IN ('public', 'private')", name="visibility"),
    )

    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    revision: Mapped[str] = mapped_column(primary_key=True)
    """SHA-256 of the canonical description, 64 hex digits."""
    source_ref: Mapped[str | None]
    """A moving label such as `main`; at most one revision of a runner has it."""
    visibility: Mapped[str]
    description: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
