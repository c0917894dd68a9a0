"""Jobs, Trials, money, artifacts and workers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables in the order of their references."""
    _artifact()
    _budget()
    _job()
    _job_indexes()
    _ledger_call()
    _ledger_call_indexes()
    _worker()
    _job_task()
    _trial()
    _trial_indexes()
    _seal()


def _artifact() -> None:
    op.create_table(
        "artifact",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("try_no", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("upload_state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(upload_state = 'uploaded') <= (sha256 IS NOT NULL AND size IS NOT NULL)", name=op.f("ck_artifact_content")
        ),
        sa.CheckConstraint("kind IN ('output', 'log', 'verifier')", name=op.f("ck_artifact_kind")),
        sa.CheckConstraint("state IN ('available', 'missing', 'expired')", name=op.f("ck_artifact_state")),
        sa.CheckConstraint(
            "upload_state IN ('pending', 'uploaded', 'failed', 'deleted')", name=op.f("ck_artifact_upload_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact")),
        sa.UniqueConstraint("trial_id", "name", name=op.f("uq_artifact_trial_id_name")),
    )


def _budget() -> None:
    op.create_table(
        "budget",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("level", sa.SmallInteger(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("cap_pusd", sa.BigInteger(), nullable=True),
        sa.Column("settled_pusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reserved_pusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("overrun_pusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("model_pusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("verifier_pusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("stopped_by", sa.Text(), nullable=True),
        sa.Column("stopped_scope", sa.Text(), nullable=True),
        sa.Column("stopped_worst_pusd", sa.BigInteger(), nullable=True),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('open', 'exceeded', 'unmetered', 'closed')", name=op.f("ck_budget_state")),
        sa.CheckConstraint(
            "cap_pusd >= 0 AND settled_pusd >= 0 AND reserved_pusd >= 0 AND overrun_pusd >= 0",
            name=op.f("ck_budget_signs"),
        ),
        sa.CheckConstraint(
            "cap_pusd IS NULL OR settled_pusd + reserved_pusd <= cap_pusd", name=op.f("ck_budget_cap_holds")
        ),
        sa.CheckConstraint("model_pusd + verifier_pusd <= settled_pusd + overrun_pusd", name=op.f("ck_budget_parts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budget")),
        sa.UniqueConstraint("level", "subject", name=op.f("uq_budget_level_subject")),
    )


def _job() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_scope", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("request_sha256", sa.Text(), nullable=False),
        sa.Column("request", postgresql.JSONB(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=True),
        sa.Column("dataset_ref", postgresql.JSONB(), nullable=False),
        sa.Column("selection", postgresql.JSONB(), nullable=False),
        sa.Column("profile", postgresql.JSONB(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("params", postgresql.JSONB(), nullable=False),
        sa.Column("runner", postgresql.JSONB(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("total_tasks", sa.BigInteger(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("rank_priority", sa.BigInteger(), nullable=False),
        sa.Column("max_running", sa.BigInteger(), nullable=False),
        sa.Column("timeout_s", sa.Double(), nullable=True),
        sa.Column("allow_base_substitution", sa.Boolean(), nullable=False),
        sa.Column("budget_id", sa.Text(), nullable=False),
        sa.Column("expanded", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'stopping', 'completed', 'failed', 'cancelled')", name=op.f("ck_job_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("project_id", "request_id", name=op.f("uq_job_project_id_request_id")),
    )


def _job_indexes() -> None:
    op.create_index(
        "ix_job_live",
        "job",
        ["state"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'running', 'stopping')"),
    )
    op.create_index("ix_job_project_newest", "job", ["project_id", "id"], unique=False)


def _ledger_call() -> None:
    op.create_table(
        "ledger_call",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("budget_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("rate_pusd", sa.BigInteger(), nullable=True),
        sa.Column("worst_pusd", sa.BigInteger(), nullable=False),
        sa.Column("cost_pusd", sa.BigInteger(), nullable=True),
        sa.Column("overrun_pusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("priced", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(state IN ('settled', 'released', 'written_off')) = (cost_pusd IS NOT NULL)",
            name=op.f("ck_ledger_call_cost_at_end"),
        ),
        sa.CheckConstraint("kind IN ('model', 'sandbox')", name=op.f("ck_ledger_call_kind")),
        sa.CheckConstraint("purpose IN ('agent', 'verifier', 'team', 'system')", name=op.f("ck_ledger_call_purpose")),
        sa.CheckConstraint(
            "state IN ('reserved', 'sent', 'settled', 'released', 'written_off', 'refused')",
            name=op.f("ck_ledger_call_state"),
        ),
        sa.CheckConstraint(
            "cost_pusd IS NULL OR (cost_pusd >= 0 AND cost_pusd <= worst_pusd)", name=op.f("ck_ledger_call_cost_within")
        ),
        sa.CheckConstraint("worst_pusd >= 0 AND overrun_pusd >= 0", name=op.f("ck_ledger_call_signs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_call")),
    )


def _ledger_call_indexes() -> None:
    op.create_index(
        "ix_ledger_call_open_budget",
        "ledger_call",
        ["budget_ids"],
        unique=False,
        postgresql_using="gin",
        postgresql_where=sa.text("state IN ('reserved', 'sent')"),
    )
    op.create_index(
        "ix_ledger_call_open_expiry",
        "ledger_call",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('reserved', 'sent')"),
    )
    op.create_index(
        "ix_ledger_call_open_worker",
        "ledger_call",
        ["worker_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('reserved', 'sent')"),
    )
    op.create_index("ix_ledger_call_subject", "ledger_call", ["subject", "created_at"], unique=False)


def _worker() -> None:
    op.create_table(
        "worker",
        sa.Column("executor_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("engine_version", sa.Text(), nullable=False),
        sa.Column("backends", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("slots", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("beat_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.CheckConstraint("state IN ('live', 'leaving', 'left', 'dead', 'gone')", name=op.f("ck_worker_state")),
        sa.PrimaryKeyConstraint("executor_id", name=op.f("pk_worker")),
    )


def _job_task() -> None:
    op.create_table(
        "job_task",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=True),
        sa.Column("files_sha256", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("weights", postgresql.JSONB(), nullable=False),
        sa.Column("n_succeeded", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("n_failed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("n_cancelled", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("n_passed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reward_sum", sa.Double(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_task_job_id")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_job_task")),
    )


def _trial() -> None:
    op.create_table(
        "trial",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("task_seq", sa.BigInteger(), nullable=False),
        sa.Column("task_name", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("task_digest", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("try_no", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("losses", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("passed", sa.Boolean(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("reason_detail", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("agent_outcome", sa.Text(), nullable=True),
        sa.Column("structured", postgresql.JSONB(), nullable=True),
        sa.Column("verifier", postgresql.JSONB(), nullable=True),
        sa.Column("timings", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("substitutions", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("sandbox_forms", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("flags", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("refusals", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("sealed_sha256", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'succeeded') = (reward IS NOT NULL)", name=op.f("ck_trial_reward_when_succeeded")),
        sa.CheckConstraint(
            "(state IN ('failed', 'cancelled')) = (reason IS NOT NULL)", name=op.f("ck_trial_reason_without_reward")
        ),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("ck_trial_finished_at_end"),
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'admitted', 'starting', 'running', 'verifying', 'stopping', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_trial_state"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_trial_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
        sa.UniqueConstraint("job_id", "seq", name=op.f("uq_trial_job_id_seq")),
        sa.UniqueConstraint("job_id", "task_seq", "attempt", name=op.f("uq_trial_job_id_task_seq_attempt")),
    )


def _trial_indexes() -> None:
    op.create_index(
        "ix_trial_live",
        "trial",
        ["state", "job_id", "seq"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'admitted', 'starting', 'running', 'verifying', 'stopping')"),
    )
    op.create_index("ix_trial_project_newest", "trial", ["project_id", "id"], unique=False)


def _seal() -> None:
    op.create_table(
        "seal",
        sa.Column("trial_id", sa.Text(), nullable=False),
        sa.Column("try_no", sa.BigInteger(), nullable=False),
        sa.Column("manifest_blob", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=False),
        sa.Column("facts", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["trial_id"], ["trial.id"], name=op.f("fk_seal_trial_id")),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_seal")),
    )
