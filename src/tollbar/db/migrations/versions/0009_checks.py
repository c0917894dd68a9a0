"""Checks of dataset versions."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table of checks."""
    op.create_table(
        "dataset_check",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("oracle_job_id", sa.Text(), nullable=False),
        sa.Column("nop_job_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["nop_job_id"], ["job.id"], name=op.f("fk_dataset_check_nop_job_id")),
        sa.ForeignKeyConstraint(["oracle_job_id"], ["job.id"], name=op.f("fk_dataset_check_oracle_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_check")),
        sa.UniqueConstraint("oracle_job_id", name=op.f("uq_dataset_check_oracle_job_id")),
    )
    columns = ["project_id", "name", "version", "id"]
    op.create_index("ix_dataset_check_version", "dataset_check", columns, unique=False)
