"""Bytes by their SHA-256. Writing twice is writing once, and a half-written blob never has a name."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from tollbar.artifacts.errors import BlobMissing, StoreUnreachable

_CHUNK: Final = 1 << 20
_SMALL_BYTES: Final = 4 << 20
"""Up to this size a file is read once and stored in one piece."""
_PARTS_AT_ONCE: Final = 2
"""Parts of 5 MiB that are on their way to the store while a large file is read."""
_PROBE: Final = "probe"

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BlobStore:
    """Content-addressed storage on an object store: a folder, or S3 and its like behind the same calls.

    Every call raises `StoreUnreachable` when the store does not answer or refuses.
    """

    store: ObjectStore

    async def check(self) -> None:
        """Returns when the store takes and gives bytes; writes one small object of a fixed name."""
        with _reached():
            await self.store.put_async(_PROBE, b"tollbar")
            await self.store.get_range_async(_PROBE, start=0, length=7)

    def put_fd(self, descriptor: int, size: int) -> str:
        """Stores `size` bytes of an open file from its beginning and returns their SHA-256; blocks (use a thread).

        Memory does not grow with the file. Raises `ValueError` when the file ends early or changes meanwhile.
        """
        if size <= _SMALL_BYTES:
            data = b"".join(_read(descriptor, size))
            name = hashlib.sha256(data).hexdigest()
            if not self._has(name, size):
                with _reached():
                    self.store.put(_path(name), data)
            return name
        name = _hash(descriptor, size)
        if not self._has(name, size):
            with _reached():
                content = _checked(descriptor, size, name)
                self.store.put(_path(name), content, max_concurrency=_PARTS_AT_ONCE)
        return name

    async def put_bytes(self, data: bytes) -> str:
        """Stores bytes and returns their SHA-256."""
        name = hashlib.sha256(data).hexdigest()
        if not await asyncio.to_thread(self._has, name, len(data)):
            with _reached():
                await self.store.put_async(_path(name), data)
        return name

    async def exists(self, sha256: str) -> bool:
        """Says whether the blob is stored; its bytes are not read."""
        return await asyncio.to_thread(self._has, sha256, None)

    async def get(self, sha256: str) -> bytes:
        """Returns a whole blob, checked against its hash; raises `BlobMissing`."""
        with _reached(sha256):
            data = bytes(await (await self.store.get_async(_path(sha256))).bytes_async())
        if await asyncio.to_thread(_hash_of, data) != sha256:
            raise BlobMissing(sha256)
        return data

    async def stream(self, sha256: str) -> AsyncIterator[bytes]:
        """Yields a blob in parts; raises `BlobMissing` before the first one."""
        with _reached(sha256):
            found = await self.store.get_async(_path(sha256))
        parts = aiter(found.stream(min_chunk_size=_CHUNK))
        while True:
            with _reached(sha256):
                chunk = await anext(parts, None)
            if chunk is None:
                return
            yield bytes(chunk)

    async def read_range(self, sha256: str, offset: int, length: int) -> bytes:
        """Returns at most `length` bytes from `offset`, which lies within the blob; raises `BlobMissing`."""
        if length <= 0:
            return b""
        with _reached(sha256):
            return bytes(await self.store.get_range_async(_path(sha256), start=offset, length=length))

    def copy_to(self, sha256: str, descriptor: int) -> None:
        """Writes a blob into an open file, checked against its hash; blocks (use a thread). Raises `BlobMissing`."""
        digest = hashlib.sha256()
        with _reached(sha256):
            for chunk in self.store.get(_path(sha256)).stream(min_chunk_size=_CHUNK):
                data = bytes(chunk)
                digest.update(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
        if digest.hexdigest() != sha256:
            raise BlobMissing(sha256)

    def _has(self, sha256: str, size: int | None) -> bool:
        """Says whether the blob is there; one of another size was damaged by a crash and is written anew."""
        try:
            with _reached(sha256):
                found = self.store.head(_path(sha256))
        except BlobMissing:
            return False
        return size is None or found["size"] == size


def local_blobs(root: Path) -> BlobStore:
    """Returns a store in a folder of this machine, made when it is missing."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return BlobStore(LocalStore(root, mkdir=True))


@contextmanager
def _reached(sha256: str | None = None) -> Generator[None]:
    """Turns what a store says into our errors: `BlobMissing` for a blob that is asked for, else `StoreUnreachable`."""
    try:
        yield
    except FileNotFoundError as error:
        if sha256 is None:
            raise StoreUnreachable(_first_line(error)) from error
        raise BlobMissing(sha256) from None
    except (BaseError, PermissionError) as error:
        raise StoreUnreachable(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]


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
