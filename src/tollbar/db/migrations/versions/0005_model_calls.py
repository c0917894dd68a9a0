"""What a model call's row holds beside its money."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_OF_A_CALL = (
    ("key_id", sa.Text()),
    ("provider", sa.Text()),
    ("dialect", sa.Text()),
    ("streamed", sa.Boolean()),
    ("model_asked", sa.Text()),
    ("model_reported", sa.Text()),
    ("input_bound", sa.BigInteger()),
    ("output_limit", sa.BigInteger()),
    ("candidates", sa.BigInteger()),
    ("price_snapshot", sa.Text()),
    ("rates", postgresql.JSONB()),
    ("price_context", postgresql.JSONB()),
    ("usage", postgresql.JSONB()),
    ("usage_late", postgresql.JSONB()),
    ("code", sa.Text()),
    ("upstream_request_id", sa.Text()),
    ("first_byte_at", sa.DateTime(timezone=True)),
    ("http_status", sa.BigInteger()),
)


def upgrade() -> None:
    """Adds columns that are empty for sandbox leases."""
    op.add_column("budget", sa.Column("waiting_until", sa.DateTime(timezone=True), nullable=True))
    for name, kind in _OF_A_CALL:
        op.add_column("ledger_call", sa.Column(name, kind, nullable=True))
    for name in ("clamped", "truncated", "client_gone"):
        op.add_column("ledger_call", sa.Column(name, sa.Boolean(), server_default=sa.text("false"), nullable=False))
