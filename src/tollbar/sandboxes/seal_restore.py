"""Putting sealed members back at their original paths, below a folder that becomes an input layer of a verifier."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tollbar.kit.text import is_portable_path
from tollbar.sandboxes.interface import SealedFile
from tollbar.sandboxes.links import LinkFault, resolve
from tollbar.sandboxes.overlay_walk import Kind, components_of
from tollbar.sandboxes.seal_manifest import FOLDER_MODE, PLAIN_MODE, PROGRAM_MODE, ManifestEntry, SealManifest, Status
from tollbar.sandboxes.upper import OPAQUE

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FIXED_TIME_S: Final = 315_619_200
"""1980-01-02, so that equal seals give equal layers; some archivers refuse earlier times."""

GetBlob = Callable[[str, int], None]
"""Writes the bytes of a blob (by SHA-256) into an open file descriptor; called in a thread."""

Parts = tuple[str, ...]


def restore(manifest: SealManifest, get_blob: GetBlob, folder: Path) -> None:
    """Writes sealed members at their original absolute paths below `folder`, which exists and is empty.

    Files get 0644 or 0755, folders 0755, everything a fixed time. As a layer it also hides what the image has there:
    a sealed folder is opaque, and a file of the image that the tenant removed gets a whiteout. Nothing is written
    outside `folder`, whatever the manifest says; blocks, for a thread. Raises `ValueError` for a manifest that no
    seal can have, and what `get_blob` raises.
    """
    entries = [entry for entry in manifest.entries if entry.status is not Status.SKIPPED]
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        layer = _Layer(top, get_blob)
        for entry in entries:
            if entry.kind is Kind.FOLDER and _is_wanted(entry, entries):
                layer.folder(components_of(entry.source), opaque=True)
        for kind, write in ((Kind.FOLDER, layer.member_folder), (Kind.FILE, layer.file), (Kind.LINK, layer.link)):
            for entry in entries:
                write(entry, [member for member in entry.members if member.kind == kind])
        for entry in entries:
            if entry.kind is Kind.FILE and not entry.members and _is_wanted(entry, entries):
                layer.whiteout(components_of(entry.source))
        layer.settle_times()
    except (FileExistsError, NotADirectoryError) as error:
        msg = "the manifest has two members of which one lies in the other's way"
        raise ValueError(msg) from error
    finally:
        os.close(top)


def _is_wanted(entry: ManifestEntry, entries: Iterable[ManifestEntry]) -> bool:
    """Says whether an entry has a trace of its own: what a sealed folder above it lacks stays away with it."""
    if entry.members or entry.status in {Status.OK, Status.EMPTY}:
        return entry.kind is Kind.FOLDER
    source = components_of(entry.source)
    others = [components_of(other.source) for other in entries if other is not entry and other.kind is Kind.FOLDER]
    return not any(source[: len(other)] == other for other in others)


class _Layer:
    """The layer while it is written; folders first and links last, so that no path leads through a link."""

    def __init__(self, top: int, get_blob: GetBlob) -> None:
        self._top = top
        self._get_blob = get_blob
        self._written: dict[Parts, SealedFile] = {}
        self._folders: set[Parts] = {()}

    def folder(self, path: Parts, *, opaque: bool = False) -> None:
        descriptor = self._open(path)
        try:
            if opaque and path:
                os.setxattr(descriptor, OPAQUE, b"y")
        finally:
            os.close(descriptor)

    def member_folder(self, entry: ManifestEntry, members: Sequence[SealedFile]) -> None:
        for member in members:
            self.folder(_path(entry, member))

    def file(self, entry: ManifestEntry, members: Sequence[SealedFile]) -> None:
        for member in members:
            path = _path(entry, member)
            if not self._is_new(path, member) or member.sha256 is None:
                continue
            parent = self._open(path[:-1])
            try:
                descriptor = os.open(path[-1], _NEW, 0o600, dir_fd=parent)
            finally:
                os.close(parent)
            try:
                self._get_blob(member.sha256, descriptor)
                os.fchmod(descriptor, PROGRAM_MODE if member.mode & 0o111 else PLAIN_MODE)
                os.utime(descriptor, (FIXED_TIME_S, FIXED_TIME_S))
            finally:
                os.close(descriptor)

    def link(self, entry: ManifestEntry, members: Sequence[SealedFile]) -> None:
        source = components_of(entry.source)
        targets = {_path(entry, member)[len(source) :]: member.target or "" for member in members}
        for member in members:
            path = _path(entry, member)
            target = targets[path[len(source) :]]
            try:
                resolve(path[len(source) : -1], target, targets.get)
            except LinkFault as error:
                msg = f"the link {member.path!r} of the manifest {error}"
                raise ValueError(msg) from error
            if self._is_new(path, member):
                parent = self._open(path[:-1])
                try:
                    os.symlink(target, path[-1], dir_fd=parent)
                    os.utime(path[-1], (FIXED_TIME_S, FIXED_TIME_S), dir_fd=parent, follow_symlinks=False)
                finally:
                    os.close(parent)

    def whiteout(self, path: Parts) -> None:
        """Hides a file of the image; every user may make such a device."""
        if path not in self._written:
            parent = self._open(path[:-1])
            try:
                os.mknod(path[-1], stat.S_IFCHR | 0o600, os.makedev(0, 0), dir_fd=parent)
            finally:
                os.close(parent)

    def settle_times(self) -> None:
        """Gives the folders their time, once nothing changes in them any more."""
        for path in self._folders:
            descriptor = self._open(path)
            try:
                os.utime(descriptor, (FIXED_TIME_S, FIXED_TIME_S))
            finally:
                os.close(descriptor)

    def _is_new(self, path: Parts, member: SealedFile) -> bool:
        """Says whether a path is written for the first time; entries may hold the same file at two places."""
        known = self._written.setdefault(path, member)
        if (known.kind, known.sha256, known.target) != (member.kind, member.sha256, member.target):
            msg = f"the manifest has two different members at {'/' + '/'.join(path)!r}"
            raise ValueError(msg)
        return known is member

    def _open(self, path: Parts) -> int:
        """Returns a descriptor of the folder at a path, made where it is missing; a link on the way is an error."""
        current = os.dup(self._top)
        for depth, name in enumerate(path, start=1):
            try:
                if path[:depth] not in self._folders:
                    os.mkdir(name, FOLDER_MODE, dir_fd=current)
                child = os.open(name, _OPEN, dir_fd=current)
            finally:
                os.close(current)
            current = child
            if path[:depth] not in self._folders:
                self._folders.add(path[:depth])
                os.fchmod(current, FOLDER_MODE)
        return current


def _path(entry: ManifestEntry, member: SealedFile) -> Parts:
    """Returns the original path of a member. Raises `ValueError` when it does not belong to its entry."""
    source = components_of(entry.source)
    if entry.kind is Kind.FILE and member.path == entry.destination and member.kind == Kind.FILE and source:
        return source
    start = f"{entry.destination}/" if entry.destination else ""
    if entry.kind is not Kind.FOLDER or not member.path.startswith(start) or not is_portable_path(member.path):
        msg = f"the member {member.path!r} does not belong to its entry"
        raise ValueError(msg)
    return (*source, *member.path[len(start) :].split("/"))
