"""The table of events. Triggers of the schema write them in the statement that moves a state, so none is forgotten."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class EventRow(Base):
    """One thing that happened. `tx` is the transaction that wrote it: readers pass it only when none older is open."""

    __tablename__ = "job_event"
    __table_args__ = (
        Index("ix_job_event_job_order", "job_id", "tx", "id"),
        Index("ix_job_event_trial_order", "trial_id", "tx", "id"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    tx: Mapped[int]
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    trial_id: Mapped[str | None]
    project_id: Mapped[str]
    at: Mapped[datetime]
    """On the database's clock."""
    type: Mapped[str]
    status: Mapped[str | None]
    reason: Mapped[str | None]
    detail: Mapped[str | None]
    message: Mapped[str | None]
    try_no: Mapped[int | None]
