"""Sealing: the record of what a sandbox left, taken from its layers once every process in it is dead.

The form of the manifest stands in `seal_manifest`. Whatever a tenant wrote costs at most the member itself: it is
refused, recorded, and the rest is kept. Blobs are stored first; a seal without its manifest does not exist.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tollbar.kit.text import is_plain_text, is_portable_path
from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import ArtifactPath, Refusal, Seal, SealedFile, SealLimits, StoreFile
from tollbar.sandboxes.links import LinkFault, resolve
from tollbar.sandboxes.member_names import shown
from tollbar.sandboxes.overlay_walk import Kind, Member, components_of, locate, open_folder_at
from tollbar.sandboxes.seal_entries import Declared, declared, excluder
from tollbar.sandboxes.seal_manifest import (
    FOLDER_MODE,
    LINK_MODE,
    PLAIN_MODE,
    PROGRAM_MODE,
    ManifestEntry,
    Reason,
    Status,
    make_seal,
    read_manifest,
)
from tollbar.sandboxes.seal_restore import restore

__all__ = ["read_file_overlay", "read_manifest", "restore", "seal_overlay"]

MAX_DEPTH: Final = 64
"""Folders within folders of one entry; each is walked from the root, so that few descriptors are open."""

_CHANGED: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.ENXIO})
"""What opening a file says that has gone, or become a link or a socket, since it was listed."""

Parts = tuple[str, ...]


def seal_overlay(
    upper: Path,
    lowers: Sequence[Path],
    paths: Sequence[ArtifactPath],
    limits: SealLimits,
    store: StoreFile,
    *,
    now: Callable[[], float] = time.monotonic,
) -> Seal:
    """Seals declared paths as the overlay of `lowers` (bottom first) and `upper` shows them; blocks, for a thread.

    `store` keeps the bytes of each file and raises `ValueError` when the file does not hold as many as it said.
    Equal trees give equal manifests. Raises `SandboxLost` (`seal`) for what is a fault of ours: a disk that cannot
    be read or written, or more than `limits.timeout_s` seconds of `now`.
    """
    sealing = _Sealing(upper, lowers, limits, store, now)
    try:
        entries = sealing.entries([declared(path) for path in paths])
    except OSError as error:
        msg = f"What the sandbox left cannot be sealed: {error.strerror}."
        raise SandboxLost("seal", msg) from error
    return make_seal(entries, sealing.refusals)


def read_file_overlay(upper: Path, lowers: Sequence[Path], path: str, max_bytes: int) -> bytes | None:
    """Returns the first `max_bytes` of a regular file as the overlay shows it, or None when there is none.

    A link is never followed, neither at the end of the path nor on the way. Blocks, for a thread. Raises `ValueError`
    for a path that is not absolute or holds `..`, `SandboxLost` when the disk cannot be read.
    """
    parts = components_of(path)
    if not parts:
        return None
    try:
        with locate((upper, *reversed(lowers)), parts) as found:
            if found.member is None or found.member.kind is not Kind.FILE:
                return None
            descriptor = found.member.open_file()
            try:
                return _read(descriptor, max_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
            finally:
                os.close(descriptor)
    except OSError as error:
        msg = f"What the sandbox left cannot be read: {error.strerror}."
        raise SandboxLost("seal", msg) from error


def _read(descriptor: int, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


class _Sealing:
    """One seal while it is taken: what was counted, and what was refused."""

    def __init__(
        self,
        upper: Path,
        lowers: Sequence[Path],
        limits: SealLimits,
        store: StoreFile,
        now: Callable[[], float],
    ) -> None:
        self.refusals: list[Refusal] = []
        self._image = tuple(reversed(lowers))
        self._layers = (upper, *self._image)
        self._limits = limits
        self._store = store
        self._now = now
        self._deadline = now() + limits.timeout_s
        self._members_left = limits.max_members
        self._bytes_left = limits.max_total_bytes

    def entries(self, wanted: Sequence[Declared]) -> list[ManifestEntry]:
        """Returns what became of each entry; of two whose places overlap the first is taken."""
        taken: list[tuple[Declared, ManifestEntry]] = []
        entries: list[ManifestEntry] = []
        for entry in wanted:
            cover = next((sealed for other, sealed in taken if other.covers(entry)), None)
            if entry.destination and not is_portable_path(entry.destination):
                entries.append(self._refused(entry, Reason.BAD_NAME))
            elif cover is not None:
                entries.append(self._covered(entry, cover))
            elif any(other.overlaps(entry) for other, _ in taken):
                entries.append(_ended(entry, Status.SKIPPED))
            else:
                entries.append(self._entry(entry))
                taken.append((entry, entries[-1]))
        return entries

    def _entry(self, entry: Declared) -> ManifestEntry:
        if not entry.source:
            return self._folder(entry)
        with locate(self._layers, entry.source) as found:
            member = found.through or found.member
            if member is None:
                return _ended(entry, Status.MISSING, self._in_image(entry))
            if member.kind is Kind.FILE:
                sealed = self.file(member, entry.destination)
                if isinstance(sealed, Reason):
                    return self._refused(entry, sealed)
                return _ended(entry, Status.OK, Kind.FILE, (sealed,))
            if member.kind is not Kind.FOLDER:
                return self._refused(entry, _outward(member) if member.kind is Kind.LINK else Reason.NOT_A_FILE)
        return self._folder(entry)

    def _folder(self, entry: Declared) -> ManifestEntry:
        before = len(self.refusals)
        members = tuple(_FolderWalk(self, entry).members())
        status = Status.OK if members else Status.EMPTY
        return _ended(entry, Status.REFUSED if len(self.refusals) > before else status, Kind.FOLDER, members)

    def _covered(self, entry: Declared, cover: ManifestEntry) -> ManifestEntry:
        """Returns an entry that an earlier one took to the same place; its members stand there."""
        place = entry.destination
        if place == cover.destination:
            return _ended(entry, cover.status, cover.kind)
        kind = next((member.kind for member in cover.members if member.path == place), None)
        if kind is None:
            with locate(self._layers, entry.source) as found:
                missing = found.member is None and found.through is None
            return _ended(entry, Status.MISSING if missing else Status.REFUSED, self._in_image(entry))
        if kind != Kind.FOLDER:
            return _ended(entry, Status.OK, Kind(kind))
        if any(refusal.name.startswith(f"{place}/") for refusal in self.refusals):
            return _ended(entry, Status.REFUSED, Kind.FOLDER)
        full = any(member.path.startswith(f"{place}/") for member in cover.members)
        return _ended(entry, Status.OK if full else Status.EMPTY, Kind.FOLDER)

    def _refused(self, entry: Declared, reason: Reason) -> ManifestEntry:
        self.refuse(entry.destination or entry.path, reason)
        return _ended(entry, Status.REFUSED, self._in_image(entry))

    def _in_image(self, entry: Declared) -> Kind | None:
        """Returns what the image has at the entry's path: a verifier of that image must not see it again."""
        if not self._image or not entry.source:
            return None
        with locate(self._image, entry.source) as found:
            kind = None if found.member is None else found.member.kind
        return kind if kind in {Kind.FILE, Kind.FOLDER} else None

    def refuse(self, name: str, reason: Reason) -> None:
        self.refusals.append(Refusal(shown(name), reason.value))

    def take_member(self) -> bool:
        """Counts a member; says False when there were too many."""
        self.check_time()
        self._members_left -= 1
        return self._members_left >= 0

    @property
    def members_left(self) -> int:
        """Returns how many members may still come."""
        return max(self._members_left, 0)

    @property
    def layers(self) -> tuple[Path, ...]:
        return self._layers

    def check_time(self) -> None:
        if self._now() > self._deadline:
            msg = f"Sealing took longer than {self._limits.timeout_s:g} s."
            raise SandboxLost("seal", msg)

    def file(self, member: Member, place: str) -> SealedFile | Reason:
        """Stores a file. Its size is the apparent one and is checked before anything is read."""
        size = member.facts.st_size
        if size > self._limits.max_file_bytes:
            return Reason.TOO_LARGE
        if size > self._bytes_left:
            return Reason.TOTAL_TOO_LARGE
        try:
            descriptor = member.open_file()
        except OSError as error:
            if error.errno in _CHANGED:
                return Reason.CHANGED
            raise
        try:
            if not _same(os.fstat(descriptor), member.facts):
                return Reason.CHANGED
            sha256 = self._store(descriptor, size)
            if not _same(os.fstat(descriptor), member.facts):
                return Reason.CHANGED
        except ValueError:
            return Reason.CHANGED
        finally:
            os.close(descriptor)
        self._bytes_left -= size
        mode = PROGRAM_MODE if member.facts.st_mode & 0o111 else PLAIN_MODE
        return SealedFile(place, Kind.FILE, size, mode, sha256=sha256)


