"""Versions of an installation's own prices, and which one a Job began with."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the tables' versions; a Job from before has none and is priced as every new one."""
    op.create_table(
        "price_table",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("rows", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at", sa.TIMESTAMP(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("source", name=op.f("pk_price_table")),
    )
    op.add_column("job", sa.Column("prices", sa.Text(), nullable=True))
