"""A task's files as one canonical tar (equal files, equal bytes), and back into a folder."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SCRIPT_MODE: Final = 0o755
_FILE_MODE: Final = 0o644


def file_mode(path: str, data: bytes) -> int:
    """Returns the mode of a task's file: scripts (`#!` or `.sh`) are executable, whatever their mode once was."""
    return _SCRIPT_MODE if data.startswith(b"#!") or path.endswith(".sh") else _FILE_MODE


def pack_task(files: Mapping[str, bytes]) -> bytes:
    """Returns the tar of a task's files: sorted by path, no owner, no time, mode from content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            entry.mode = file_mode(path, files[path])
            tar.addfile(entry, io.BytesIO(files[path]))
    return out.getvalue()


def task_files(packed: bytes) -> dict[str, bytes]:
    """Returns the files of a tar that `pack_task` made; raises `ValueError` for any other content."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:", encoding="utf-8") as tar:
        for member in tar:
            parts = member.name.split("/")
            if not member.isreg() or any(part in {"", ".", ".."} for part in parts):
                msg = f"not a task's file: {member.name!r}"
                raise ValueError(msg)
            data = tar.extractfile(member)
            assert data is not None
            files[member.name] = data.read()
    return files


def unpack_task(packed: bytes, folder: Path) -> None:
    """Writes a task's files below `folder`; blocks, so call it in a thread."""
    write_files(task_files(packed), folder)


def write_files(files: Mapping[str, bytes], folder: Path, *, below: str = "") -> None:
    """Writes the files whose path lies below `below` (`tests`, `environment`; `""`: all) into `folder`.

    `folder` is made when it is missing. Files are new ones: an existing file or link in the way is replaced, and no
    link is followed. Folders get 0755. Blocks, so call it in a thread.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    start = below.rstrip("/") + "/" if below else ""
    for path in sorted(files):
        if path.startswith(start):
            _write(folder, path[len(start) :].split("/"), files[path], file_mode(path, files[path]))


def _write(folder: Path, parts: list[str], data: bytes, mode: int) -> None:
    if any(part in {"", ".", ".."} for part in parts):
        msg = f"not a relative path: {'/'.join(parts)!r}"
        raise ValueError(msg)
    place = folder
    for part in parts[:-1]:
        place /= part
        _folder(place)
    target = place / parts[-1]
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)


def _folder(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.mkdir()
        place.chmod(0o755)
