"""Sealing from a tar stream: member by member, without a byte of it on a path of this machine.

The form of the manifest is that of every backend (`seal_manifest`). A member that breaks a rule costs itself only.
"""

from __future__ import annotations

import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Final

from tollbar.kit.text import is_plain_text, is_portable_path
from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import Refusal, SealedFile, SealLimits, StoreFile
from tollbar.sandboxes.links import LinkFault, resolve
from tollbar.sandboxes.member_names import shown
from tollbar.sandboxes.overlay_walk import Kind
from tollbar.sandboxes.seal import MAX_DEPTH
from tollbar.sandboxes.seal_entries import Declared, excluder
from tollbar.sandboxes.seal_manifest import (
    FOLDER_MODE,
    LINK_MODE,
    PLAIN_MODE,
    PROGRAM_MODE,
    ManifestEntry,
    Reason,
    Status,
)

_READ: Final = 256 << 10

Parts = tuple[str, ...]


@dataclass
class TarSealing:
    """One seal while it is taken: its bounds run over all of its entries together."""

    limits: SealLimits
    store: StoreFile
    now: Callable[[], float] = time.monotonic
    refusals: list[Refusal] = field(default_factory=list[Refusal])

    def __post_init__(self) -> None:
        self._deadline = self.now() + self.limits.timeout_s
        self._members_left = self.limits.max_members
        self._bytes_left = self.limits.max_total_bytes

    def entry(self, entry: Declared, archive: IO[bytes]) -> ManifestEntry:
        """Reads the archive of one declared path to its end and returns what was sealed of it; blocks, for a thread.

        The first member is the path itself, everything else lies below it. Raises `SandboxLost` (`seal`) for an
        archive that breaks off, and when the time is over.
        """
        before = len(self.refusals)
        with _opened(archive) as tar:
            members = iter(tar)
            top = next(members, None)
            if top is None:
                return ended(entry, Status.MISSING)
            if not top.isdir():
                return self._single(entry, tar, top)
            kept = _Folder(self, entry, tar).take(members)
        refused = len(self.refusals) > before
        status = Status.REFUSED if refused else Status.OK if kept else Status.EMPTY
        return ended(entry, status, Kind.FOLDER, tuple(kept))

    def refuse(self, name: str, reason: Reason) -> None:
        """Notes a member that is not sealed."""
        self.refusals.append(Refusal(shown(name), reason.value))

    def refused(self, entry: Declared, reason: Reason) -> ManifestEntry:
        """Notes an entry that is not sealed as a whole."""
        self.refuse(entry.destination or entry.path, reason)
        return ended(entry, Status.REFUSED)

    def count(self) -> bool:
        """Counts a member; False when there were too many. Raises `SandboxLost` when the time is over."""
        if self.now() > self._deadline:
            msg = f"Sealing took longer than {self.limits.timeout_s:g} s."
            raise SandboxLost("seal", msg)
        self._members_left -= 1
        return self._members_left >= 0

    def file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, place: str) -> SealedFile | Reason:
        """Stores a file; its apparent size is checked before anything is read."""
        if member.size > self.limits.max_file_bytes:
            return Reason.TOO_LARGE
        if member.size > self._bytes_left:
            return Reason.TOTAL_TOO_LARGE
        content = tar.extractfile(member)
        if content is None:
            return Reason.NOT_A_FILE
        with tempfile.TemporaryFile() as copy:
            size = _copy(content, copy)
            if size != member.size:
                return Reason.CHANGED
            copy.flush()
            copy.seek(0)
            sha256 = self.store(copy.fileno(), size)
        self._bytes_left -= size
        mode = PROGRAM_MODE if member.mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH) else PLAIN_MODE
        return SealedFile(place, Kind.FILE, size, mode, sha256=sha256)

    def _single(self, entry: Declared, tar: tarfile.TarFile, member: tarfile.TarInfo) -> ManifestEntry:
        if not member.isreg():
            return self.refused(entry, Reason.NOT_A_FILE)
        self.count()
        sealed = self.file(tar, member, entry.destination)
        if isinstance(sealed, Reason):
            return self.refused(entry, sealed)
        return ended(entry, Status.OK, Kind.FILE, (sealed,))


