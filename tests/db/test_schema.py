"""The migrations make exactly the tables that the packages declare."""

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.support import all_tables

from tollbar.db import migrate
from tollbar.engine.migrate import migrate as migrate_engine

COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
       pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
     LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""
CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype <> 't'
"""
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"


def catalog_of(connection):
    """Returns every column, constraint and index of our schema as text, checks and partial indexes included."""
    parts = (COLUMNS, CONSTRAINTS, INDEXES)
    rows = [tuple(map(str, row)) for part in parts for row in connection.execute(sa.text(part))]
    return {row for row in rows if row[0] != "alembic_version"}


def test_a_migrated_database_has_the_tables_that_the_packages_declare(empty_database_url):
    metadata = all_tables()
    migrate.upgrade(empty_database_url)
    migrate_engine(empty_database_url)
    engine = sa.create_engine(empty_database_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "include_schemas": False}
        )
        assert compare_metadata(context, metadata) == []


def test_the_catalog_after_the_migrations_is_that_of_the_declared_tables(empty_database_url):
    """What the comparison above does not see: checks, conditions of indexes, names of constraints."""
    metadata = all_tables()
    migrate.upgrade(empty_database_url)
    engine = sa.create_engine(empty_database_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        migrated = catalog_of(connection)
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
        metadata.create_all(connection)
        declared = catalog_of(connection)
    assert sorted(migrated - declared) == []
    assert sorted(declared - migrated) == []


def test_the_engines_tables_are_in_a_schema_of_their_own_that_migrations_never_touch(empty_database_url):
    migrate_engine(empty_database_url)
    engine = sa.create_engine(empty_database_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        before = set(sa.inspect(connection).get_table_names(schema="dbos"))
        assert before
        assert sa.inspect(connection).get_table_names() == []
    migrate.upgrade(empty_database_url)
    with engine.connect() as connection:
        assert set(sa.inspect(connection).get_table_names(schema="dbos")) == before
