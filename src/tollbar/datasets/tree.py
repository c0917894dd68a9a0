"""A folder in memory: regular files with their bytes, and symbolic links that are never followed outside."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

_MAX_LINKS: Final = 40
GIT_FOLDER: Final = ".git"
"""Skipped at the top of an upload; further down it may be a part of a task."""


class LinkFault(Exception):
    """A link cannot be read as a file or folder of the tree; the text says why."""


@dataclass(frozen=True)
class Tree:
    """Files by relative POSIX path; `links` holds the targets as they are written in the links."""

    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict[str, str])

    def below(self, folder: str) -> Tree:
        """Returns the part below a folder (`""`: all of it), with paths relative to it."""
        if not folder:
            return self
        start = folder + "/"
        return Tree(
            {path[len(start) :]: data for path, data in self.files.items() if path.startswith(start)},
            {path[len(start) :]: target for path, target in self.links.items() if path.startswith(start)},
        )

    def split(self, folders: Iterable[str]) -> dict[str, Tree]:
        """Returns the part below each of the folders, none of which lies in another one; `""` is the tree itself."""
        parts = frozenset(folders)
        if "" in parts:
            return {"": self}
        files: dict[str, dict[str, bytes]] = {folder: {} for folder in parts}
        links: dict[str, dict[str, str]] = {folder: {} for folder in parts}
        for path, data in self.files.items():
            if (folder := _first_above(path, parts)) is not None:
                files[folder][path[len(folder) + 1 :]] = data
        for path, target in self.links.items():
            if (folder := _first_above(path, parts)) is not None:
                links[folder][path[len(folder) + 1 :]] = target
        return {folder: Tree(files[folder], links[folder]) for folder in parts}

    def real_path(self, path: str) -> str:
        """Returns where a path leads after all links; raises `LinkFault` when it leaves the tree or runs in circles."""
        pending = path.split("/")[::-1]
        done: list[str] = []
        followed = 0
        while pending:
            part = pending.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                if not done:
                    raise LinkFault("leaves the folder")
                done.pop()
                continue
            target = self.links.get("/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            followed += 1
            if target.startswith("/"):
                raise LinkFault("leaves the folder")
            if followed > _MAX_LINKS:
                raise LinkFault("is a link that leads back to itself")
            pending.extend(target.split("/")[::-1])
        return "/".join(done)

    def is_folder(self, path: str) -> bool:
        """Says whether files or links lie below a path."""
        start = path + "/" if path else ""
        return any(name.startswith(start) for name in self._names())

    def folders_with(self, name: str) -> list[str]:
        """Returns the outermost folders that hold a file of that name, sorted; `""` is the tree itself."""
        found = {path.rpartition("/")[0] for path in self._names() if path.rpartition("/")[2] == name}
        return sorted(folder for folder in found if not folder or _first_above(folder, found) is None)

    def _names(self) -> Iterator[str]:
        yield from self.files
        yield from self.links


def _first_above(path: str, folders: Container[str]) -> str | None:
    """Returns the outermost of `folders` that a path lies in."""
    if "" in folders:
        return ""
    end = path.find("/")
    while end >= 0:
        if path[:end] in folders:
            return path[:end]
        end = path.find("/", end + 1)
    return None


def read_folder(folder: Traversable) -> Tree:
    """Returns a folder of this machine or of a package, without its `.git`; blocks, so call it in a thread.

    Files that are neither regular nor links (sockets, devices) are left out.
    """
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for path, entry in _walk("", folder.iterdir()):
        if isinstance(entry, Path) and entry.is_symlink():
            links[path] = str(entry.readlink())
        elif entry.is_file():
            files[path] = entry.read_bytes()
    return Tree(files, links)


def _walk(above: str, entries: Iterable[Traversable]) -> Iterator[tuple[str, Traversable]]:
    for entry in entries:
        path = above + entry.name
        is_link = isinstance(entry, Path) and entry.is_symlink()
        if is_link or not entry.is_dir():
            yield path, entry
        elif path != GIT_FOLDER:
            yield from _walk(path + "/", entry.iterdir())
