"""Tables of money: one row per budget, one row per reservation. No counter lives anywhere else."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, SmallInteger, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class BudgetRow(Base):
    """A cap and what is gone of it. The constraint `cap_holds` is the promise itself, kept by the database."""

    __tablename__ = "budget"
    __table_args__ = (
        UniqueConstraint("level", "subject"),
        CheckConstraint("cap_pusd IS NULL OR settled_pusd + reserved_pusd <= cap_pusd", name="cap_holds"),
        CheckConstraint(
            "cap_pusd >= 0 AND settled_pusd >= 0 AND reserved_pusd >= 0 AND overrun_pusd >= 0", name="signs"
        ),
        CheckConstraint("model_pusd + verifier_pusd <= settled_pusd + overrun_pusd", name="parts"),
        CheckConstraint("state IN ('open', 'exceeded', 'unmetered', 'closed')", name="state"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    level: Mapped[int] = mapped_column(SmallInteger)
    subject: Mapped[str]
    cap_pusd: Mapped[int | None]
    settled_pusd: Mapped[int] = mapped_column(server_default="0")
    reserved_pusd: Mapped[int] = mapped_column(server_default="0")
    overrun_pusd: Mapped[int] = mapped_column(server_default="0")
    model_pusd: Mapped[int] = mapped_column(server_default="0")
    verifier_pusd: Mapped[int] = mapped_column(server_default="0")
    verifier_model_pusd: Mapped[int] = mapped_column(server_default="0")
    """Of what verifiers spent: on models."""
    model_calls: Mapped[int] = mapped_column(server_default="0")
    """Model calls that ended and were sent; the counts below are parts of it."""
    unpriced_calls: Mapped[int] = mapped_column(server_default="0")
    worst_case_calls: Mapped[int] = mapped_column(server_default="0")
    """Charged at their bound, because nobody knows what they cost."""
    clamped_calls: Mapped[int] = mapped_column(server_default="0")
    truncated_calls: Mapped[int] = mapped_column(server_default="0")
    simulated_calls: Mapped[int] = mapped_column(server_default="0")
    price_snapshot: Mapped[str | None]
    """Of the last model call that was priced."""
    state: Mapped[str] = mapped_column(server_default="open")
    stopped_by: Mapped[str | None]
    stopped_scope: Mapped[str | None]
    stopped_worst_pusd: Mapped[int | None]
    stopped_at: Mapped[datetime | None]
    waiting_until: Mapped[datetime | None]
    """A call waits for money that is outstanding: until then the Job should start no new Trial."""
    warned_at: Mapped[datetime | None]
    """When 80 % of the cap was spent."""


class SpendLimitRow(Base):
    """What a project may spend in a UTC day, and the cap of its Jobs that name none; NULL: no limit."""

    __tablename__ = "spend_limit"
    __table_args__ = (CheckConstraint("day_cap_pusd >= 0 AND job_cap_pusd >= 0", name="signs"),)

    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"), primary_key=True)
    day_cap_pusd: Mapped[int | None]
    job_cap_pusd: Mapped[int | None]
    changed_at: Mapped[datetime]
    changed_by: Mapped[str]
    """The key or session that set it; `system`: whoever owns the server's machine."""


class LedgerCallRow(Base):
    """One reservation: a sandbox lease (or, with the gateway, one model call attempt), from reserve to its end."""

    __tablename__ = "ledger_call"
    __table_args__ = (
        CheckConstraint(
            "(state IN ('settled', 'released', 'written_off')) = (cost_pusd IS NOT NULL)", name="cost_at_end"
        ),
        CheckConstraint("cost_pusd IS NULL OR (cost_pusd >= 0 AND cost_pusd <= worst_pusd)", name="cost_within"),
        CheckConstraint("worst_pusd >= 0 AND overrun_pusd >= 0", name="signs"),
        CheckConstraint("kind IN ('model', 'sandbox')", name="kind"),
        CheckConstraint("purpose IN ('agent', 'verifier', 'team', 'system')", name="purpose"),
        CheckConstraint("state IN ('reserved', 'sent', 'settled', 'released', 'written_off', 'refused')", name="state"),
        Index("ix_ledger_call_open_expiry", "expires_at", postgresql_where=text("state IN ('reserved', 'sent')")),
        Index(
            "ix_ledger_call_open_budget",
            "budget_ids",
            postgresql_using="gin",
            postgresql_where=text("state IN ('reserved', 'sent')"),
        ),
        Index(
            "ix_ledger_call_model_budget",
            "budget_ids",
            postgresql_using="gin",
            postgresql_where=text("kind = 'model'"),
        ),
        Index("ix_ledger_call_open_worker", "worker_id", postgresql_where=text("state IN ('reserved', 'sent')")),
        Index("ix_ledger_call_subject", "subject", "created_at"),
        Index("ix_ledger_call_project_day", "project_id", "day"),
        Index("ix_ledger_call_project_ended", "project_id", "ended_at", "id", postgresql_where=text("cost_pusd > 0")),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    purpose: Mapped[str]
    budget_ids: Mapped[list[str]]
    project_id: Mapped[str]
    day: Mapped[date]
    """The UTC day to which it is charged: that of its reservation, whenever it ends."""
    subject: Mapped[str]
    sku: Mapped[str]
    """What was bought: the runner of a sandbox lease, the model of a call."""
    simulated: Mapped[bool] = mapped_column(server_default=text("false"))
    """A scripted provider's: it counts against caps, and against no real day."""
    worker_id: Mapped[str]
    rate_pusd: Mapped[int | None]
    """pUSD a second, of a sandbox lease."""
    worst_pusd: Mapped[int]
    cost_pusd: Mapped[int | None]
    overrun_pusd: Mapped[int] = mapped_column(server_default="0")
    priced: Mapped[bool] = mapped_column(server_default=text("true"))
    key_id: Mapped[str | None]
    """The virtual key of a model call; this and what follows up to `http_status` is empty for a sandbox lease."""
    provider: Mapped[str | None]
    dialect: Mapped[str | None]
    streamed: Mapped[bool | None]
    model_asked: Mapped[str | None]
    model_reported: Mapped[str | None]
    input_bound: Mapped[int | None]
    """Upper bound of the input tokens."""
    output_limit: Mapped[int | None]
    """The output tokens that were allowed for each candidate."""
    candidates: Mapped[int | None]
    clamped: Mapped[bool] = mapped_column(server_default=text("false"))
    """The output limit is below what was asked, because so much of the cap is gone."""
    truncated: Mapped[bool] = mapped_column(server_default=text("false"))
    """The model stopped at the limit."""
    price_snapshot: Mapped[str | None]
    rates: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    price_context: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    usage: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    usage_late: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    """What a provider said after somebody else had ended the call: it is kept and charges nothing."""
    code: Mapped[str | None]
    client_gone: Mapped[bool] = mapped_column(server_default=text("false"))
    upstream_request_id: Mapped[str | None]
    first_byte_at: Mapped[datetime | None]
    http_status: Mapped[int | None]
    state: Mapped[str]
    outcome: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))
    sent_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    expires_at: Mapped[datetime]
