"""Tables of Jobs: what was asked for (frozen), one row per task, one per Trial, one per seal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Double, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base

_LIVE_TRIAL = "state IN ('pending', 'admitted', 'starting', 'running', 'verifying', 'stopping')"


class JobRow(Base):
    """An Agent Job with its frozen snapshot: dataset, profile, runner, limits."""

    __tablename__ = "job"
    __table_args__ = (
        UniqueConstraint("project_id", "request_id"),
        Index("ix_job_project_newest", "project_id", "id"),
        Index("ix_job_live", "state", postgresql_where=text("state IN ('pending', 'running', 'stopping')")),
        CheckConstraint(
            "state IN ('pending', 'running', 'stopping', 'completed', 'failed', 'cancelled')", name="state"
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    project_id: Mapped[str]
    type: Mapped[str]
    name: Mapped[str]
    state: Mapped[str]
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    error_scope: Mapped[str | None]
    request_id: Mapped[str | None]
    request_sha256: Mapped[str]
    request: Mapped[dict[str, Any]]
    tag: Mapped[str | None]
    dataset_ref: Mapped[dict[str, Any]]
    selection: Mapped[dict[str, Any]]
    profile: Mapped[dict[str, Any]]
    agent: Mapped[str]
    model: Mapped[str | None]
    params: Mapped[dict[str, Any]]
    runner: Mapped[dict[str, Any]]
    """The whole frozen runner revision, prices and limits included."""
    attempts: Mapped[int]
    total_tasks: Mapped[int]
    threshold: Mapped[float] = mapped_column(Double())
    seed: Mapped[int | None]
    rank_priority: Mapped[int]
    max_running: Mapped[int]
    timeout_s: Mapped[float | None] = mapped_column(Double())
    allow_base_substitution: Mapped[bool]
    sandbox_form: Mapped[str] = mapped_column(server_default="auto")
    """What the Job asks of the form of its sandboxes: `auto`, `one_shot` or `held`."""
    keep_failed_s: Mapped[float] = mapped_column(Double(), server_default="0")
    """How long the sandbox of a Trial that did not pass is kept; 0: it goes at once."""
    retry_of: Mapped[str | None]
    """The Job whose unscored slots this one runs again."""
    slots: Mapped[list[Any] | None] = mapped_column(JSONB(none_as_null=True))
    """Of a retry: the [task, attempt] that it runs; None: every attempt of every task."""
    budget_id: Mapped[str]
    trial_cap_pusd: Mapped[int | None]
    """What all tries of one Trial may spend together, where the submission says so."""
    prices: Mapped[str | None]
    """The version of own prices that its model calls keep from its start on; None: it calls no model, or is older."""
    expanded: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    @property
    def n_slots(self) -> int:
        """How many Trials the Job has, or will have."""
        return self.total_tasks * self.attempts if self.slots is None else len(self.slots)


class JobTaskRow(Base):
    """One task of a Job with the sums of its ended Trials, so that a status never reads Trials."""

    __tablename__ = "job_task"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    task_id: Mapped[str]
    digest: Mapped[str]
    split: Mapped[str | None]
    files_sha256: Mapped[str]
    threshold: Mapped[float] = mapped_column(Double())
    weights: Mapped[dict[str, Any]]
    n_succeeded: Mapped[int] = mapped_column(server_default="0")
    n_failed: Mapped[int] = mapped_column(server_default="0")
    n_cancelled: Mapped[int] = mapped_column(server_default="0")
    n_passed: Mapped[int] = mapped_column(server_default="0")
    reward_sum: Mapped[float] = mapped_column(Double(), server_default="0")


class TrialRow(Base):
    """One slot (task, attempt) and what came of it. Its result is written once."""

    __tablename__ = "trial"
    __table_args__ = (
        UniqueConstraint("job_id", "seq"),
        UniqueConstraint("job_id", "task_seq", "attempt"),
        Index("ix_trial_live", "state", "job_id", "seq", postgresql_where=text(_LIVE_TRIAL)),
        Index("ix_trial_project_newest", "project_id", "id"),
        Index("ix_trial_failed", "job_id", "reason", postgresql_where=text("state = 'failed'")),
        Index("ix_trial_kept", "project_id", "kept_until", postgresql_where=text("kept_until IS NOT NULL")),
        CheckConstraint(
            "state IN ('pending', 'admitted', 'starting', 'running', 'verifying', 'stopping', 'succeeded', 'failed',"
            " 'cancelled')",
            name="state",
        ),
        CheckConstraint("(state = 'succeeded') = (reward IS NOT NULL)", name="reward_when_succeeded"),
        CheckConstraint("(state IN ('failed', 'cancelled')) = (reason IS NOT NULL)", name="reason_without_reward"),
        CheckConstraint(
            "(state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)", name="finished_at_end"
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    project_id: Mapped[str]
    seq: Mapped[int]
    task_seq: Mapped[int]
    task_name: Mapped[str]
    task_id: Mapped[str]
    task_digest: Mapped[str]
    split: Mapped[str | None]
    attempt: Mapped[int]
    try_no: Mapped[int] = mapped_column(server_default="1")
    losses: Mapped[int] = mapped_column(server_default="0")
    state: Mapped[str]
    owner: Mapped[str | None]
    reward: Mapped[float | None] = mapped_column(Double())
    passed: Mapped[bool | None]
    reason: Mapped[str | None]
    reason_detail: Mapped[str | None]
    message: Mapped[str | None]
    agent_outcome: Mapped[str | None]
    structured: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    verifier: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    timings: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    substitutions: Mapped[list[Any]] = mapped_column(server_default=text("'[]'"))
    sandbox_forms: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    flags: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    refusals: Mapped[list[Any]] = mapped_column(server_default=text("'[]'"))
    sealed_sha256: Mapped[str | None]
    steps: Mapped[dict[str, Any] | None] = mapped_column(JSONB())
    """Of a task with steps: how many there are, the strategy, and each that ran with what came of it."""
    agent_report: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    """What the agent said of itself: its version, and what it counted; evidence, never money."""
    kept_until: Mapped[datetime | None]
    kept_on: Mapped[str | None]
    """The machine on which the sandbox is kept."""
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class SealRow(Base):
    """What a Trial's agent left, sealed: grading, now or later, reads nothing else."""

    __tablename__ = "seal"

    trial_id: Mapped[str] = mapped_column(ForeignKey("trial.id"), primary_key=True)
    try_no: Mapped[int] = mapped_column(BigInteger())
    manifest_blob: Mapped[str]
    manifest_sha256: Mapped[str]
    facts: Mapped[dict[str, Any]]
    """How the agent phase went: outcome, exit code, timings, substitutions, form."""
    created_at: Mapped[datetime]


class DatasetCheckRow(Base):
    """A check of a dataset version: the two Jobs that say what becomes of it."""

    __tablename__ = "dataset_check"
    __table_args__ = (
        UniqueConstraint("oracle_job_id"),
        Index("ix_dataset_check_version", "project_id", "name", "version", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str]
    name: Mapped[str]
    version: Mapped[str]
    oracle_job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    nop_job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    created_at: Mapped[datetime]
