"""One pool of connections and the two ways to use it: read, or one transaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

_IDLE: Final = "-cidle_in_transaction_session_timeout"


@dataclass(frozen=True)
class Database:
    """An open database. Services receive a session; interfaces and flows open one here and commit once."""

    url: str
    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]

    @cached_property
    def _snapshots(self) -> AsyncEngine:
        """The same pool; what begins on it sees one state of the database to its end."""
        return self.engine.execution_options(isolation_level="REPEATABLE READ")

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[AsyncSession]:
        """Yields a session for reading one snapshot: its statements agree with each other, whatever ends meanwhile.

        The snapshot is taken by the first statement. What the session wrote is rolled back.
        """
        async with self.sessions(bind=self._snapshots) as session:
            yield session

    @cached_property
    def _glances(self) -> AsyncEngine:
        """The same pool without transactions around its statements."""
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def glance(self) -> AsyncGenerator[AsyncSession]:
        """Yields a session for one reading statement, which costs one round trip instead of three.

        Each statement is a transaction of its own, so two of them need not agree and one that writes is final.
        """
        async with self.sessions(bind=self._glances) as session:
            yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncSession]:
        """Yields a session in one transaction, committed at the end and rolled back on an error."""
        async with self.sessions() as session, session.begin():
            yield session

    async def close(self) -> None:
        """Closes every connection."""
        await self.engine.dispose()


def psycopg_url(url: str) -> str:
    """Returns the URL in the form that SQLAlchemy and the engine read (`postgresql+psycopg://...`)."""
    return make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def limited_url(url: str, idle_s: float) -> str:
    """Returns the URL whose connections the server ends when they stand still in a transaction for so long.

    A process that is frozen, or whose machine lost its power, keeps no row from those who take its work over.
    """
    made = make_url(url)
    given = made.query.get("options", "")
    words = (given if isinstance(given, str) else " ".join(given)).split()
    kept = [word for word in words if not word.startswith(_IDLE)]
    options = " ".join([*kept, f"{_IDLE}={int(idle_s * 1000)}"])
    return psycopg_url(made.update_query_dict({"options": options}).render_as_string(hide_password=False))


def open_database(url: str, *, pool_size: int = 10, may_restart: bool = True) -> Database:
    """Returns a database whose connections are made when they are needed; nothing is sent yet.

    Errors name no parameters, because they end in logs and parameters may be secrets. `may_restart` false says that
    the server lives and dies with this process (the embedded one): connections are then not tested before each use.
    """
    engine = create_async_engine(
        psycopg_url(url), pool_size=pool_size, max_overflow=0, pool_pre_ping=may_restart, hide_parameters=True
    )
    return Database(psycopg_url(url), engine, async_sessionmaker(engine, expire_on_commit=False))
