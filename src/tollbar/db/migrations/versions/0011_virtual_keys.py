"""Keys with which the agents of Trials and runs call their models."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_PURPOSES = "purpose IN ('agent', 'verifier', 'team', 'system')"
_NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    """Makes the table of virtual keys."""
    op.create_table(
        "virtual_key",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("budget_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("routes", postgresql.JSONB(), nullable=False),
        sa.Column("egress", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("facts", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=_NOW, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(_PURPOSES, name=op.f("ck_virtual_key_purpose")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_virtual_key")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_virtual_key_secret_sha256")),
    )
    op.create_index(
        "ix_virtual_key_subject",
        "virtual_key",
        ["subject"],
        unique=False,
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
