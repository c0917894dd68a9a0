"""What is stored, whoever refers to it: for backups, for figures, and for the sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tollbar.artifacts.blobs import BlobStore

PREFIX: Final = "sha256"
_PAGE: Final = 1000


@dataclass(frozen=True)
class StoredBlob:
    """One blob as the store lists it; its bytes were not read."""

    sha256: str
    size: int
    modified: datetime


def stored(blobs: BlobStore) -> Iterator[StoredBlob]:
    """Yields every blob of the store in no order; blocks (use a thread). What is not a blob's name is passed over."""
    for page in blobs.store.list(prefix=PREFIX, chunk_size=_PAGE):
        for found in page:
            name = found["path"].removeprefix(f"{PREFIX}/").replace("/", "")
            if len(name) == 64:
                yield StoredBlob(name, found["size"], found["last_modified"])
