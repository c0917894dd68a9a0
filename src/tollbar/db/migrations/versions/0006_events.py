"""What happened to Jobs and Trials, written by the statements that move them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TRIGGERS = (
    """
    CREATE FUNCTION tollbar_trial_event() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE kind text; least_reason text; most_reason text;
    BEGIN
      IF NEW.state IS NOT DISTINCT FROM OLD.state THEN
        kind := 'trial.sealed';
      ELSE
        kind := CASE NEW.state
          WHEN 'starting' THEN 'trial.started' WHEN 'running' THEN 'trial.agent_started'
          WHEN 'verifying' THEN 'trial.verifier_started' WHEN 'stopping' THEN 'trial.stopping'
          ELSE 'trial.ended' END;
      END IF;
      INSERT INTO job_event (tx, job_id, trial_id, project_id, at, type, status, reason, detail, message, try_no)
      VALUES (pg_current_xact_id()::text::bigint, NEW.job_id, NEW.id, NEW.project_id, clock_timestamp(), kind,
              NEW.state, NEW.reason, NEW.reason_detail,
              CASE WHEN kind = 'trial.sealed' THEN NEW.agent_outcome
                   WHEN kind = 'trial.ended' AND NEW.reward IS NOT NULL THEN NEW.reward::text
                   WHEN kind = 'trial.ended' THEN NEW.message END, NEW.try_no);
      IF kind = 'trial.ended' AND NEW.state = 'failed' THEN
        SELECT min(reason), max(reason) INTO least_reason, most_reason
          FROM trial WHERE job_id = NEW.job_id AND state = 'failed';
        IF least_reason = most_reason
           AND NOT EXISTS (SELECT FROM job_task WHERE job_id = NEW.job_id AND n_succeeded > 0)
           AND (SELECT count(*) FROM (SELECT FROM trial WHERE job_id = NEW.job_id AND state = 'failed' LIMIT 3) f)
               >= (SELECT least(3, total_tasks * attempts) FROM job WHERE id = NEW.job_id)
           AND NOT EXISTS (SELECT FROM job_event WHERE job_id = NEW.job_id AND type = 'job.warned') THEN
          INSERT INTO job_event (tx, job_id, project_id, at, type, reason)
          VALUES (pg_current_xact_id()::text::bigint, NEW.job_id, NEW.project_id, clock_timestamp(), 'job.warned',
                  NEW.reason);
        END IF;
      END IF;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER trial_event AFTER UPDATE OF state, sealed_sha256 ON trial FOR EACH ROW
    WHEN ((NEW.state IS DISTINCT FROM OLD.state AND NEW.state NOT IN ('pending', 'admitted'))
          OR (NEW.sealed_sha256 IS NOT NULL AND NEW.sealed_sha256 IS DISTINCT FROM OLD.sealed_sha256))
    EXECUTE FUNCTION tollbar_trial_event()
    """,
    """
    CREATE FUNCTION tollbar_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO job_event (tx, job_id, project_id, at, type, status, reason, message)
      SELECT pg_current_xact_id()::text::bigint, NEW.id, NEW.project_id, clock_timestamp(), told.type, NEW.state,
             told.reason, told.message
        FROM (VALUES
          (NEW.state IS DISTINCT FROM OLD.state,
           CASE NEW.state WHEN 'running' THEN 'job.started' WHEN 'stopping' THEN 'job.stopping' ELSE 'job.ended' END,
           NEW.error_code, NEW.error_message),
          (NEW.expanded AND NOT OLD.expanded, 'job.expanded', NULL, (NEW.total_tasks * NEW.attempts)::text)
        ) AS told(happened, type, reason, message)
       WHERE told.happened;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER job_event AFTER UPDATE OF state, expanded ON job FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state OR (NEW.expanded AND NOT OLD.expanded))
    EXECUTE FUNCTION tollbar_job_event()
    """,
)


def upgrade() -> None:
    """Adds the table, its triggers, and the index by which the one reason of many failures is found."""
    op.create_table(
        "job_event",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("tx", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("try_no", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_event_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_event")),
    )
    op.create_index("ix_job_event_job_order", "job_event", ["job_id", "tx", "id"], unique=False)
    op.create_index("ix_job_event_trial_order", "job_event", ["trial_id", "tx", "id"], unique=False)
    op.create_index(
        "ix_trial_failed", "trial", ["job_id", "reason"], unique=False, postgresql_where=sa.text("state = 'failed'")
    )
    for statement in _TRIGGERS:
        op.execute(statement)
