"""Price books by version: a running Job keeps the prices that it began with, whatever an operator writes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.db.session import Database
from tollbar.gateway import store
from tollbar.gateway.owntable import own_table
from tollbar.gateway.prices import PriceBook

SHIPPED = ""
"""The version of an installation without own prices."""


def version_of(book: PriceBook) -> str:
    """Returns the version of a book's own prices."""
    return book.tables[0].source if book.tables else SHIPPED


async def keep(session: AsyncSession, book: PriceBook) -> None:
    """Keeps a book's own prices for Jobs that begin with them and outlive them."""
    for table in book.tables:
        await store.add_prices(session, table.source, table.documents)


@dataclass(frozen=True)
class Books:
    """The books of one process: its own, and those of older Jobs as they are asked for."""

    database: Database
    current: PriceBook
    _older: dict[str, PriceBook] = field(default_factory=dict[str, PriceBook], repr=False)

    async def of(self, version: str | None) -> PriceBook:
        """Returns the book of a version; None is the current one. Raises `LookupError` for one that was never kept."""
        if version is None or version == version_of(self.current):
            return self.current
        if version not in self._older:
            self._older[version] = await self._read(version)
        return self._older[version]

    async def _read(self, version: str) -> PriceBook:
        if version == SHIPPED:
            return PriceBook()
        async with self.database.glance() as session:
            rows = await store.prices(session, version)
        if rows is None:
            raise LookupError(version)
        return PriceBook((own_table(version, rows),))
