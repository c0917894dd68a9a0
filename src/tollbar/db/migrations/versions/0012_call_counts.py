"""What a budget's model calls came to, counted where they end; what an agent said of itself, on its Trial."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_COUNTS = ("model_calls", "unpriced_calls", "worst_case_calls", "clamped_calls", "truncated_calls", "simulated_calls")


def upgrade() -> None:
    """Adds the counts, the verifier's part of the model spend, and the Trial's report."""
    for name in ("verifier_model_pusd", *_COUNTS):
        op.add_column("budget", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("budget", sa.Column("price_snapshot", sa.Text(), nullable=True))
    op.add_column("trial", sa.Column("agent_report", postgresql.JSONB(), nullable=True))
    op.create_index(
        "ix_ledger_call_model_budget",
        "ledger_call",
        ["budget_ids"],
        postgresql_using="gin",
        postgresql_where=sa.text("kind = 'model'"),
    )
