"""A database as one file: PostgreSQL's own dump and restore, by client programs whose version fits the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from psycopg.conninfo import make_conninfo
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import OperationalError

from tollbar.db.binaries import candidates, major_of
from tollbar.db.errors import (
    DatabaseToolFailed,
    DatabaseToolMissing,
    DatabaseTooOld,
    DatabaseUnreachable,
    EmbeddedDatabaseFailed,
    RestoreTargetNotEmpty,
)
from tollbar.db.session import psycopg_url

_WAIT_FOR_LOCKS: Final = "--lock-wait-timeout=60s"
_NOBODYS: Final = ("--no-owner", "--no-privileges", "--no-password")
"""A restored database belongs to whoever restores it."""
_SYSTEM: Final = "n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' AND c.relkind = 'r'"
_TABLES: Final = f"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_SYSTEM}"


@dataclass(frozen=True)
class Dump:
    """Which versions of PostgreSQL a dump came from: of the server, and of the program that wrote it."""

    server_major: int
    client_major: int


async def dump(url: str, output: IO[bytes]) -> Dump:
    """Writes the whole database, as it is at one moment, into an open file; nothing that uses it is held up.

    Raises `DatabaseUnreachable`, `DatabaseToolMissing` and `DatabaseToolFailed`.
    """
    server = await asyncio.to_thread(server_major, url)
    known = await _clients("pg_dump")
    fitting = [major for major in known if major >= server]
    if not fitting:
        raise DatabaseToolMissing("pg_dump", f"{server} or newer", sorted(known))
    client = min(fitting)
    words = ("--format=custom", *_NOBODYS, _WAIT_FOR_LOCKS)
    await _run(known[client], words, url, stdout=output)
    return Dump(server, client)


async def restore(url: str, file: Path, *, dumped_by: int) -> None:
    """Fills an empty database from a dump that a program of major version `dumped_by` wrote: wholly or not at all.

    Raises `RestoreTargetNotEmpty`, `DatabaseTooOld`, and what `dump` raises.
    """
    server = await asyncio.to_thread(server_major, url)
    if server < dumped_by:
        raise DatabaseTooOld(server, dumped_by)
    await asyncio.to_thread(require_empty, url)
    known = await _clients("pg_restore")
    fitting = [major for major in known if dumped_by <= major <= server]
    if not fitting:
        needed = f"{dumped_by}" if dumped_by == server else f"{dumped_by} to {server}"
        raise DatabaseToolMissing("pg_restore", needed, sorted(known))
    words = ("--single-transaction", "--exit-on-error", *_NOBODYS)
    await _run(known[max(fitting)], words, url, str(file))


def server_major(url: str) -> int:
    """Returns the major version of the server; blocks. Raises `DatabaseUnreachable`."""
    with _connected(url) as connection:
        return int(connection.execute(text("SHOW server_version_num")).scalar_one()) // 10_000


def require_empty(url: str) -> None:
    """Returns when the database has no table; blocks. Raises `RestoreTargetNotEmpty` and `DatabaseUnreachable`."""
    with _connected(url) as connection:
        found = connection.execute(text(f"SELECT count(*) {_TABLES}")).scalar_one()
    if found:
        raise RestoreTargetNotEmpty(f"the database has {found} tables")


def row_counts(url: str) -> dict[str, int]:
    """Returns the number of rows of each table, by its name with its schema; blocks. Raises `DatabaseUnreachable`."""
    with _connected(url) as connection:
        names = connection.execute(text(f"SELECT n.nspname, c.relname {_TABLES} ORDER BY 1, 2")).all()
        quote = connection.dialect.identifier_preparer.quote
        counts: dict[str, int] = {}
        for schema, table in names:
            statement = text(f"SELECT count(*) FROM {quote(schema)}.{quote(table)}")  # noqa: S608 - quoted names
            counts[f"{schema}.{table}"] = connection.execute(statement).scalar_one()
        return counts


@contextlib.contextmanager
def _connected(url: str) -> Any:
    engine = create_engine(psycopg_url(url), poolclass=NullPool)
    try:
        connection: Connection = engine.connect()
    except OperationalError as error:
        raise DatabaseUnreachable(engine.url.render_as_string(), str(error.orig)) from error
    with connection:
        yield connection


async def _clients(program: str) -> dict[int, Path]:
    """Returns each version of a client program that runs here: the embedded server's, and the one on the PATH."""
    try:
        found = [postgres.parent / program for postgres in candidates()]
    except EmbeddedDatabaseFailed:
        found = []
    on_path = shutil.which(program)
    known: dict[int, Path] = {}
    for path in [*found, *([Path(on_path)] if on_path else [])]:
        process = await asyncio.create_subprocess_exec(
            str(path), "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        answer, _ = await process.communicate()
        major = major_of(answer.decode(errors="replace")) if process.returncode == 0 else None
        if major is not None:
            known.setdefault(major, path)
    return known


async def _run(
    program: Path, words: Sequence[str], url: str, *more: str, stdout: IO[bytes] | int = asyncio.subprocess.DEVNULL
) -> None:
    """Runs a client program to its end; the password goes by its environment, which other users cannot read."""
    where, password = _conninfo(url)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    process = await asyncio.create_subprocess_exec(
        str(program),
        *words,
        f"--dbname={where}",
        *more,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**environment, "LC_ALL": "C", **({"PGPASSWORD": password} if password else {})},
    )
    try:
        _, complaint = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()[-2000:]
        raise DatabaseToolFailed(program.name, process.returncode or 0, said)


def _conninfo(url: str) -> tuple[str, str | None]:
    """Returns where the database is in the client library's words, and the password apart."""
    parts = make_url(url)
    named: dict[str, Any] = {
        "host": parts.host,
        "port": parts.port,
        "user": parts.username,
        "dbname": parts.database,
    }
    several = {name: value if isinstance(value, str) else ",".join(value) for name, value in parts.query.items()}
    given = {name: value for name, value in (named | several).items() if value is not None}
    return make_conninfo(**given), parts.password or None
