"""Reads an uploaded tar into memory, bounded, and refuses what could leave its folder. Nothing is extracted."""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.problems import Problem
from tollbar.datasets.tree import GIT_FOLDER, LinkFault, Tree
from tollbar.kit.errors import RequestTooLarge
from tollbar.kit.text import printable

UPLOAD: Final = "upload"
"""Stands for the archive itself where a problem names a file."""
_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_MAX_HEADER: Final = 16 << 10
_BLOCK: Final = 512


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds of one upload."""

    max_entries: int = 20_000
    max_file_bytes: int = 64 << 20
    max_total_bytes: int = 256 << 20


def read_upload(archive: Path, problems: list[Problem], limits: ArchiveLimits | None = None) -> Tree:
    """Returns the files and links of a tar (plain or gzip); refused members are added to `problems`.

    Blocks, so call it in a thread. Raises `RequestTooLarge` beyond the total size, and `UnsupportedTaskFormat`
    when the file is no tar or too broken to go on.
    """
    bounds = limits or ArchiveLimits()
    with archive.open("rb") as file:
        if file.read(2) != _GZIP:
            file.seek(0)
            return _Reader(file, bounds, problems).read()
        file.seek(0)
        with tempfile.TemporaryFile() as plain:
            _inflate(file, plain, bounds)
            plain.seek(0)
            return _Reader(plain, bounds, problems).read()


def _inflate(source: IO[bytes], target: IO[bytes], bounds: ArchiveLimits) -> None:
    """Unpacks gzip into `target`; bounded, because a few bytes can stand for many."""
    most = bounds.max_total_bytes + bounds.max_entries * 4 * _BLOCK
    inflater = zlib.decompressobj(wbits=31)
    written = 0
    try:
        while data := inflater.unconsumed_tail or source.read(_CHUNK):
            part = inflater.decompress(data, _CHUNK)
            written += target.write(part)
            if written > most:
                raise RequestTooLarge(bounds.max_total_bytes)
            if inflater.eof:
                return
    except zlib.error:
        raise _broken("is not valid gzip") from None
    raise _broken("ends before its gzip data do")


def _broken(message: str) -> UnsupportedTaskFormat:
    return UnsupportedTaskFormat([Problem(UPLOAD, message, allowed="a tar of the dataset folder, plain or gzip")])


class _Headers:
    """The archive as `tarfile` sees it: it reads headers alone, so a large read is a hostile header."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise _broken(f"holds a header of more than {_MAX_HEADER} bytes")
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


class _Reader:
    """Collects the members of one archive."""

    def __init__(self, file: IO[bytes], bounds: ArchiveLimits, problems: list[Problem]) -> None:
        self._file = file
        self._bounds = bounds
        self._problems = problems
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._folders: set[str] = set()
        self._total = 0

    def read(self) -> Tree:
        try:
            with tarfile.open(fileobj=_Headers(self._file), mode="r:", encoding="utf-8") as tar:  # type: ignore[arg-type]  # three methods are all that it calls
                for number, member in enumerate(tar, start=1):
                    if number > self._bounds.max_entries:
                        raise _broken(f"holds more than {self._bounds.max_entries} entries")
                    if member.size < 0:
                        raise _broken("holds an entry of negative size")
                    self._take(member)
                self._check_end(tar.offset)
        except (tarfile.TarError, ValueError, OverflowError, LookupError, EOFError):
            raise _broken("is not a tar archive, or a damaged one") from None
        return self._checked_links()

    def _check_end(self, offset: int) -> None:
        """Reading stops silently at a broken header or a cut; the block of zeros that ends a tar proves its end."""
        self._file.seek(offset)
        if self._file.read(_BLOCK) != bytes(_BLOCK):
            raise _broken(f"is damaged or cut off at byte {offset}")

    def _take(self, member: tarfile.TarInfo) -> None:
        path = self._path(member)
        if path is None or not path:
            return
        parents = [path[:index] for index, char in enumerate(path) if char == "/"]
        if any(parent in self._files or parent in self._links for parent in parents):
            self._refuse(member, "lies below something that is not a folder")
            return
        self._folders.update(parents)
        if member.isdir():
            self._take_folder(member, path)
        elif path in self._files or path in self._links or path in self._folders:
            self._refuse(member, "stands in the archive twice")
        elif member.issym():
            self._links[path] = member.linkname
        elif member.islnk():
            self._take_hard_link(member, path)
        elif member.isreg() and member.sparse is None:
            self._take_file(member, path)
        else:
            self._refuse(member, "is neither a file, a folder nor a link", allowed="no devices, FIFOs or sparse files")

    def _path(self, member: tarfile.TarInfo) -> str | None:
        """Returns the member's path, or None after refusing its name."""
        name = member.name
        parts = [part for part in name.split("/") if part not in {"", "."}]
        if name.startswith("/"):
            self._refuse(member, "has an absolute name")
        elif ".." in parts:
            self._refuse(member, "leaves the folder by '..'")
        elif "\\" in name or printable(name) != name or "\n" in name or "\t" in name:
            self._refuse(member, "has a name with control characters or backslashes, or that is not UTF-8")
        elif len(name.encode()) > 1024 or any(len(part.encode()) > 255 for part in parts):
            self._refuse(member, "has a name that is too long")
        else:
            return "/".join(parts)
        return None

    def _take_folder(self, member: tarfile.TarInfo, path: str) -> None:
        if path in self._files or path in self._links:
            self._refuse(member, "stands in the archive twice")
        else:
            self._folders.add(path)

    def _take_file(self, member: tarfile.TarInfo, path: str) -> None:
        if member.size > self._bounds.max_file_bytes:
            self._refuse(member, f"is larger than {self._bounds.max_file_bytes} bytes", found=f"{member.size} bytes")
            return
        self._add(path, self._data(member))

    def _data(self, member: tarfile.TarInfo) -> bytes:
        self._file.seek(member.offset_data)
        data = self._file.read(member.size)
        if len(data) != member.size:
            raise _broken("ends in the middle of a file")
        return data

    def _take_hard_link(self, member: tarfile.TarInfo, path: str) -> None:
        target = "/".join(part for part in member.linkname.split("/") if part not in {"", "."})
        if member.linkname.startswith("/") or target not in self._files:
            self._refuse(member, "is a hard link to something that does not stand before it in the archive")
            return
        self._add(path, self._files[target])

    def _add(self, path: str, data: bytes) -> None:
        self._total += len(data)
        if self._total > self._bounds.max_total_bytes:
            raise RequestTooLarge(self._bounds.max_total_bytes)
        if path.partition("/")[0] != GIT_FOLDER:
            self._files[path] = data

    def _checked_links(self) -> Tree:
        tree = Tree(self._files, self._links)
        faulty: dict[str, str] = {}
        for path in self._links:
            try:
                tree.real_path(path)
            except LinkFault as fault:
                faulty[path] = str(fault)
        for path, fault in faulty.items():
            self._problems.append(Problem(path, fault, found=printable(self._links.pop(path))[:80]))
        return tree

    def _refuse(
        self, member: tarfile.TarInfo, message: str, *, found: str | None = None, allowed: str | None = None
    ) -> None:
        name = printable(member.name)[:256]
        self._problems.append(Problem(name, message, found=found, allowed=allowed))
