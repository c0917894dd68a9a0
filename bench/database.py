"""The database of a running server, asked and listened to from outside."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.server import Server

_LOGGED: Final = re.compile(
    r"LOG:  duration: (?P<ms>[\d.]+) ms  (?P<kind>parse|bind|execute|statement)(?: [^:]+)?: (?P<sql>.*)"
)
_FACTS: Final = "server.json"
_TABLE: Final = re.compile(r"\b(?:from|into|update|join)\s+(?:only\s+)?\"?([a-z_]+(?:\"?\.\"?[a-z_]+)?)", re.IGNORECASE)
_ON_CONNECTIONS: Final = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "DEALLOCATE", ""}
"""What a pool or a transaction sends; an empty statement asks whether the connection still lives."""
_SETTLE_S: Final = 0.5


@contextmanager
def connection(running: Server) -> Generator[psycopg.Connection[Any]]:
    """Yields a connection that commits each statement."""
    facts = json.loads((Path(running.facts["data_dir"]) / _FACTS).read_text())
    url = facts["database_url"].replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(url, autocommit=True) as found:
        yield found


@dataclass
class Kind:
    """Statements of one kind: how many were run, and the milliseconds that the server spent on them."""

    count: int = 0
    ms: float = 0.0


@contextmanager
def listened(running: Server) -> Generator[dict[str, Kind]]:
    """Yields what is filled, when the block ends, with the statements that ran in it, by kind."""
    log = Path(running.facts["data_dir"]) / "postgres.log"
    kinds: defaultdict[str, Kind] = defaultdict(Kind)
    with connection(running) as asked:
        asked.execute("ALTER SYSTEM SET log_min_duration_statement = 0")
        asked.execute("SELECT pg_reload_conf()")
        time.sleep(_SETTLE_S)
        start = log.stat().st_size
        try:
            yield kinds
        finally:
            end = log.stat().st_size
            asked.execute("ALTER SYSTEM RESET log_min_duration_statement")
            asked.execute("SELECT pg_reload_conf()")
    with log.open("rb") as file:
        file.seek(start)
        text = file.read(end - start).decode(errors="replace")
    _count(text, kinds)


def _count(text: str, kinds: defaultdict[str, Kind]) -> None:
    # A statement of several lines goes on with a tab.
    for line in text.replace("\n\t", " ").splitlines():
        found = _LOGGED.search(line)
        if found is not None:
            kind = kinds[kind_of(found["sql"])]
            kind.count += found["kind"] in {"execute", "statement"}
            kind.ms += float(found["ms"])


def kind_of(sql: str) -> str:
    """Returns the kind of a statement: whose it is, what it does and to which table first."""
    words = sql.split(maxsplit=1)
    verb = words[0].rstrip(";").upper() if words else ""
    if verb in _ON_CONNECTIONS:
        return f"connection {verb or 'ping'}"
    tables = [name.replace('"', "") for name in _TABLE.findall(sql)]
    owner = "engine" if "dbos" in sql else "tollbar"
    named = next((name for name in tables if "." in name), tables[0] if tables else "")
    return f"{owner} {verb} {named}".rstrip()
