"""A dataset's folder as a tar: the same folder is the same bytes, on every machine and on every day."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tollbar.client.errors import FolderRefused

_UNSTORED: Final = ".git"
_MAX_PROBLEMS: Final = 100


@dataclass(frozen=True)
class PackLimits:
    """Bounds of one upload, so that a folder given by mistake is refused before it fills a disk."""

    max_entries: int = 20_000
    max_file_bytes: int = 64 << 20
    max_total_bytes: int = 256 << 20


@dataclass(frozen=True)
class Packed:
    """What was written; `sha256` is that of the whole tar, `left_out` names links to folders, which no task holds."""

    size: int
    sha256: str
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    path: str
    source: Path
    is_folder: bool
    size: int
    executable: bool


def pack_folder(
    folder: Path, target: IO[bytes], *, replace: Mapping[str, bytes] | None = None, limits: PackLimits | None = None
) -> Packed:
    """Writes the folder's tar to `target`: sorted, without times or owners, links to files as their content.

    `replace` gives some files another content. Everything is packed but `.git`: which files belong to a task is the
    server's rule. Raises `FolderRefused` with every problem: links that lead out, devices, unreadable files, sizes.
    """
    walk = _Walk(folder, limits or PackLimits())
    entries = sorted(walk.entries(), key=lambda entry: entry.path)
    if walk.problems:
        raise FolderRefused(str(folder), walk.problems)
    writer = _Hashed(target)
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[arg-type]  # write() is all that it calls
        for entry in entries:
            _add(tar, folder, entry, (replace or {}).get(entry.path))
    return Packed(writer.size, writer.digest.hexdigest(), tuple(sorted(walk.left_out)))


class _Hashed:
    """Counts and hashes what passes through."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.size += len(data)
        self.digest.update(data)
        return self._target.write(data)


class _Walk:
    """Finds what is to be packed."""

    def __init__(self, folder: Path, limits: PackLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._root = os.path.realpath(folder)
        self._count = 0
        self._total = 0
        self.problems: list[str] = []
        self.left_out: list[str] = []

    def entries(self) -> Iterator[_Entry]:
        pending = [(self._folder, "")]
        while pending:
            place, above = pending.pop()
            try:
                found = sorted(os.scandir(place), key=lambda item: item.name)
            except OSError as error:
                self._refuse(above or ".", _reason(error))
                continue
            for item in found:
                if item.name == _UNSTORED:
                    continue
                entry = self._entry(item, above + item.name)
                if entry is None:
                    continue
                self._count_in(entry)
                yield entry
                if entry.is_folder:
                    pending.append((entry.source, entry.path + "/"))

    def _entry(self, item: os.DirEntry[str], path: str) -> _Entry | None:
        source = Path(item.path)
        if not _is_text(item.name):
            self._refuse(ascii(path), "has a name that is not UTF-8")
            return None
        try:
            if item.is_symlink():
                return self._linked(path, source)
            facts = item.stat(follow_symlinks=False)
        except OSError as error:
            self._refuse(path, _reason(error))
            return None
        if item.is_dir(follow_symlinks=False):
            return _Entry(path, source, is_folder=True, size=0, executable=True)
        return self._file(path, source, facts)

    def _linked(self, path: str, source: Path) -> _Entry | None:
        real = os.path.realpath(source)
        if os.path.commonpath([self._root, real]) != self._root:
            self._refuse(path, "is a link that leads out of the folder")
            return None
        facts = Path(real).stat()
        if stat.S_ISDIR(facts.st_mode):
            self.left_out.append(path)
            return None
        return self._file(path, Path(real), facts)

    def _file(self, path: str, source: Path, facts: os.stat_result) -> _Entry | None:
        if not stat.S_ISREG(facts.st_mode):
            self._refuse(path, "is neither a file, a folder nor a link")
            return None
        if facts.st_size > self._limits.max_file_bytes:
            self._refuse(path, f"is larger than {self._limits.max_file_bytes >> 20} MiB")
            return None
        return _Entry(path, source, is_folder=False, size=facts.st_size, executable=bool(facts.st_mode & stat.S_IXUSR))

    def _count_in(self, entry: _Entry) -> None:
        self._count += 1
        self._total += entry.size
        if self._count > self._limits.max_entries:
            raise FolderRefused(str(self._folder), [f".: holds more than {self._limits.max_entries} files and folders"])
        if self._total > self._limits.max_total_bytes:
            raise FolderRefused(str(self._folder), [f".: holds more than {self._limits.max_total_bytes >> 20} MiB"])

    def _refuse(self, path: str, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"{path}: {problem}")


def _add(tar: tarfile.TarFile, folder: Path, entry: _Entry, replacement: bytes | None) -> None:
    """Writes one member; a file that changes or goes while it is read makes the whole folder refused."""
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o755 if entry.executable else 0o644
    if entry.is_folder:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return
    try:
        if replacement is not None:
            info.size = len(replacement)
            tar.addfile(info, io.BytesIO(replacement))
            return
        with entry.source.open("rb") as file:
            info.size = entry.size
            tar.addfile(info, file)
            if file.read(1):
                raise FolderRefused(str(folder), [f"{entry.path}: changed while it was read"])
    except OSError as error:
        raise FolderRefused(str(folder), [f"{entry.path}: {_reason(error)}"]) from None


def _is_text(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _reason(error: OSError) -> str:
    return error.strerror.lower() if error.strerror else "changed while it was read"
