"""The ledger of an installation from before projects had limits: each charge finds its project, its day, its runner."""

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import make_url

from tollbar.db import migrate

OLD = """
INSERT INTO job (id, workspace_id, project_id, type, name, state, request_sha256, request, dataset_ref, selection,
                 profile, agent, params, runner, attempts, total_tasks, threshold, rank_priority, max_running,
                 allow_base_substitution, budget_id, created_at)
VALUES ('job_1', 'ws_1', 'prj_1', 'agent', 'n', 'completed', 'x', '{}', '{}', '{}', '{}', 'oracle', '{}',
        '{"name": "envhub/metered"}', 1, 1, 1, 1000, 64, true, 'bud_1', now());
INSERT INTO trial (id, job_id, project_id, seq, task_seq, task_name, task_id, task_digest, attempt, state, created_at)
VALUES ('trial_1', 'job_1', 'prj_1', 0, 0, 't', 't', 'd', 1, 'pending', now());
INSERT INTO ledger_call (id, kind, purpose, budget_ids, subject, worker_id, worst_pusd, cost_pusd, state, created_at,
                         expires_at)
VALUES ('lease_1', 'sandbox', 'agent', '{bud_1}', 'trial:trial_1:2', 'w', 5, 3, 'settled',
        '2026-11-30 23:30:00-02', now()),
       ('lease_2', 'sandbox', 'agent', '{bud_1}', 'trial:gone:1', 'w', 5, 3, 'settled', '2026-11-30 12:00:00Z', now());
"""


def test_charges_that_were_written_before_get_their_project_day_and_runner(empty_database_url):
    engine = sa.create_engine(empty_database_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "tollbar.db:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
    plain = make_url(empty_database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(OLD)
        migrate.upgrade(empty_database_url)
        rows = connection.execute("SELECT id, project_id, sku, day::text FROM ledger_call ORDER BY id").fetchall()
    assert rows == [("lease_1", "prj_1", "envhub/metered", "2026-12-01"), ("lease_2", "", "", "2026-11-30")]
