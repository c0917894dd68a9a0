"""Where a Trial's files go: into the blobs, and no secret that this process knows of with them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tollbar.artifacts.blobs import BlobStore
from tollbar.vault.redactor import Redactor

_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Sink:
    """Stores files. A secret in one is overwritten by a mark of the same length, so that sizes and offsets stay."""

    blobs: BlobStore
    redactor: Redactor

    def put_fd(self, descriptor: int, size: int) -> str:
        """Stores `size` bytes of an open file and returns the SHA-256 of what was stored; blocks (use a thread).

        Raises `ValueError` when the file ends early or changes meanwhile.
        """
        if not self.redactor.found_in(_parts(descriptor, size)):
            return self.blobs.put_fd(descriptor, size)
        masking = self.redactor.stream(same_length=True)
        with tempfile.TemporaryFile() as copy:
            for part in _parts(descriptor, size):
                copy.write(masking.feed(part))
            copy.write(masking.close())
            copy.flush()
            return self.blobs.put_fd(copy.fileno(), size)

    async def put_bytes(self, data: bytes) -> str:
        """Stores what this process made and returns its SHA-256."""
        return await self.blobs.put_bytes(self.redactor.data(data, same_length=True))


def _parts(descriptor: int, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size and (part := os.pread(descriptor, min(_CHUNK, size - offset), offset)):
        offset += len(part)
        yield part
