"""Migrations: to this release's tables, once, and never over a newer database."""

import asyncio
import subprocess
import sys

import pytest
from tests.db.conftest import ask

from tollbar.db import migrate
from tollbar.db.errors import DatabaseTooNew, DatabaseUnreachable

REVISIONS = "SELECT string_agg(version_num, ',') FROM alembic_version"
TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"


def test_an_empty_database_is_migrated_and_a_second_time_changes_nothing(empty_database_url):
    before = migrate.check(empty_database_url)
    assert before.current is None
    assert not before.up_to_date
    assert ask(empty_database_url, TABLES) == 0
    migrate.upgrade(empty_database_url)
    after = migrate.check(empty_database_url)
    assert after.current == after.head == before.head == ask(empty_database_url, REVISIONS)
    assert after.up_to_date
    made = ask(empty_database_url, TABLES)
    assert made > 0
    migrate.upgrade(empty_database_url)
    assert migrate.check(empty_database_url) == after
    assert ask(empty_database_url, TABLES) == made


def test_looking_at_an_empty_database_writes_nothing(empty_database_url):
    migrate.check(empty_database_url)
    assert ask(empty_database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


async def test_processes_that_migrate_at_once_wait_for_each_other(empty_database_url):
    code = "import sys; from tollbar.db.migrate import upgrade; upgrade(sys.argv[1])"
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, empty_database_url, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    errors = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0, 0], errors
    assert ask(empty_database_url, REVISIONS) == migrate.check(empty_database_url).head


def test_a_newer_database_is_refused_with_both_revisions_and_left_alone(empty_database_url):
    migrate.upgrade(empty_database_url)
    head = migrate.check(empty_database_url).head
    tables = ask(empty_database_url, TABLES)
    ask(empty_database_url, "UPDATE alembic_version SET version_num = '9999'")
    for function in (migrate.check, migrate.upgrade):
        with pytest.raises(DatabaseTooNew) as refused:
            function(empty_database_url)
        assert "9999" in refused.value.message
        assert head in refused.value.message
        assert refused.value.facts == {"current": "9999", "head": head}
    assert ask(empty_database_url, REVISIONS) == "9999"
    assert ask(empty_database_url, TABLES) == tables


def test_a_migration_that_fails_leaves_nothing_behind_and_no_lock(empty_database_url):
    ask(empty_database_url, "CREATE TABLE trial (in_the_way int)")
    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(empty_database_url)
    assert ask(empty_database_url, TABLES) == 1
    assert ask(empty_database_url, "SELECT to_regclass('alembic_version')") is None
    assert ask(empty_database_url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    ask(empty_database_url, "DROP TABLE trial")
    migrate.upgrade(empty_database_url)
    assert migrate.check(empty_database_url).up_to_date


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_any_usual_form_of_the_url_is_taken(empty_database_url, scheme):
    url = empty_database_url.replace("postgresql+psycopg", scheme)
    assert migrate.check(url).current is None


def test_a_database_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(DatabaseUnreachable) as failed:
        migrate.upgrade("postgresql://someone:hunter2@127.0.0.1:1/tollbar")
    assert "someone:***@127.0.0.1:1/tollbar" in failed.value.message
    assert "hunter2" not in str(failed.value.body())


def test_a_text_that_is_no_url_is_refused_without_repeating_it():
    with pytest.raises(DatabaseUnreachable, match="not the URL of a database") as failed:
        migrate.check("hunter2")
    assert "hunter2" not in str(failed.value.body())
