"""What an installation forgets after a while: files of old Trials, bytes that nobody names, leftovers on a machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog

from tollbar.app.references import References
from tollbar.artifacts import store as artifacts
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.sweep import Sweep
from tollbar.db.session import Database
from tollbar.engine.locks import Lock, elected
from tollbar.gateway import keys
from tollbar.jobs import statements as jobs
from tollbar.jobs import taskcache
from tollbar.kit.clock import Clock

_BATCH: Final = 200
_LEFT_LOG: Final = timedelta(hours=1)
_LEFT_UPLOAD: Final = timedelta(days=1)
_OVER_KEY: Final = timedelta(days=1)
_FIRST_S: Final = 60.0

_log = structlog.get_logger()


@dataclass(frozen=True)
class Forgotten:
    """What one round removed."""

    trials: int = 0
    """Trials whose files went."""
    blobs: int = 0
    blob_bytes: int = 0
    busy: bool = False
    """Another process was at it, or a backup runs: nothing was done."""


@dataclass(frozen=True)
class Retention:
    """The installation's part: one process at a time, never while a backup is taken."""

    database: Database
    blobs: BlobStore
    clock: Clock
    keep_artifacts_days: int | None

    async def run_once(self) -> Forgotten:
        """Lets files of old Trials lapse, and removes bytes that nobody names and keys that are over."""
        async with elected(self.database, Lock.BLOBS) as mine:
            if mine is None:
                return Forgotten(busy=True)
            trials = await self._lapse()
            async with self.database.transaction() as session:
                await keys.forget(session, self.clock.now() - _OVER_KEY)
            swept = await self.sweep().run_once()
        if trials or swept.count:
            _log.info("old files were removed", trials=trials, blobs=swept.count, bytes=swept.size)
        return Forgotten(trials, swept.count, swept.size)

    def sweep(self) -> Sweep:
        """Returns what finds and removes bytes that nobody names."""
        references = References(self.database, self.blobs)
        return Sweep(self.blobs, references.by_rows, references.by_seals, self.clock)

    async def _lapse(self) -> int:
        """A Trial's rows go first, in one transaction a part; its bytes then have no name, unless others share them."""
        if self.keep_artifacts_days is None:
            return 0
        before = self.clock.now() - timedelta(days=self.keep_artifacts_days)
        total = 0
        while True:
            async with self.database.transaction() as session:
                found = await jobs.lapsed(session, before, _BATCH)
                await artifacts.expire(session, found)
                await jobs.drop_seals(session, found)
            total += len(found)
            if len(found) < _BATCH:
                return total


@dataclass(frozen=True)
class Leftovers:
    """A machine's part: what killed processes left in the data directory, and tasks that nobody uses."""

    database: Database
    data_dir: Path
    clock: Clock
    keep_cache_days: int

    async def run_once(self) -> int:
        """Removes leftovers and returns how many; what a living Trial, upload or worker has is never touched."""
        now = self.clock.now()
        removed = await self._logs((now - _LEFT_LOG).timestamp())
        uploads = await asyncio.to_thread(_old, self.data_dir / "uploads", (now - _LEFT_UPLOAD).timestamp())
        removed += await asyncio.to_thread(_remove, uploads)
        unused = (now - timedelta(days=self.keep_cache_days)).timestamp()
        removed += await asyncio.to_thread(taskcache.prune, self.data_dir / "tasks", unused)
        if removed:
            _log.info("leftovers were removed", count=removed)
        return removed

    async def _logs(self, before: float) -> int:
        """A log is `<trial>-<try>-<phase>`; that of a Trial which has not ended may be written by a silent agent."""
        old = await asyncio.to_thread(_old, self.data_dir / "logs", before)
        trials = {path.name.partition("-")[0] for path in old}
        async with self.database.session() as session:
            live = await jobs.live(session, sorted(trials))
        return await asyncio.to_thread(_remove, [path for path in old if path.name.partition("-")[0] not in live])


def _old(folder: Path, before: float) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_file() and path.stat().st_mtime < before]


def _remove(files: Iterable[Path]) -> int:
    removed = 0
    for path in files:
        path.unlink(missing_ok=True)
        removed += 1
    return removed


@dataclass
class Patient:
    """A loop's work that leaves a process its first minute for its start."""

    retention: Retention
    leftovers: Leftovers
    clock: Clock
    _began: bool = False

    async def run_once(self) -> None:
        """Does both parts."""
        if not self._began:
            await self.clock.sleep(_FIRST_S)
            self._began = True
        await self.leftovers.run_once()
        await self.retention.run_once()
