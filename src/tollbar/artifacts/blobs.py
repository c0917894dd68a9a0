"""Bytes by their SHA-256. Writing twice is writing once, and a half-written blob never has a name."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from obstore.store import LocalStore, ObjectStore

from tollbar.artifacts.errors import BlobMissing

_CHUNK: Final = 1 << 20
_SMALL_BYTES: Final = 4 << 20
"""Up to this size a file is read once and stored in one piece."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BlobStore:
    """Content-addressed storage on an object store (a local folder; S3 and its like behind the same calls)."""

    store: ObjectStore

    def put_fd(self, descriptor: int, size: int) -> str:
        """Stores `size` bytes of an open file from its beginning and returns their SHA-256; blocks (use a thread).

        Memory does not grow with the file. Raises `ValueError` when the file ends early or changes meanwhile.
        """
        if size <= _SMALL_BYTES:
            data = b"".join(_read(descriptor, size))
            name = hashlib.sha256(data).hexdigest()
            if not self._has(name, size):
                self.store.put(_path(name), data)
            return name
        name = _hash(descriptor, size)
        if not self._has(name, size):
            self.store.put(_path(name), _checked(descriptor, size, name))
        return name

    async def put_bytes(self, data: bytes) -> str:
        """Stores bytes and returns their SHA-256."""
        name = hashlib.sha256(data).hexdigest()
        if not await asyncio.to_thread(self._has, name, len(data)):
            await self.store.put_async(_path(name), data)
        return name

    async def exists(self, sha256: str) -> bool:
        """Says whether the blob is stored; its bytes are not read."""
        return await asyncio.to_thread(self._has, sha256, None)

    async def get(self, sha256: str) -> bytes:
        """Returns a whole blob, checked against its hash; raises `BlobMissing`."""
        try:
            data = bytes(await (await self.store.get_async(_path(sha256))).bytes_async())
        except FileNotFoundError:
            raise BlobMissing(sha256) from None
        if await asyncio.to_thread(_hash_of, data) != sha256:
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
        """Returns at most `length` bytes from `offset`, which lies within the blob; raises `BlobMissing`."""
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

    def _has(self, sha256: str, size: int | None) -> bool:
        """Says whether the blob is there; one of another size was damaged by a crash and is written anew."""
        try:
            found = self.store.head(_path(sha256))
        except FileNotFoundError:
            return False
        return size is None or found["size"] == size


def local_blobs(root: Path) -> BlobStore:
    """Returns a store in a folder of this machine, made when it is missing."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return BlobStore(LocalStore(root, mkdir=True))


def _path(sha256: str) -> str:
    if _SHA256.fullmatch(sha256) is None:
        raise BlobMissing(sha256)
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


def _hash(descriptor: int, size: int) -> str:
    digest = hashlib.sha256()
    for chunk in _read(descriptor, size):
        digest.update(chunk)
    return digest.hexdigest()


def _hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checked(descriptor: int, size: int, sha256: str) -> Iterator[bytes]:
    """Yields the bytes to be stored; the error at their end leaves nothing in the store."""
    digest = hashlib.sha256()
    for chunk in _read(descriptor, size):
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != sha256:
        msg = "the file changed while it was stored"
        raise ValueError(msg)