class _FolderWalk:
    """The members of one declared folder."""

    def __init__(self, sealing: _Sealing, entry: Declared) -> None:
        self._sealing = sealing
        self._entry = entry
        self._left_out = excluder(entry.exclude)
        self._links: dict[Parts, str] = {}
        self._kept: list[SealedFile] = []
        self._full = False

    def members(self) -> list[SealedFile]:
        """Returns what was sealed, folders before what lies in them."""
        pending: list[Parts] = [()]
        while pending and not self._full:
            below = pending.pop()
            pending.extend(reversed(self._list(below)))
        for path, target in self._links.items():
            self._link(path, target)
        return self._kept

    def _list(self, below: Parts) -> list[Parts]:
        """Takes the members of one folder and returns the folders among them."""
        sealing = self._sealing

        def wanted(name: str) -> bool:
            sealing.check_time()
            return not self._left_out("/".join((*below, name)))

        folders: list[Parts] = []
        with open_folder_at(sealing.layers, (*self._entry.source, *below)) as folder:
            for member in folder.members(sealing.members_left + 1, wanted):
                if not sealing.take_member():
                    sealing.refuse(self._entry.destination or self._entry.path, Reason.TOO_MANY)
                    self._full = True
                    break
                path = (*below, member.name)
                if self._take(member, path):
                    folders.append(path)
        return folders

    def _take(self, member: Member, path: Parts) -> bool:
        """Takes one member; says whether it is a folder to be walked."""
        place = self._entry.place(path)
        if not is_portable_path(place):
            self._sealing.refuse(place, Reason.BAD_NAME)
        elif member.kind is Kind.LINK:
            self._links[path] = member.target()
        elif member.kind is Kind.FILE:
            sealed = self._sealing.file(member, place)
            if isinstance(sealed, Reason):
                self._sealing.refuse(place, sealed)
            else:
                self._kept.append(sealed)
        elif member.kind is Kind.FOLDER and len(path) <= MAX_DEPTH:
            self._kept.append(SealedFile(place, Kind.FOLDER, 0, FOLDER_MODE))
            return True
        else:
            self._sealing.refuse(place, Reason.TOO_DEEP if member.kind is Kind.FOLDER else Reason.NOT_A_FILE)
        return False

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


def _ended(
    entry: Declared, status: Status, kind: Kind | None = None, members: tuple[SealedFile, ...] = ()
) -> ManifestEntry:
    return ManifestEntry(entry.path, entry.destination, status, kind, members, entry.exclude)


def _outward(link: Member) -> Reason:
    """Returns why a link is refused that is an entry itself, or on the way to one: every target lies outside."""
    return Reason.LINK_ABSOLUTE if link.target().startswith("/") else Reason.LINK_ESCAPES


def _same(left: os.stat_result, right: os.stat_result) -> bool:
    return (left.st_dev, left.st_ino, stat.S_IFMT(left.st_mode), left.st_size, left.st_mtime_ns) == (
        right.st_dev,
        right.st_ino,
        stat.S_IFMT(right.st_mode),
        right.st_size,
        right.st_mtime_ns,
    )
