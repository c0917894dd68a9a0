"""Access, profiles, datasets and runners."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables in the order of their references."""
    _dataset_namespace()
    _profile()
    _runner_revision()
    _workspace()
    _dataset()
    _profile_version()
    _project()
    _api_key()
    _console_session()
    _dataset_version()
    _sign_in_link()
    _dataset_task()


def _dataset_namespace() -> None:
    op.create_table(
        "dataset_namespace",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", name=op.f("pk_dataset_namespace")),
    )


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
