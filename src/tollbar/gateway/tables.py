"""Virtual keys: what lets one Trial or run call its models, and nobody else anything."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, LargeBinary, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class PriceTableRow(Base):
    """One version of an installation's own prices; a running Job keeps the one that it began with."""

    __tablename__ = "price_table"

    source: Mapped[str] = mapped_column(primary_key=True)
    rows: Mapped[list[dict[str, Any]]] = mapped_column(JSONB())
    """The rows as they were written."""
    created_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))


class VirtualKeyRow(Base):
    """A key of one subject. Only its hash is kept; the secret itself stands nowhere but in its sandbox."""

    __tablename__ = "virtual_key"
    __table_args__ = (
        CheckConstraint("purpose IN ('agent', 'verifier', 'team', 'system')", name="purpose"),
        Index("ix_virtual_key_subject", "subject", postgresql_where=text("revoked_at IS NULL")),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    workspace_id: Mapped[str]
    project_id: Mapped[str]
    subject: Mapped[str]
    """`trial:<id>:<try_no>` or `run:<id>`."""
    purpose: Mapped[str]
    budget_ids: Mapped[list[str]]
    """The chain that its calls are charged to, outermost first, without the project's day."""
    routes: Mapped[dict[str, Any]] = mapped_column(JSONB())
    """Wire model to provider: the only way to a provider."""
    egress: Mapped[bool] = mapped_column(server_default=text("false"))
    """The subject may reach the network, so its requests may make a provider fetch something."""
    facts: Mapped[dict[str, Any]] = mapped_column(JSONB(), server_default=text("'{}'"))
    """Whose calls these are, for scripts: task, dataset, profile, attempt, adapter."""
    created_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
