"""One layer of an image: what a step adds to the layers below it, planned first and then written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tollbar.sandboxes.base import BaseInfo
from tollbar.sandboxes.copy_sources import Context, Item, Source, SourceFault
from tollbar.sandboxes.links import LinkFault, resolve
from tollbar.sandboxes.overlay_walk import Kind, locate

FOLDER_MODE: Final = 0o755
FILE_MODE: Final = 0o644
_CHUNK: Final = 1 << 20
_KERNEL_FOLDERS: Final = ("proc", "dev")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Parts = tuple[str, ...]


class ReadOnlyPlace(ValueError):
    """The base does not let a build write there; the text says where and why."""


class PlaceTaken(ValueError):
    """Something of another kind stands where a file or folder has to go."""


@dataclass(frozen=True)
class View:
    """The image so far: layers above a base, as a sandbox would show them."""

    base: BaseInfo
    layers: tuple[Path, ...]

    def resolve(self, path: str) -> Parts:
        """Returns where an absolute path leads once the image's own links are followed. Raises `PlaceTaken`."""
        try:
            return resolve((), path, self._link_at, rooted=True)
        except LinkFault as fault:
            raise PlaceTaken(f"{path} {fault}") from None

    def kind(self, path: Parts) -> Kind | None:
        """Returns what lies at a path, or None."""
        if not path:
            return Kind.FOLDER
        with locate(self._stack, path) as found:
            member = found.member or found.through
            return None if member is None else member.kind

    def mode(self, path: Parts) -> int:
        """Returns the permissions of a folder of the image."""
        with locate(self._stack, path) as found:
            return FOLDER_MODE if found.member is None else found.member.facts.st_mode & 0o7777

    def check_writable(self, path: Parts) -> None:
        """Raises `ReadOnlyPlace` for a path that lies in what the base binds or the kernel fills."""
        for place in self._closed():
            if path[: len(place)] == place:
                where = "/" + "/".join(place)
                raise ReadOnlyPlace(f"{where} is read-only on the base {self.base.name}")

    def bound_folder(self, path: Parts) -> bool:
        """Says whether a folder exists at a path that lies in a bind of the base."""
        for source, inside in self.base.binds:
            place = tuple(inside.strip("/").split("/"))
            if path[: len(place)] == place:
                return source.joinpath(*path[len(place) :]).is_dir()
        return False

    @property
    def _stack(self) -> tuple[Path, ...]:
        return (*reversed(self.layers), self.base.lower)

    def _closed(self) -> list[Parts]:
        bound = [tuple(inside.strip("/").split("/")) for _, inside in self.base.binds]
        return [*bound, *((name,) for name in _KERNEL_FOLDERS)]

    def _link_at(self, path: Parts) -> str | None:
        with locate(self._stack, path) as found:
            member = found.member
            return member.target() if member is not None and member.kind is Kind.LINK else None


@dataclass
class LayerPlan:
    """What a layer will hold: folders with their modes, files and links of the context."""

    view: View
    folders: dict[Parts, int] = field(default_factory=dict[Parts, int])
    items: dict[Parts, tuple[Item, int]] = field(default_factory=dict[Parts, tuple[Item, int]])

    def kind(self, path: Parts) -> Kind | None:
        """Returns what lies at a path with this layer on top."""
        if path in self.folders:
            return Kind.FOLDER
        return self.items[path][0].kind if path in self.items else self.view.kind(path)

    def add_folder(self, path: Parts, mode: int | None = None) -> None:
        """Adds a folder and those above it; one that exists keeps its mode unless `mode` is given."""
        for depth in range(1, len(path) + 1):
            part = path[:depth]
            kind = self.kind(part)
            if kind not in {None, Kind.FOLDER}:
                raise PlaceTaken(f"/{'/'.join(part)} is no folder in the image")
            if part not in self.folders:
                self.view.check_writable(part)
                self.folders[part] = FOLDER_MODE if kind is None else self.view.mode(part)
        if mode is not None and path:
            self.folders[path] = mode

    def add_item(self, path: Parts, item: Item, chmod: int | None) -> None:
        """Adds a member at a path; a file takes the place of a file or link, never of a folder."""
        if item.kind is Kind.FOLDER:
            self.add_folder(path, FOLDER_MODE if chmod is None else chmod)
            return
        if not path or self.kind(path) is Kind.FOLDER:
            raise PlaceTaken(f"/{'/'.join(path)} is a folder in the image")
        self.view.check_writable(path)
        self.add_folder(path[:-1])
        self.items[path] = (item, FILE_MODE | item.mode if chmod is None else chmod)

    def copy(self, sources: Sequence[Source], dest: str, chmod: int | None) -> None:
        """Adds everything that a `COPY` takes. `dest` is absolute; one that ends with `/` is a folder."""
        place = self.view.resolve(dest)
        for source in sources:
            if source.is_folder:
                self.add_folder(place)
                for item in source.items:
                    self.add_item((*place, *item.below), item, chmod)
            else:
                into = dest.endswith("/") or self.kind(place) is Kind.FOLDER
                self.add_item((*place, source.name) if into else place, source.items[0], chmod)

    def write(self, context: Context | None, folder: Path) -> None:
        """Writes the layer into an empty folder. Raises `SourceFault` when the context changed meanwhile."""
        made = sorted(self.folders, key=len)
        for path in made:
            folder.joinpath(*path).mkdir(mode=0o700)
        for path, (item, mode) in self.items.items():
            if item.kind is Kind.FILE and context is not None:
                _write_file(context, item, folder.joinpath(*path), mode)
        for path, (item, _) in self.items.items():
            if item.kind is Kind.LINK:
                folder.joinpath(*path).symlink_to(item.content)
        for path in reversed(made):
            folder.joinpath(*path).chmod(self.folders[path])


def facts_of(sources: Mapping[str, Sequence[Source]]) -> list[object]:
    """Returns what the key of a `COPY` says of its sources."""
    return [[text, [item.facts() for source in found for item in source.items]] for text, found in sources.items()]


def _write_file(context: Context, item: Item, target: Path, mode: int) -> None:
    digest = hashlib.sha256()
    with os.fdopen(context.open_item(item), "rb") as source, os.fdopen(os.open(target, _NEW, 0o600), "wb") as file:
        while part := source.read(_CHUNK):
            digest.update(part)
            file.write(part)
        file.flush()
        os.fchmod(file.fileno(), mode)
    if digest.hexdigest() != item.content:
        raise SourceFault(f"takes {'/'.join(item.path)!r}, which changed meanwhile")
