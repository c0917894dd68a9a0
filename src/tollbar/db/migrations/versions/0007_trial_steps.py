"""Steps of Trials, the form of sandboxes that a Job asks for, and sandboxes that are kept."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds columns; rows that stand have no steps, were not kept, and took the form that was chosen for them."""
    op.add_column("job", sa.Column("sandbox_form", sa.Text(), server_default="auto", nullable=False))
    op.add_column("job", sa.Column("keep_failed_s", sa.Double(), server_default="0", nullable=False))
    op.add_column("trial", sa.Column("steps", postgresql.JSONB(), nullable=True))
    op.add_column("trial", sa.Column("kept_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("trial", sa.Column("kept_on", sa.Text(), nullable=True))
    op.create_index(
        "ix_trial_kept",
        "trial",
        ["project_id", "kept_until"],
        unique=False,
        postgresql_where=sa.text("kept_until IS NOT NULL"),
    )
