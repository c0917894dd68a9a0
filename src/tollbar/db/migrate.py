"""Brings a database to the tables of this release, once, however many processes start together."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, OperationalError

from tollbar.db.errors import DatabaseBehind, DatabaseTooNew, DatabaseUnreachable
from tollbar.db.session import psycopg_url

_LOCK: Final = 0x746F6C6C62617231  # "tollbar1": one number for every tollbar on this database


@dataclass(frozen=True)
class MigrationState:
    """Where a database stands: `current` is None before the first migration; `head` is this release's."""

    current: str | None
    head: str

    @property
    def up_to_date(self) -> bool:
        """Says whether the database has the tables of this release."""
        return self.current == self.head


def upgrade(url: str) -> None:
    """Migrates the database, wholly or not at all; blocks, so call it in a thread.

    A second process waits, and then has nothing to do. Raises `DatabaseTooNew` and `DatabaseUnreachable`; then
    nothing has changed.
    """
    with _connected(url) as connection:
        # The lock belongs to the session, so it outlives the commit and ends with the connection, however that ends.
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()
        with connection.begin():
            if not _state(connection).up_to_date:
                command.upgrade(_config(connection), "head")


def check(url: str) -> MigrationState:
    """Returns the database's revision and this release's; changes nothing; blocks.

    Raises `DatabaseTooNew` when this release does not know the revision, and `DatabaseUnreachable`.
    """
    with _connected(url) as connection:
        return _state(connection)


def require_current(url: str) -> None:
    """Returns when the database is exactly at this release's revision; changes nothing; blocks.

    Raises `DatabaseBehind`, `DatabaseTooNew` and `DatabaseUnreachable`.
    """
    state = check(url)
    if not state.up_to_date:
        raise DatabaseBehind(state.current, state.head)


def require_known(revision: str | None) -> None:
    """Returns when this release knows that revision, so that it can bring it up to date. Raises `DatabaseTooNew`."""
    config = Config()
    config.set_main_option("script_location", "tollbar.db:migrations")
    scripts = ScriptDirectory.from_config(config)
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise DatabaseTooNew(revision, scripts.get_current_head() or "")


def _state(connection: Connection) -> MigrationState:
    scripts = ScriptDirectory.from_config(_config(connection))
    head = scripts.get_current_head() or ""
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise DatabaseTooNew(current, head)
    return MigrationState(current, head)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "tollbar.db:migrations")
    config.attributes["connection"] = connection
    return config


@contextmanager
def _connected(url: str) -> Generator[Connection]:
    try:
        engine = create_engine(psycopg_url(url), poolclass=NullPool)
    except ArgumentError as error:
        raise DatabaseUnreachable("of TOLLBAR_DATABASE_URL", "that is not the URL of a database") from error
    try:
        connection = engine.connect()
    except OperationalError as error:
        where = engine.url.render_as_string()  # the password is left out
        raise DatabaseUnreachable(where, str(error.orig)) from error
    with connection:
        yield connection
