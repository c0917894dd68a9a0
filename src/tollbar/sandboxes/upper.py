"""Changes to a sandbox's upper layer from outside, while no process of the tenant lives.

The tenant may have planted links, devices or whiteouts anywhere in it, so every path is walked one component at a
time by descriptor, and whatever stands in the way is removed, never followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from tollbar.sandboxes.folders import copy_entry, copy_into, open_folder, remove_entry
from tollbar.sandboxes.identity import Identity

OPAQUE: Final = "user.overlay.opaque"
_FOLDER_MODE: Final = 0o755
_NO_FOLDER: Final = os.stat_result((0,) * 10)


def components(path: str) -> tuple[str, ...]:
    """Returns the parts of an absolute path inside a sandbox. Raises `ValueError` for another one, or the root."""
    pure = PurePosixPath(path)
    parts = pure.parts[1:]
    if not pure.is_absolute() or not parts or ".." in parts or "\0" in path:
        msg = f"{path!r} is not an absolute path below the root"
        raise ValueError(msg)
    return parts


def make_folder(upper: Path, lowers: Sequence[Path], path: str, identity: Identity) -> None:
    """Makes a folder and those above it; what lower layers hold there stays visible."""
    parts = components(path)
    os.close(_walk(upper, lowers, parts, identity))


def ensure_folder(upper: Path, lowers: Sequence[Path], path: str, identity: Identity) -> None:
    """Makes a folder unless a lower layer has a link or a file on the way to it: the image's own ways stay."""
    parts = components(path)
    if not any(_blocks(lower, parts) for lower in lowers):
        make_folder(upper, lowers, path, identity)


def _blocks(lower: Path, parts: Sequence[str]) -> bool:
    return _found(lower, parts) is _NO_FOLDER


def _found(lower: Path, parts: Sequence[str]) -> os.stat_result | None:
    """Returns the facts of a folder in a lower layer, None when it has none there, `_NO_FOLDER` when it is none.

    A layer that is used does not change, so each part can be looked at by name before the next one is: no link is
    ever followed.
    """
    path, facts = os.fspath(lower), None
    for name in parts:
        path = f"{path}/{name}"
        try:
            facts = os.lstat(path)
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(facts.st_mode):
            return _NO_FOLDER
    return facts


def replace_folder(
    upper: Path, lowers: Sequence[Path], path: str, source: Path, identity: Identity, spare: Path
) -> None:
    """Puts a copy of the host folder `source` at `path`; nothing of what was there shows through.

    `spare` is a folder of ours on the same file system, where removed trees are taken apart.
    """
    *above, name = components(path)
    parent = _walk(upper, lowers, above, identity) if above else open_folder(str(upper))
    try:
        remove_entry(name, parent, spare)
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
        folder = open_folder(name, parent)
        try:
            os.setxattr(folder, OPAQUE, b"y")
            copy_into(source, folder, identity)
            os.fchmod(folder, _FOLDER_MODE)
            identity.own(folder)
        finally:
            os.close(folder)
    finally:
        os.close(parent)


def _walk(upper: Path, lowers: Sequence[Path], parts: Sequence[str], identity: Identity) -> int:
    """Returns a descriptor of the folder at `parts`, made where it is missing."""
    current = open_folder(str(upper))
    for depth, name in enumerate(parts, start=1):
        try:
            child = _step(current, name, _mode(lowers, parts[:depth]), identity)
        finally:
            os.close(current)
        current = child
    return current


def _step(parent: int, name: str, mode: int, identity: Identity) -> int:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        hides = False
    else:
        if stat.S_ISDIR(found.st_mode):
            return open_folder(name, parent)
        os.unlink(name, dir_fd=parent)
        hides = True
    os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    child = open_folder(name, parent)
    if hides:
        os.setxattr(child, OPAQUE, b"y")
    os.fchmod(child, mode)
    identity.own(child)
    return child


def _mode(lowers: Sequence[Path], parts: Sequence[str]) -> int:
    """Returns the permissions that a folder has in the uppermost lower layer, so that making it changes none."""
    for lower in reversed(lowers):
        facts = _found(lower, parts)
        if facts is not None and facts is not _NO_FOLDER:
            return stat.S_IMODE(facts.st_mode)
    return _FOLDER_MODE


def add_folder(upper: Path, lowers: Sequence[Path], path: str, source: Path, identity: Identity, spare: Path) -> None:
    """Lays a copy of the host folder `source` over what is at `path`; only what has the same name is replaced.

    A folder stays with all else that is in it; a link or a file in the place of a folder is removed, never followed.
    """
    parts = components(path)
    folder = _walk(upper, lowers, parts, identity)
    try:
        _add(lowers, parts, source, folder, identity, spare)
    finally:
        os.close(folder)


def _add(
    lowers: Sequence[Path], parts: Sequence[str], source: Path, folder: int, identity: Identity, spare: Path
) -> None:
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inside = (*parts, entry.name)
                child = _step(folder, entry.name, _mode(lowers, inside), identity)
                try:
                    _add(lowers, inside, Path(entry.path), child, identity, spare)
                finally:
                    os.close(child)
            else:
                remove_entry(entry.name, folder, spare)
                copy_entry(entry, folder, identity)
