"""The file of a backup: one tar with a description, the database's dump, every blob, and an end that proves it whole.

```
tollbar-backup.json    what this is, and the SHA-256 of the dump
database.dump          PostgreSQL's custom format
blobs/<sha256>         one for each blob; the name is the hash of the content
end.json               the number of blobs, their bytes, and the SHA-256 of the description
```
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tollbar.app.errors import BackupDamaged, BackupFileExists
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.errors import BlobMissing
from tollbar.artifacts.inventory import StoredBlob

FORMAT: Final = 1
CONTAINS: Final = (
    "the whole database: datasets, Jobs, Trials, results, spending, people, projects",
    "of keys, sign-in links and sessions: only their hashes; of the vault: secrets as they are stored, encrypted",
    "every stored artifact and task file",
)
LEFT_OUT: Final = (
    "the key of the vault (vault.key in the data directory, or TOLLBAR_VAULT_KEY): keep it apart",
    "the local key of the server's machine (a new one is made at the next start), keys of providers, settings",
    "sandboxes, caches and logs",
)
_HEAD: Final = "tollbar-backup.json"
_DUMP: Final = "database.dump"
_BLOBS: Final = "blobs/"
_END: Final = "end.json"
_MAX_TEXT: Final = 1 << 20
_CHUNK: Final = 1 << 20
_BLOB: Final = re.compile(r"blobs/([0-9a-f]{64})")


@dataclass(frozen=True)
class Written:
    """What went into an archive; `left_out` are blobs that could not be read."""

    blobs: int
    blob_bytes: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Opened:
    """What an archive held, checked: its description, and how many blobs were put into the store."""

    head: dict[str, Any]
    blobs: int
    blob_bytes: int


@contextmanager
def private_file(file: Path) -> Generator[IO[bytes]]:
    """Yields a new file that only its owner can read, and which has its name once it is whole and on the disk.

    Raises `BackupFileExists`; blocks.
    """
    if file.exists():
        raise BackupFileExists(file)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        try:
            file.hardlink_to(part)
        except FileExistsError:
            raise BackupFileExists(file) from None
    finally:
        part.unlink(missing_ok=True)


def write(
    output: IO[bytes],
    scratch: Path,
    about: dict[str, Any],
    dump: IO[bytes],
    stored: Iterable[StoredBlob],
    blobs: BlobStore,
) -> Written:
    """Writes an archive into an open file; blocks (use a thread). A blob that is damaged or gone is left out.

    `scratch` is a folder that takes a copy of the largest blob.
    """
    size = dump.seek(0, os.SEEK_END)
    dump.seek(0)
    digest = hashlib.sha256()
    while chunk := dump.read(_CHUNK):
        digest.update(chunk)
    dump.seek(0)
    head = {"format": FORMAT, **about, "dump": {"sha256": digest.hexdigest(), "bytes": size}}
    head |= {"contains": list(CONTAINS), "does_not_contain": list(LEFT_OUT)}
    text = json.dumps(head, indent=1).encode()
    count, total, left_out = 0, 0, list[str]()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, _HEAD, io.BytesIO(text), len(text))
        _add(tar, _DUMP, dump, size)
        for blob in stored:
            with tempfile.TemporaryFile(dir=scratch) as copy:
                try:
                    blobs.copy_to(blob.sha256, copy.fileno())
                except BlobMissing:
                    left_out.append(blob.sha256)
                    continue
                length = copy.seek(0, os.SEEK_END)
                copy.seek(0)
                _add(tar, f"{_BLOBS}{blob.sha256}", copy, length)
            count, total = count + 1, total + length
        end = {"blobs": count, "blob_bytes": total, "head_sha256": hashlib.sha256(text).hexdigest()}
        text = json.dumps(end).encode()
        _add(tar, _END, io.BytesIO(text), len(text))
    return Written(count, total, tuple(left_out))


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    tar.addfile(member, content)


def read_head(file: Path) -> dict[str, Any]:
    """Returns the description of an archive, unchecked but for its form. Raises `BackupDamaged`."""
    try:
        with tarfile.open(file, mode="r|") as tar:
            return _head(tar)[0]
    except (tarfile.TarError, OSError, EOFError) as error:
        raise BackupDamaged(file, str(error)) from error


def read(file: Path, scratch: Path, dump: Path, blobs: BlobStore) -> Opened:
    """Puts every blob of an archive into the store and its dump into a new file, all checked; blocks (use a thread).

    Raises `BackupDamaged`; what was written by then is the caller's to remove.
    """
    try:
        with tarfile.open(file, mode="r|") as tar:
            return _read(tar, scratch, dump, blobs)
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError) as error:
        raise BackupDamaged(file, str(error) or type(error).__name__) from error


def _read(tar: tarfile.TarFile, scratch: Path, dump: Path, blobs: BlobStore) -> Opened:
    head, text = _head(tar)
    _take_dump(_content(tar, tar.next(), _DUMP), dump, head["dump"])
    count, total = 0, 0
    while (member := tar.next()) is not None:
        named = _BLOB.fullmatch(member.name)
        if named is None:
            end = json.loads(_content(tar, member, _END).read(_MAX_TEXT))
            expected = {"blobs": count, "blob_bytes": total, "head_sha256": hashlib.sha256(text).hexdigest()}
            _require(end == expected, "its end does not match its content")
            return Opened(head, count, total)
        _put(_content(tar, member, member.name), named[1], scratch, blobs)
        count, total = count + 1, total + member.size
    msg = "it ends too early"
    raise ValueError(msg)


def _head(tar: tarfile.TarFile) -> tuple[dict[str, Any], bytes]:
    text = _content(tar, tar.next(), _HEAD).read(_MAX_TEXT)
    try:
        head = json.loads(text)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        msg = f"its description is none of format {FORMAT}"
        raise tarfile.ReadError(msg)
    return head, text


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo | None, name: str) -> IO[bytes]:
    if member is None or member.name != name or not member.isfile():
        msg = f"{name} is not where it must be"
        raise tarfile.ReadError(msg)
    content = tar.extractfile(member)
    assert content is not None
    return content


def _take_dump(content: IO[bytes], dump: Path, expected: dict[str, Any]) -> None:
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(dump, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as output:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            size += output.write(chunk)
    _require({"sha256": digest.hexdigest(), "bytes": size} == expected, "the database's dump is damaged")


def _put(content: IO[bytes], name: str, scratch: Path, blobs: BlobStore) -> None:
    with tempfile.TemporaryFile(dir=scratch) as copy:
        digest = hashlib.sha256()
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        _require(digest.hexdigest() == name, f"the blob {name[:12]} is damaged")
        blobs.put_fd(copy.fileno(), copy.tell())


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
