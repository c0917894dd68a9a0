"""Bytes by their SHA-256. Writing twice is writing once, and a half-written blob never has a name."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from obstore.store import LocalStore, ObjectStore

from tollbar.artifacts.errors import BlobMissing

_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class BlobStore:
    """Content-addressed storage on an object store (a local folder; S3 and its like behind the same calls)."""

    store: ObjectStore

    def put_fd(self, descriptor: int, size: int) -> str:
        """Stores `size` bytes of an open file from its beginning and returns their SHA-256; blocks (use a thread).

        Raises `ValueError` when the file changes or ends while it is read.
        """
        digest = hashlib.sha256()
        for chunk in _read(descriptor, size):
            digest.update(chunk)
        name = digest.hexdigest()
        if not self._exists(name):
            again = hashlib.sha256()

            def checked() -> Iterator[bytes]:
                for chunk in _read(descriptor, size):
                    again.update(chunk)
                    yield chunk
                if again.hexdigest() != name:
                    msg = "the file changed while it was stored"
                    raise ValueError(msg)

            self.store.put(_path(name), checked())
        return name

    async def put_bytes(self, data: bytes) -> str:
        """Stores bytes and returns their SHA-256."""
        name = hashlib.sha256(data).hexdigest()
        if not await asyncio.to_thread(self._exists, name):
            await self.store.put_async(_path(name), data)
        return name

    async def get(self, sha256: str) -> bytes:
        """Returns a whole blob, checked against its hash; raises `BlobMissing`."""
        try:
            data = bytes(await (await self.store.get_async(_path(sha256))).bytes_async())
        except FileNotFoundError:
            raise BlobMissing(sha256) from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BlobMissing(sha256)
        return data

    async def stream(self, sha256: str) -> AsyncIterator[bytes]:
        """Yields a blob in parts; raises `BlobMissing` before the first one."""
        try:
            found = await self.store.get_async(_path(sha256))
        except FileNotFoundError:
            raise BlobMissing(sha256) from None
        async for chunk in found.stream(min_chunk_size=_CHUNK):
            yield bytes(chunk)

    async def read_range(self, sha256: str, offset: int, length: int) -> bytes:
        """Returns at most `length` bytes from `offset`; raises `BlobMissing`."""
        if length <= 0:
            return b""
        try:
            return bytes(await self.store.get_range_async(_path(sha256), start=offset, length=length))
        except FileNotFoundError:
            raise BlobMissing(sha256) from None

    def copy_to(self, sha256: str, descriptor: int) -> None:
        """Writes a blob into an open file, checked against its hash; blocks (use a thread). Raises `BlobMissing`."""
        digest = hashlib.sha256()
        try:
            for chunk in self.store.get(_path(sha256)).stream(min_chunk_size=_CHUNK):
                data = bytes(chunk)
                digest.update(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
        except FileNotFoundError:
            raise BlobMissing(sha256) from None
        if digest.hexdigest() != sha256:
            raise BlobMissing(sha256)

    def _exists(self, sha256: str) -> bool:
        try:
            self.store.head(_path(sha256))
        except FileNotFoundError:
            return False
        return True


def local_blobs(root: Path) -> BlobStore:
    """Returns a store in a folder of this machine, made when it is missing."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return BlobStore(LocalStore(root, mkdir=True))


def _path(sha256: str) -> str:
    return f"sha256/{sha256[:2]}/{sha256[2:]}"


def _read(descriptor: int, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        chunk = os.pread(descriptor, min(_CHUNK, size - offset), offset)
        if not chunk:
            msg = "the file ended before its size"
            raise ValueError(msg)
        offset += len(chunk)
        yield chunk
