"""Bytes by their SHA-256. Writing twice is writing once, and a half-written blob never has a name."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from tollbar.artifacts.errors import BlobMissing, StoreUnreachable
from tollbar.kit.clock import Clock, SystemClock

if TYPE_CHECKING:
    from obstore import ObjectMeta

_CHUNK: Final = 1 << 20
_SMALL_BYTES: Final = 4 << 20
"""Up to this size a file is read once and stored in one piece."""
_PARTS_AT_ONCE: Final = 2
"""Parts of 5 MiB that are on their way to the store while a large file is read."""
_PROBE: Final = "probe"

RENEWED_AFTER: Final = timedelta(hours=1)
"""An older blob is written again when somebody stores the same bytes: so it is young when its row is committed."""
_DEAD_SWEEP: Final = timedelta(minutes=10)
_SWEEP_STEP_S: Final = 0.02

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BlobStore:
    """Content-addressed storage on an object store: a folder, or S3 and its like behind the same calls.

    Every call raises `StoreUnreachable` when the store does not answer or refuses.
    """

    store: ObjectStore
    clock: Clock = field(default_factory=SystemClock)
    """Tells how old a blob is; the store's own clock is within minutes of it."""

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
            return self._put(b"".join(_read(descriptor, size)))
        name = _hash(descriptor, size)

        def write() -> None:
            self.store.put(_path(name), _checked(descriptor, size, name), max_concurrency=_PARTS_AT_ONCE)

        self._keep(name, size, write)
        return name

    async def put_bytes(self, data: bytes) -> str:
        """Stores bytes and returns their SHA-256."""
        return await asyncio.to_thread(self._put, data)

    async def exists(self, sha256: str) -> bool:
        """Says whether the blob is stored; its bytes are not read."""
        return await asyncio.to_thread(self._head, sha256) is not None

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

    def _put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self._keep(name, len(data), lambda: self.store.put(_path(name), data))
        return name

    def _keep(self, name: str, size: int, write: Callable[[], object]) -> None:
        """Writes a blob unless it is there, and makes sure that no sweep takes away what is.

        What is there becomes young again, and a sweep removes nothing young (`sweep.py`, where the order of steps is
        explained). One of another size was damaged by a crash and is written anew.
        """
        found = self._head(name)
        with _reached():
            if found is None:
                write()
                return
            if found["size"] != size or self.clock.now() - found["last_modified"] > RENEWED_AFTER:
                write()
            self._wait_for_sweep(name)
        if self._head(name) is None:
            with _reached():
                write()

    def _wait_for_sweep(self, name: str) -> None:
        """Returns when no sweep is at this blob; one that died there is not waited for."""
        while True:
            try:
                mark = self.store.head(sweep_mark(name))
            except FileNotFoundError:
                return
            if self.clock.now() - mark["last_modified"] > _DEAD_SWEEP:
                return
            time.sleep(_SWEEP_STEP_S)

    def _head(self, sha256: str) -> ObjectMeta | None:
        try:
            with _reached(sha256):
                return self.store.head(_path(sha256))
        except BlobMissing:
            return None


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


def sweep_mark(sha256: str) -> str:
    """Returns the name of the object that is there while a sweep looks at a blob and removes it."""
    return f"sweeping/{sha256}"


def blob_path(sha256: str) -> str:
    """Returns the name of a blob's object. Raises `BlobMissing` for what is no hash."""
    return _path(sha256)


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
