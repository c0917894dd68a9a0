"""Folder work on trees that tenants wrote: by descriptor, never through a link, whatever their modes and names."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from tollbar.sandboxes.identity import Identity

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GRAVE = ".gone-"
_CHUNK = 1 << 20
_SHALLOW = 8


def open_folder(name: str, dir_fd: int | None = None) -> int:
    """Returns a descriptor of a folder, made accessible first when its owner took his own rights away.

    Raises `NotADirectoryError` or `OSError` (ELOOP) when the name is something else; a link is never followed.
    """
    try:
        descriptor = os.open(name, _OPEN, dir_fd=dir_fd)
    except PermissionError:
        _unlock(name, dir_fd)
        return os.open(name, _OPEN, dir_fd=dir_fd)
    if os.geteuid() != 0 and os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor


def _unlock(name: str, dir_fd: int | None) -> None:
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        Path(f"/proc/self/fd/{handle}").chmod(stat.S_IRWXU)
    finally:
        os.close(handle)


def remove_tree(path: Path) -> None:
    """Removes a folder with everything in it; the name is free at once. A missing folder is no error."""
    grave = path.with_name(f"{path.name}{_GRAVE}{secrets.token_hex(4)}")
    grave.mkdir(0o700)
    try:
        path.rename(grave / "0")
    except FileNotFoundError:
        grave.rmdir()
        return
    except PermissionError:
        _unlock(str(path), None)
        path.rename(grave / "0")
    empty_folder(grave)
    grave.rmdir()


def move_onto(source: Path, target: Path) -> None:
    """Moves a folder to where an empty one stands, whatever rights its owner took away (same file system)."""
    try:
        source.rename(target)
    except PermissionError:
        _unlock(str(source), None)
        source.rename(target)


def remove_graves(folder: Path, name: str) -> None:
    """Finishes removals of `folder/name` and of what was inside that a dead process left half done."""
    for grave in list(folder.glob(f"{name}*{_GRAVE}*")):
        empty_folder(grave)
        grave.rmdir()


def remove_entry(name: str, dir_fd: int, spare: Path) -> None:
    """Removes whatever stands under `name` in an open folder; a tree goes by way of `spare` (same file system)."""
    try:
        facts = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(facts.st_mode):
        os.unlink(name, dir_fd=dir_fd)
        return
    grave = spare / f"entry{_GRAVE}{secrets.token_hex(4)}"
    grave.mkdir(0o700)
    top = os.open(grave, _OPEN)
    try:
        _move(name, dir_fd, "0", top)
    finally:
        os.close(top)
    empty_folder(grave)
    grave.rmdir()


def empty_folder(folder: Path, *, keep: str | None = None) -> None:
    """Removes everything in a folder of ours, except `keep`: names in it are ours, what lies below is a tenant's.

    Depth does not matter: what is nested deeper than some folders is moved up into `folder` before it is emptied, so
    neither the call stack nor the descriptors grow with what a tenant nested.
    """
    prefix = secrets.token_hex(4)
    names = (f"{prefix}-{number}" for number in count())
    top = os.open(folder, _OPEN)
    try:
        pending = [entry.name for entry in folder.iterdir() if entry.name != keep]
        while pending:
            name = pending.pop()
            if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=top)
                continue
            pending += _empty_into(top, name, names)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _empty_into(top: int, name: str, names: Iterator[str]) -> list[str]:
    """Empties one folder of `top`; the folders in it move to `top` under the returned names."""
    moved: list[str] = []
    _empty(name, top, _SHALLOW, lambda inner, folder: _move(inner, folder, _next(moved, names), top))
    return moved


def _empty(name: str, parent: int, depth: int, move: Callable[[str, int], None]) -> None:
    """Empties a folder; what lies `depth` folders below it is moved away instead."""
    folder = open_folder(name, parent)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                elif depth:
                    _empty(entry.name, folder, depth - 1, move)
                    os.rmdir(entry.name, dir_fd=folder)
                else:
                    move(entry.name, folder)
    finally:
        os.close(folder)


def _next(moved: list[str], names: Iterator[str]) -> str:
    moved.append(next(names))
    return moved[-1]


def _move(name: str, source: int, new_name: str, target: int) -> None:
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:
        _unlock(name, source)
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def hand_over(folder: Path, identity: Identity) -> int:
    """Gives a folder that we filled to the tenant's uid, links included; returns its size in bytes."""
    total = 0
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = os.path.join(path, name)  # noqa: PTH118 - Path objects double the cost of this hot loop
            total += os.lstat(entry).st_size
            if identity.drop:
                os.lchown(entry, identity.uid, identity.gid)
    if identity.drop:
        os.lchown(folder, identity.uid, identity.gid)
    return total


def disk_bytes(folder: Path) -> int:
    """Returns the bytes that a folder takes on disk; what cannot be read while a tenant runs is left out."""
    total, seen = 0, set[int]()
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    facts = entry.stat(follow_symlinks=False)
                    if facts.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if facts.st_ino in seen:
                            continue
                        seen.add(facts.st_ino)
                    total += facts.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            continue
    return total


def copy_into(source: Path, dest_fd: int, identity: Identity) -> None:
    """Copies the content of a host folder of ours into an open folder; links stay links, set-id bits are dropped.

    Raises `ValueError` for a member that is neither file, folder nor link.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            copy_entry(entry, dest_fd, identity)


def copy_entry(entry: os.DirEntry[str], dest_fd: int, identity: Identity) -> None:
    """Copies one member of a host folder of ours into an open folder that has none of its name."""
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(Path(entry.path).readlink(), entry.name, dir_fd=dest_fd)
        if identity.drop:
            os.chown(entry.name, identity.uid, identity.gid, dir_fd=dest_fd, follow_symlinks=False)
    elif stat.S_ISDIR(mode):
        os.mkdir(entry.name, 0o700, dir_fd=dest_fd)
        folder = os.open(entry.name, _OPEN, dir_fd=dest_fd)
        try:
            copy_into(Path(entry.path), folder, identity)
            os.fchmod(folder, mode & 0o777)
            identity.own(folder)
        finally:
            os.close(folder)
    elif stat.S_ISREG(mode):
        _copy_file(entry, mode & 0o777, dest_fd, identity)
    else:
        msg = f"{entry.name!r} is neither a file, a folder nor a link"
        raise ValueError(msg)


def _copy_file(entry: os.DirEntry[str], mode: int, dest_fd: int, identity: Identity) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    source = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        target = os.open(entry.name, flags, 0o600, dir_fd=dest_fd)
        try:
            while os.sendfile(target, source, None, _CHUNK):
                pass
            os.fchmod(target, mode)
            identity.own(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