class _Folder:
    """The members of one declared folder."""

    def __init__(self, sealing: TarSealing, entry: Declared, tar: tarfile.TarFile) -> None:
        self._sealing = sealing
        self._entry = entry
        self._tar = tar
        self._left_out = excluder(entry.exclude)
        self._files: dict[str, SealedFile] = {}
        """By the member's name in the archive: what a hard link may point to."""
        self._links: dict[Parts, str] = {}
        self._out: set[Parts] = set()
        """Folders of which nothing is taken."""
        self._kept: list[SealedFile] = []

    def take(self, members: Iterable[tarfile.TarInfo]) -> list[SealedFile]:
        """Returns what was sealed."""
        for member in members:
            parts = tuple(member.name.split("/")[1:])
            if any(parts[:depth] in self._out for depth in range(1, len(parts))):
                continue
            if self._left_out("/".join(parts)):
                self._out.add(parts)
                continue
            if not self._sealing.count():
                self._sealing.refuse(self._entry.destination or self._entry.path, Reason.TOO_MANY)
                break
            self._member(member, parts)
        for path, target in self._links.items():
            self._link(path, target)
        return self._kept

    def _member(self, member: tarfile.TarInfo, parts: Parts) -> None:
        place = self._entry.place(parts)
        if not is_portable_path(place):
            self._refuse(parts, place, Reason.BAD_NAME)
        elif member.issym():
            self._links[parts] = member.linkname
        elif member.isdir():
            if len(parts) > MAX_DEPTH:
                self._refuse(parts, place, Reason.TOO_DEEP)
            else:
                self._kept.append(SealedFile(place, Kind.FOLDER, 0, FOLDER_MODE))
        elif member.islnk():
            self._hard_link(member, parts, place)
        elif member.isreg():
            sealed = self._sealing.file(self._tar, member, place)
            if isinstance(sealed, Reason):
                self._refuse(parts, place, sealed)
            else:
                self._files[member.name] = sealed
                self._kept.append(sealed)
        else:
            self._refuse(parts, place, Reason.NOT_A_FILE)

    def _hard_link(self, member: tarfile.TarInfo, parts: Parts, place: str) -> None:
        """A hard link is a file of its own; only one whose target was sealed from this archive has a content."""
        target = self._files.get(member.linkname)
        if target is None:
            self._refuse(parts, place, Reason.LINK_ESCAPES)
        else:
            self._kept.append(SealedFile(place, Kind.FILE, target.size, target.mode, sha256=target.sha256))

    def _refuse(self, parts: Parts, place: str, reason: Reason) -> None:
        self._out.add(parts)
        self._sealing.refuse(place, reason)

    def _link(self, path: Parts, target: str) -> None:
        place = self._entry.place(path)
        if target.startswith("/"):
            self._sealing.refuse(place, Reason.LINK_ABSOLUTE)
        elif not is_plain_text(target):
            self._sealing.refuse(place, Reason.BAD_NAME)
        else:
            try:
                resolve(path[:-1], target, self._links.get)
            except LinkFault:
                self._sealing.refuse(place, Reason.LINK_ESCAPES)
            else:
                self._kept.append(SealedFile(place, Kind.LINK, 0, LINK_MODE, target=target))


def ended(
    entry: Declared, status: Status, kind: Kind | None = None, members: tuple[SealedFile, ...] = ()
) -> ManifestEntry:
    """Returns what became of an entry."""
    return ManifestEntry(entry.path, entry.destination, status, kind, members, entry.exclude)


def outward(archive: IO[bytes]) -> Reason:
    """Returns why the link that an archive holds is refused on the way to an entry: every target lies outside."""
    with _opened(archive) as tar:
        member = next(iter(tar), None)
    return Reason.LINK_ABSOLUTE if member is not None and member.linkname.startswith("/") else Reason.LINK_ESCAPES


def read_member(archive: IO[bytes], max_bytes: int) -> bytes | None:
    """Returns at most `max_bytes` of the one regular file that an archive of a path holds, else None; blocks."""
    with _opened(archive) as tar:
        member = next(iter(tar), None)
        content = tar.extractfile(member) if member is not None and member.isreg() else None
        return None if content is None else content.read(max_bytes)


@contextmanager
def _opened(archive: IO[bytes]) -> Generator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=archive, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
            yield tar
    except (tarfile.TarError, OSError, EOFError) as error:
        msg = f"What the sandbox left cannot be read: {error}"
        raise SandboxLost("seal", msg) from error


def _copy(source: IO[bytes], target: IO[bytes]) -> int:
    size = 0
    while part := source.read(_READ):
        target.write(part)
        size += len(part)
    return size
