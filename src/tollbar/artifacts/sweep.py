"""Removes blobs that nobody refers to any more, never one that somebody is just storing again.

Who stores bytes commits a row that names them afterwards, in whatever process and on whatever machine. So a blob
without a row may be one whose row is on its way. Two rules keep it:

1. Only blobs that were written more than a day ago are removed; who stores bytes that are there already writes them
   again when they are older than an hour. A row that is committed within a day of its storing is therefore safe.
2. The moment between a sweep's last look at a blob's age and its removal is marked by an object beside it. Who stores
   bytes that are there already writes first, waits for the mark to go, and then looks whether the bytes are still
   there: either the sweep saw young bytes and left them, or it was through before that look, which finds them gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tollbar.artifacts.blobs import BlobStore, blob_path, sweep_mark
from tollbar.artifacts.inventory import StoredBlob, stored
from tollbar.kit.clock import Clock

UNNAMED_FOR: Final = timedelta(days=1)
"""How old a blob is at least before it is removed."""

Names = Callable[[], Awaitable[set[str]]]


@dataclass(frozen=True)
class Swept:
    """What a sweep removed."""

    count: int = 0
    size: int = 0


@dataclass(frozen=True)
class Sweep:
    """`by_rows` and `by_seals` tell which blobs are needed; the second, dear one is asked only when it matters."""

    blobs: BlobStore
    by_rows: Names
    by_seals: Names
    clock: Clock

    async def run_once(self) -> Swept:
        """Removes what is old and not needed; no other sweep and no backup runs meanwhile (`Lock.BLOBS`)."""
        old = await asyncio.to_thread(self._old)
        left = await self._unneeded(old)
        removed = [blob for blob in left if await asyncio.to_thread(self.remove, blob.sha256)]
        return Swept(len(removed), sum(blob.size for blob in removed))

    async def unneeded(self) -> list[StoredBlob]:
        """Returns what nobody names, of any age; removes nothing."""
        return await self._unneeded(await asyncio.to_thread(lambda: list(stored(self.blobs))))

    async def _unneeded(self, found: list[StoredBlob]) -> list[StoredBlob]:
        for names in (self.by_rows, self.by_seals):
            if found:
                needed = await names()
                found = [blob for blob in found if blob.sha256 not in needed]
        return found

    def _old(self) -> list[StoredBlob]:
        before = self.clock.now() - UNNAMED_FOR
        return [blob for blob in stored(self.blobs) if blob.modified < before]

    def remove(self, sha256: str) -> bool:
        """Removes a blob unless it has become young, and says whether it did; blocks (use a thread)."""
        store, mark = self.blobs.store, sweep_mark(sha256)
        store.put(mark, b"")
        try:
            found = store.head(blob_path(sha256))
            if found["last_modified"] >= self.clock.now() - UNNAMED_FOR:
                return False
            store.delete(blob_path(sha256))
        except FileNotFoundError:
            return False
        else:
            return True
        finally:
            with suppress(FileNotFoundError):
                store.delete(mark)
