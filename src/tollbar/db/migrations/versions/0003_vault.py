"""Secrets, encrypted."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables of the vault."""
    op.create_table(
        "vault_check",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_vault_check_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vault_check")),
    )
    op.create_table(
        "vault_secret",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("hosts", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(revoked_at IS NULL) = (sealed IS NOT NULL)", name=op.f("ck_vault_secret_sealed")),
        sa.CheckConstraint("version > 0", name=op.f("ck_vault_secret_version")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"], name=op.f("fk_vault_secret_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vault_secret")),
        sa.UniqueConstraint(
            "workspace_id", "owner", "name", "version", name=op.f("uq_vault_secret_workspace_id_owner_name_version")
        ),
    )
