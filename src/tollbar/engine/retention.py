"""The engine's rows are disposable: what ended a week ago is deleted, since every fact stands in our own tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tollbar.db.session import Database
from tollbar.engine import store
from tollbar.engine.port import Engine
from tollbar.kit.clock import Clock

_BATCH: Final = 500
_MOST_BATCHES: Final = 20


@dataclass(frozen=True)
class Retention:
    """`run_once` is called every ten minutes by the process that holds the lock."""

    database: Database
    engine: Engine
    clock: Clock
    keep_days: int = 7

    async def run_once(self) -> int:
        """Deletes engine rows of work that ended `keep_days` ago, a bounded part at a time; returns how many."""
        before = self.clock.now() - timedelta(days=self.keep_days)
        deleted = 0
        for _ in range(_MOST_BATCHES):
            part = await self.engine.purge(before, _BATCH)
            deleted += part
            if part < _BATCH:
                break
        async with self.database.transaction() as session:
            await store.forget_gone(session, self.keep_days)
        return deleted
