"""A sandbox's files as its overlay shows them, read from the layers while nothing of it is mounted.

Every step is taken by descriptor and never through a link: the upper layer was written by a tenant. A character
device 0:0 hides the name below it, and a folder marked opaque hides everything below it.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tollbar.sandboxes.upper import OPAQUE

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNMARKED: Final = frozenset({errno.ENODATA, errno.ENOTSUP})
_NO_SUCH: Final = frozenset({errno.ENOENT, errno.ENAMETOOLONG})


class Kind(StrEnum):
    """What a member is."""

    FILE = "file"
    FOLDER = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True)
class Member:
    """A visible name; `holder` is the open layer folder in which it lies, valid while its `MergedFolder` is open."""

    name: str
    kind: Kind
    facts: os.stat_result
    holder: int

    def target(self) -> str:
        """Returns the target of a link, bytes that are no UTF-8 as lone surrogates."""
        return os.readlink(self.name, dir_fd=self.holder)

    def open_file(self) -> int:
        """Returns a descriptor of the file; its owner's lack of rights is mended first. Never waits, never follows."""
        return _open_readable(self.name, self.holder, 0)


class MergedFolder:
    """A folder as the overlay shows it: the same folder of several layers, open, the uppermost first."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._descriptors = tuple(descriptors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its descriptors; safe to repeat."""
        descriptors, self._descriptors = self._descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)

    def look(self, name: str) -> Member | None:
        """Returns what is visible under a name, or None."""
        for descriptor in self._descriptors:
            facts = _facts(name, descriptor)
            if facts is not None:
                return None if is_whiteout(facts) else Member(name, _kind(facts.st_mode), facts, descriptor)
        return None

    def members(self, most: int, wanted: Callable[[str], bool] | None = None) -> list[Member]:
        """Returns the visible members that are `wanted`, by the bytes of their names, at most the first `most`.

        Memory is bounded by `most`, whatever the number of names. `wanted` is asked once per name, so it is also the
        place to raise for a deadline.
        """
        names = heapq.nsmallest(most, self._names(wanted), key=os.fsencode)
        return [member for name in names if (member := self.look(name)) is not None]

    def enter(self, name: str) -> MergedFolder:
        """Returns the folder of that name, open. Raises `OSError` when it is none."""
        opened: list[int] = []
        try:
            for descriptor in self._descriptors:
                facts = _facts(name, descriptor)
                if facts is None:
                    continue
                if not stat.S_ISDIR(facts.st_mode):
                    break
                opened.append(_open_readable(name, descriptor, os.O_DIRECTORY))
                if _is_opaque(opened[-1]):
                    break
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        if not opened:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return MergedFolder(opened)

    def _names(self, wanted: Callable[[str], bool] | None) -> Iterator[str]:
        for depth, descriptor in enumerate(self._descriptors):
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if wanted is not None and not wanted(entry.name):
                        continue
                    if any(_facts(entry.name, above) is not None for above in self._descriptors[:depth]):
                        continue
                    plain = (
                        entry.is_file(follow_symlinks=False)
                        or entry.is_dir(follow_symlinks=False)
                        or entry.is_symlink()
                    )
                    if plain or not is_whiteout(entry.stat(follow_symlinks=False)):
                        yield entry.name


@dataclass(frozen=True)
class Located:
    """What a path leads to: `member` in the open `folder`, or None; `through` is the link that stands in the way."""

    folder: MergedFolder
    member: Member | None
    through: Member | None = None


def open_tree(layers: Sequence[Path]) -> MergedFolder:
    """Returns the root of an overlay, open; `layers` are its folders, the uppermost first."""
    opened: list[int] = []
    try:
        opened.extend(os.open(layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for layer in layers)
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return MergedFolder(opened)


@contextmanager
def locate(layers: Sequence[Path], parts: Sequence[str]) -> Generator[Located]:
    """Yields what lies at the path of those components (at least one), without following any link."""
    folder = open_tree(layers)
    try:
        member = folder.look(parts[0])
        for name in parts[1:]:
            if member is None or member.kind is not Kind.FOLDER:
                link = member is not None and member.kind is Kind.LINK
                yield Located(folder, None, member if link else None)
                return
            child = folder.enter(member.name)
            folder.close()
            folder = child
            member = folder.look(name)
        yield Located(folder, member)
    finally:
        folder.close()


@contextmanager
def open_folder_at(layers: Sequence[Path], parts: Sequence[str]) -> Generator[MergedFolder]:
    """Yields the folder at the path of those components, open. Raises `OSError` when there is none."""
    folder = open_tree(layers)
    try:
        for name in parts:
            child = folder.enter(name)
            folder.close()
            folder = child
        yield folder
    finally:
        folder.close()


def components_of(path: str) -> tuple[str, ...]:
    """Returns the parts of an absolute path, `()` for the root. Raises `ValueError` for any other path."""
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    surrogates = any("\ud800" <= char <= "\udfff" for char in path)
    if not path.startswith("/") or ".." in parts or "\0" in path or surrogates:
        msg = f"{path!r} is not an absolute path without '..'"
        raise ValueError(msg)
    return parts


def is_whiteout(facts: os.stat_result) -> bool:
    """Says whether a member of a layer hides the name below it."""
    return stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def _facts(name: str, descriptor: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_SUCH:
            return None
        raise


def _is_opaque(descriptor: int) -> bool:
    try:
        return os.getxattr(descriptor, OPAQUE) == b"y"
    except OSError as error:
        if error.errno in _UNMARKED:
            return False
        raise


def _open_readable(name: str, holder: int, flags: int) -> int:
    """Opens a file or folder; rights that its owner took from himself are given back, the others stay."""
    try:
        descriptor = os.open(name, _READ | flags, dir_fd=holder)
    except PermissionError:
        _let_read(name, holder)
        descriptor = os.open(name, _READ | flags, dir_fd=holder)
    facts = os.fstat(descriptor)
    if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_IXUSR:
        # A folder that can be listed but not passed; a failure shows at the next step.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IMODE(facts.st_mode) | stat.S_IXUSR)
    return descriptor


def _let_read(name: str, holder: int) -> None:
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=holder)
    try:
        mode = os.fstat(handle).st_mode
        needed = stat.S_IRUSR | stat.S_IXUSR if stat.S_ISDIR(mode) else stat.S_IRUSR
        Path(f"/proc/self/fd/{handle}").chmod(stat.S_IMODE(mode) | needed)
    finally:
        os.close(handle)
