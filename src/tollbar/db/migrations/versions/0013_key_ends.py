"""A virtual key ends with the try that it was issued for, in the same transaction."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the trigger. It runs at the commit: a key is locked after the budgets, as by whoever reserves."""
    op.execute(
        """
        CREATE FUNCTION tollbar_key_ends() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          UPDATE virtual_key SET revoked_at = clock_timestamp()
           WHERE subject = 'trial:' || OLD.id || ':' || OLD.try_no AND revoked_at IS NULL;
          RETURN NULL;
        END $$
        """
    )
    op.execute(
        """
        CREATE CONSTRAINT TRIGGER trial_key_ends AFTER UPDATE ON trial
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (OLD.state IN ('starting', 'running') AND NEW.state NOT IN ('starting', 'running'))
        EXECUTE FUNCTION tollbar_key_ends()
        """
    )
