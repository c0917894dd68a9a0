"""The engine's own tables, in the schema `dbos` of our database."""

from __future__ import annotations

from typing import Final

from dbos import DBOS

from tollbar.db.session import psycopg_url

SCHEMA: Final = "dbos"


def migrate(url: str) -> None:
    """Brings the engine's tables up to date; blocks, so call it in a thread. Safe for several processes at once."""
    DBOS.migrate(psycopg_url(url), schema=SCHEMA)
