"""Which blobs the installation still needs: those that a row names, and those that a seal's manifest names."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from tollbar.artifacts import store as artifact_rows
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.errors import BlobMissing
from tollbar.datasets import store as dataset_rows
from tollbar.db.session import Database
from tollbar.jobs import statements as job_rows

_HASH: Final = re.compile(rb"[0-9a-f]{64}")
_OF_STEPS: Final = b'"schema":"tollbar.steps/v1"'
_AT_ONCE: Final = 32


@dataclass(frozen=True)
class References:
    """Reads who needs what. All that looks like a hash in a seal's manifest counts, so too much is kept."""

    database: Database
    blobs: BlobStore

    async def by_rows(self) -> set[str]:
        """Returns the blobs that rows name: artifacts, tasks, files of datasets, manifests of seals."""
        async with self.database.session() as session:
            return (
                await artifact_rows.blobs(session)
                | await dataset_rows.blobs(session)
                | await job_rows.task_blobs(session)
                | await job_rows.manifest_blobs(session)
            )

    async def by_seals(self) -> set[str]:
        """Returns the blobs that manifests of seals name; reads every manifest, so only for who must know."""
        async with self.database.session() as session:
            manifests = sorted(await job_rows.manifest_blobs(session))
        found, read = set[str](), set[str]()
        while manifests:
            part, manifests = manifests[:_AT_ONCE], manifests[_AT_ONCE:]
            read.update(part)
            for data in await asyncio.gather(*(self._manifest(name) for name in part)):
                named = {name.decode() for name in _HASH.findall(data)}
                found |= named
                if _OF_STEPS in data:
                    # It names the seal of each step, which in turn names files.
                    manifests += sorted(named - read)
        return found

    async def _manifest(self, sha256: str) -> bytes:
        try:
            return await self.blobs.get(sha256)
        except BlobMissing:
            return b""
