"""First light: access, profiles, datasets, runners, Jobs, Trials, money, artifacts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes every table of the first version."""
    _artifact()
    _budget()
    _dataset_namespace()
    _job()
    _ledger_call()
    _profile()
    _runner_revision()
    _worker()
    _workspace()
    _dataset()
    _job_task()
    _profile_version()
    _project()
    _trial()
    _api_key()
    _console_session()
    _dataset_version()
    _seal()
    _sign_in_link()
    _dataset_task()


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


def _dataset_namespace() -> None:
    op.create_table(
        "dataset_namespace",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", name=op.f("pk_dataset_namespace")),
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


def _profile() -> None:
    op.create_table(
        "profile",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("default_version", sa.Text(), nullable=True),
        sa.Column("is_project_default", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_profile")),
    )
    op.create_index(
        "uq_profile_project_default", "profile", ["project_id"], unique=True, postgresql_where="is_project_default"
    )


def _runner_revision() -> None:
    op.create_table(
        "runner_revision",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("source_ref", sa.Text(), nullable=True),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("description", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("visibility IN ('public', 'private')", name=op.f("ck_runner_revision_visibility")),
        sa.PrimaryKeyConstraint("namespace", "name", "revision", name=op.f("pk_runner_revision")),
        sa.UniqueConstraint(
            "namespace", "name", "source_ref", name=op.f("uq_runner_revision_namespace_name_source_ref")
        ),
    )


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


def _workspace() -> None:
    op.create_table(
        "workspace",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspace")),
    )


def _dataset() -> None:
    op.create_table(
        "dataset",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["namespace"], ["dataset_namespace.namespace"], name=op.f("fk_dataset_namespace")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_dataset")),
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


def _profile_version() -> None:
    op.create_table(
        "profile_version",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id", "name"],
            ["profile.project_id", "profile.name"],
            name=op.f("fk_profile_version_project_id_name"),
        ),
        sa.PrimaryKeyConstraint("project_id", "name", "version", name=op.f("pk_profile_version")),
    )


def _project() -> None:
    op.create_table(
        "project",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"], name=op.f("fk_project_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_project_workspace_id_name")),
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
    op.create_index(
        "ix_trial_live",
        "trial",
        ["state", "job_id", "seq"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'admitted', 'starting', 'running', 'verifying', 'stopping')"),
    )
    op.create_index("ix_trial_project_newest", "trial", ["project_id", "id"], unique=False)


def _api_key() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("preset", sa.Text(), nullable=False),
        sa.Column("capabilities", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('project')", name=op.f("ck_api_key_kind")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_api_key_project_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"], name=op.f("fk_api_key_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_api_key_secret_sha256")),
    )
    op.create_index("ix_api_key_project_newest", "api_key", ["project_id", "id"], unique=False)


def _console_session() -> None:
    op.create_table(
        "console_session",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cookie_sha256", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_console_session_project_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"], name=op.f("fk_console_session_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_session")),
        sa.UniqueConstraint("cookie_sha256", name=op.f("uq_console_session_cookie_sha256")),
    )


def _dataset_version() -> None:
    op.create_table(
        "dataset_version",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=False),
        sa.Column("manifest", postgresql.JSONB(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("authors", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("splits", postgresql.JSONB(), nullable=False),
        sa.Column("configs", postgresql.JSONB(), nullable=False),
        sa.Column("default_config", sa.Text(), nullable=True),
        sa.Column("threshold", sa.Text(), nullable=False),
        sa.Column("weights", postgresql.JSONB(), nullable=False),
        sa.Column("default_profile", sa.Text(), nullable=True),
        sa.Column("task_count", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("visibility IN ('public', 'private')", name=op.f("ck_dataset_version_visibility")),
        sa.ForeignKeyConstraint(["name"], ["dataset.name"], name=op.f("fk_dataset_version_name")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_version")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_dataset_version_name_version")),
        sa.UniqueConstraint("seq", name=op.f("uq_dataset_version_seq")),
    )
    op.create_index("ix_dataset_version_newest", "dataset_version", ["name", "seq"], unique=False)


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


def _sign_in_link() -> None:
    op.create_table(
        "sign_in_link",
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_sign_in_link_project_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"], name=op.f("fk_sign_in_link_workspace_id")),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_sign_in_link")),
    )


def _dataset_task() -> None:
    op.create_table(
        "dataset_task",
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=True),
        sa.Column("files_sha256", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Text(), nullable=True),
        sa.Column("weights", postgresql.JSONB(), nullable=False),
        sa.Column("needs", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["dataset_version.id"], name=op.f("fk_dataset_task_version_id")),
        sa.PrimaryKeyConstraint("version_id", "name", name=op.f("pk_dataset_task")),
    )
