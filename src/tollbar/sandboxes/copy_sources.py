"""What a `COPY` takes from its build context: every file found by descriptor, hashed, and inside the context."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollbar.sandboxes.dockerignore import Ignore, PatternFault, go_match, has_wildcards, read_ignore, unescaped
from tollbar.sandboxes.links import LinkFault, resolve
from tollbar.sandboxes.overlay_walk import Kind, Member, locate, open_folder_at

_CHUNK: Final = 1 << 20
_MOST: Final = 1_000_000
"""Members of one folder of a context; a dataset has far fewer files."""
_IGNORE_BYTES: Final = 1 << 20
_IGNORE_FILES: Final = ("Dockerfile.dockerignore", ".dockerignore")

Parts = tuple[str, ...]


class SourceFault(ValueError):
    """A source cannot be copied; the text names it and says why."""


@dataclass(frozen=True)
class Item:
    """One member to copy: `path` in the context, `below` what is copied (`()` for a file that is a source itself).

    `mode` holds the execute bits, `content` a file's SHA-256 or a link's target.
    """

    path: Parts
    below: Parts
    kind: Kind
    mode: int
    content: str

    def facts(self) -> list[Any]:
        """Returns what the key of a layer says of it."""
        return ["/".join(self.path), self.kind.value, self.mode, self.content]


@dataclass(frozen=True)
class Source:
    """A source after wildcards: its last name, whether it is a folder, and its members in order."""

    name: str
    is_folder: bool
    items: tuple[Item, ...]


class Context:
    """A build context: a folder of ours, in which links are resolved by their text and never followed."""

    def __init__(self, folder: Path) -> None:
        self._layers = (folder,)
        self._ignore = self._read_ignore()

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Returns at most `max_bytes` of a regular file at the top, or None when there is none."""
        with locate(self._layers, (name,)) as found:
            if found.member is None or found.member.kind is not Kind.FILE:
                return None
            descriptor = found.member.open_file()
            with os.fdopen(descriptor, "rb") as file:
                return file.read(max_bytes)

    def has(self, name: str) -> bool:
        """Says whether something of that name lies at the top."""
        with locate(self._layers, (name,)) as found:
            return found.member is not None

    def sources(self, text: str) -> list[Source]:
        """Returns what one source word of `COPY` means. Raises `SourceFault`."""
        parts = tuple(part for part in text.split("/") if part not in {"", "."})
        if ".." in parts:
            raise SourceFault(f"takes {text!r}, which leaves the context")
        wild = next((depth for depth, part in enumerate(parts) if has_wildcards(part)), None)
        if wild is None:
            plain = tuple(unescaped(part) for part in parts)
            return [self._source(plain, text)]
        folder = self._real(tuple(unescaped(part) for part in parts[:wild]), text)
        try:
            pattern = go_match("/".join(parts[wild:]))
        except PatternFault:
            raise SourceFault(f"takes {text!r}, which is a malformed pattern") from None
        found: list[Parts] = []
        if self._kind(folder) is Kind.FOLDER:
            found = list(self._matches(folder, (), pattern.fullmatch))
        return [self._source(path, text) for path in found]

    def open_item(self, item: Item) -> int:
        """Returns a descriptor of a file that was found, to be closed by the caller."""
        with locate(self._layers, item.path) as found:
            if found.member is None or found.member.kind is not Kind.FILE:
                raise SourceFault(f"takes {'/'.join(item.path)!r}, which changed meanwhile")
            return found.member.open_file()

    def _read_ignore(self) -> Ignore:
        for name in _IGNORE_FILES:
            data = self.read(name, _IGNORE_BYTES)
            if data is not None:
                try:
                    return read_ignore(data.decode("utf-8"))
                except ValueError as fault:
                    raise SourceFault(f"cannot be read: {name} is malformed at {str(fault)[:80]!r}") from None
        return Ignore(())

    def _matches(self, folder: Parts, below: Parts, accepts: Callable[[str], Any]) -> Iterator[Parts]:
        """Yields the paths below a folder that a pattern accepts, in order; nothing below one of them."""
        for member in self._list((*folder, *below)):
            path = (*below, member.name)
            if accepts("/".join(path)):
                if not self._left_out((*folder, *path), member.kind):
                    yield (*folder, *path)
            elif member.kind is Kind.FOLDER:
                yield from self._matches(folder, path, accepts)

    def _source(self, path: Parts, text: str) -> Source:
        real = self._real(path, text)
        kind = self._kind(real)
        if kind is None or self._left_out(real, kind) or (path != real and self._ignore.ignores(path)):
            raise SourceFault(f"takes {text!r}, which is not in the context")
        if kind is Kind.FOLDER:
            return Source(path[-1] if path else "", is_folder=True, items=tuple(self._folder(real, ())))
        with locate(self._layers, real) as found:
            assert found.member is not None
            return Source(path[-1], is_folder=False, items=(self._item(found.member, real, ()),))

    def _folder(self, root: Parts, below: Parts) -> Iterator[Item]:
        for member in self._list((*root, *below)):
            path = (*root, *below, member.name)
            if member.kind is Kind.FOLDER:
                inner = list(self._folder(root, (*below, member.name))) if self._may_hold(path) else []
                if inner or not self._ignore.ignores(path):
                    yield Item(path, (*below, member.name), Kind.FOLDER, 0, "")
                yield from inner
            elif not self._ignore.ignores(path):
                with locate(self._layers, path) as found:
                    if found.member is not None:
                        yield self._item(found.member, path, (*below, member.name))

    def _item(self, member: Member, path: Parts, below: Parts) -> Item:
        name = "/".join(path)
        if member.kind is Kind.LINK:
            try:
                resolve(path[:-1], member.target(), self._link_at)
            except LinkFault as fault:
                raise SourceFault(f"takes the link {name!r}, which {fault}") from None
            return Item(path, below, Kind.LINK, 0, member.target())
        if member.kind is not Kind.FILE:
            raise SourceFault(f"takes {name!r}, which is neither a file, a folder nor a link")
        with os.fdopen(member.open_file(), "rb") as file:
            digest = hashlib.sha256()
            while part := file.read(_CHUNK):
                digest.update(part)
        return Item(path, below, Kind.FILE, member.facts.st_mode & 0o111, digest.hexdigest())

    def _may_hold(self, path: Parts) -> bool:
        return self._ignore.has_exceptions or not self._ignore.ignores(path)

    def _left_out(self, path: Parts, kind: Kind) -> bool:
        """Says whether nothing of a source is left by `.dockerignore`."""
        if not path or not self._ignore.ignores(path):
            return False
        return kind is not Kind.FOLDER or not self._ignore.has_exceptions or not any(self._folder(path, ()))

    def _real(self, path: Parts, text: str) -> Parts:
        try:
            return resolve((), "/".join(path), self._link_at)
        except LinkFault as fault:
            raise SourceFault(f"takes {text!r}, a link that {fault}") from None

    def _link_at(self, path: Parts) -> str | None:
        with locate(self._layers, path) as found:
            is_link = found.member is not None and found.member.kind is Kind.LINK
            return found.member.target() if found.member is not None and is_link else None

    def _kind(self, path: Parts) -> Kind | None:
        if not path:
            return Kind.FOLDER
        with locate(self._layers, path) as found:
            return None if found.member is None else found.member.kind

    def _list(self, path: Sequence[str]) -> list[Member]:
        with open_folder_at(self._layers, path) as folder:
            # The members' descriptors close with the folder: only names and kinds are used of them.
            return folder.members(_MOST)
