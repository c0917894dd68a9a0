"""Limits of a project, shares of Trials, warnings, and what each call was spent on."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the tables and columns; calls that were written before get their project and runner from their Jobs."""
    op.create_table(
        "spend_limit",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("day_cap_pusd", sa.BigInteger(), nullable=True),
        sa.Column("job_cap_pusd", sa.BigInteger(), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.CheckConstraint("day_cap_pusd >= 0 AND job_cap_pusd >= 0", name=op.f("ck_spend_limit_signs")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_spend_limit_project_id")),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_spend_limit")),
    )
    op.add_column("budget", sa.Column("warned_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("job", sa.Column("trial_cap_pusd", sa.BigInteger(), nullable=True))
    op.add_column("ledger_call", sa.Column("project_id", sa.Text(), nullable=True))
    op.add_column("ledger_call", sa.Column("day", sa.Date(), nullable=True))
    op.add_column("ledger_call", sa.Column("sku", sa.Text(), nullable=True))
    op.add_column("ledger_call", sa.Column("simulated", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.execute(
        """
        UPDATE ledger_call SET project_id = job.project_id, sku = job.runner ->> 'name',
               day = (ledger_call.created_at AT TIME ZONE 'UTC')::date
          FROM trial JOIN job ON job.id = trial.job_id
         WHERE trial.id = split_part(ledger_call.subject, ':', 2)
        """
    )
    # A call whose Trial is gone belongs to no project any more, and shows in nobody's account.
    op.execute(
        """
        UPDATE ledger_call SET project_id = '', sku = '', day = (created_at AT TIME ZONE 'UTC')::date
         WHERE project_id IS NULL
        """
    )
    op.alter_column("ledger_call", "project_id", nullable=False)
    op.alter_column("ledger_call", "day", nullable=False)
    op.alter_column("ledger_call", "sku", nullable=False)
    op.create_index("ix_ledger_call_project_day", "ledger_call", ["project_id", "day"], unique=False)
    op.create_index(
        "ix_ledger_call_project_ended",
        "ledger_call",
        ["project_id", "ended_at", "id"],
        unique=False,
        postgresql_where=sa.text("cost_pusd > 0"),
    )
