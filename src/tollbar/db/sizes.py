"""How much disk the database takes, and what takes it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_TABLES = text(
    """
    SELECT n.nspname, c.relname, pg_total_relation_size(c.oid), greatest(c.reltuples, 0)::bigint
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
     ORDER BY 3 DESC, 1, 2
    """
)


@dataclass(frozen=True)
class TableSize:
    """One table with its indexes; `rows` is the database's own estimate."""

    schema: str
    name: str
    size: int
    rows: int


async def database_size(session: AsyncSession) -> int:
    """Returns the bytes of the whole database on its disk."""
    return int(await session.scalar(text("SELECT pg_database_size(current_database())")) or 0)


async def table_sizes(session: AsyncSession) -> list[TableSize]:
    """Returns every table, the largest first."""
    return [TableSize(row[0], row[1], int(row[2]), int(row[3])) for row in await session.execute(_TABLES)]
