"""Jobs that retry what an ended one left without a reward."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds what a retry runs and what it goes back to; the event of an expansion counts what there is."""
    op.add_column("job", sa.Column("retry_of", sa.Text(), nullable=True))
    op.add_column("job", sa.Column("slots", postgresql.JSONB(none_as_null=True), nullable=True))
    op.execute(
        """
        CREATE OR REPLACE FUNCTION tollbar_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          INSERT INTO job_event (tx, job_id, project_id, at, type, status, reason, message)
          SELECT pg_current_xact_id()::text::bigint, NEW.id, NEW.project_id, clock_timestamp(), told.type, NEW.state,
                 told.reason, told.message
            FROM (VALUES
              (NEW.state IS DISTINCT FROM OLD.state,
               CASE NEW.state WHEN 'running' THEN 'job.started' WHEN 'stopping' THEN 'job.stopping'
                    ELSE 'job.ended' END,
               NEW.error_code, NEW.error_message),
              (NEW.expanded AND NOT OLD.expanded, 'job.expanded', NULL,
               coalesce(jsonb_array_length(NEW.slots), NEW.total_tasks * NEW.attempts)::text)
            ) AS told(happened, type, reason, message)
           WHERE told.happened;
          RETURN NULL;
        END $$
        """
    )
