"""Artifacts: what a Trial left, by name, with its size and hash."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class ArtifactRow(Base):
    """One file of a Trial, or one that it was to write and did not."""

    __tablename__ = "artifact"
    __table_args__ = (
        UniqueConstraint("trial_id", "name"),
        CheckConstraint("kind IN ('output', 'log', 'verifier')", name="kind"),
        CheckConstraint("state IN ('available', 'missing', 'expired')", name="state"),
        CheckConstraint("upload_state IN ('pending', 'uploaded', 'failed', 'deleted')", name="upload_state"),
        CheckConstraint("(upload_state = 'uploaded') <= (sha256 IS NOT NULL AND size IS NOT NULL)", name="content"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    trial_id: Mapped[str]
    project_id: Mapped[str]
    try_no: Mapped[int]
    name: Mapped[str]
    kind: Mapped[str]
    media_type: Mapped[str | None]
    size: Mapped[int | None]
    sha256: Mapped[str | None]
    state: Mapped[str]
    upload_state: Mapped[str]
    created_at: Mapped[datetime]
