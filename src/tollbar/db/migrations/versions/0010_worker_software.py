"""What each worker's machine has of the software of agents."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the list; a worker of an older version has said nothing."""
    op.add_column(
        "worker",
        sa.Column("software", postgresql.ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'")),
    )
