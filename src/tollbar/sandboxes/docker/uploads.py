"""Folders of this machine as archives for a container: what is in the way there is replaced, never written through.

The engine unpacks an archive at the root of the container. An entry of another kind removes what stands at its name,
a link included; so a file followed by a folder of the same name leaves an empty folder, whatever was there.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tollbar.sandboxes.seal_manifest import FOLDER_MODE
from tollbar.sandboxes.seal_restore import FIXED_TIME_S
from tollbar.sandboxes.upper import OPAQUE

_TENANT_MODE: Final = 0o777
_IN_MEMORY_BYTES: Final = 4 << 20


@dataclass
class Upload:
    """An archive while it is made; owner 0, fixed times. Blocks, for a thread."""

    whiteouts: list[str] = field(default_factory=list[str])
    """Absolute paths that the archive cannot remove: files of the image which a layer hides."""

    def __post_init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - handed out by `done`
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - as above
        self._fresh: set[str] = set()

    def done(self) -> IO[bytes]:
        """Returns the archive, at its start."""
        self._tar.close()
        self._file.seek(0)
        return self._file

    def folders(self, paths: Iterable[str]) -> None:
        """Adds folders for a tenant to write into, whoever he is."""
        for path in paths:
            self._folder(path.strip("/"), _TENANT_MODE)

    def layer(self, folder: Path) -> None:
        """Adds what a layer holds, as an overlay would show it above the image."""
        for place, names, files in os.walk(folder):
            below = Path(place).relative_to(folder)
            if below.parts and _is_opaque(place):
                self._clear(below.as_posix())
            elif below.parts and not names and not files:
                self._folder(below.as_posix(), FOLDER_MODE)
            for name in sorted([*files, *(name for name in names if (Path(place) / name).is_symlink())]):
                self._member(Path(place) / name, (below / name).as_posix())

    def replacement(self, source: Path, dest: str) -> None:
        """Adds a folder in the place of whatever stands at `dest` or in the way of it."""
        parts = dest.strip("/").split("/")
        for depth in range(1, len(parts)):
            self._folder("/".join(parts[:depth]), FOLDER_MODE)
        self._clear("/".join(parts))
        self._content(source, parts)

    def file(self, source: Path, dest: str) -> None:
        """Adds a file in the place of whatever stands at `dest` or in the way of it."""
        parts = dest.strip("/").split("/")
        for depth in range(1, len(parts)):
            self._folder("/".join(parts[:depth]), FOLDER_MODE)
        self._member(source, "/".join(parts))

    def over(self, source: Path, dest: str) -> None:
        """Adds a folder's content over the folder `dest`; what has another name there stays."""
        parts = dest.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            self._folder("/".join(parts[:depth]), FOLDER_MODE)
        self._content(source, parts)

    def _content(self, source: Path, parts: list[str]) -> None:
        for place, names, files in os.walk(source):
            below = Path(*parts) / Path(place).relative_to(source)
            for name in names:
                if not (Path(place) / name).is_symlink():
                    self._folder((below / name).as_posix(), FOLDER_MODE)
            for name in sorted([*files, *(name for name in names if (Path(place) / name).is_symlink())]):
                self._member(Path(place) / name, (below / name).as_posix())

    def _clear(self, name: str) -> None:
        self._tar.addfile(_entry(name, tarfile.REGTYPE, 0o600), io.BytesIO())
        self._folder(name, FOLDER_MODE)

    def _folder(self, name: str, mode: int) -> None:
        if name and name not in self._fresh:
            self._fresh.add(name)
            self._tar.addfile(_entry(name, tarfile.DIRTYPE, mode))

    def _member(self, path: Path, name: str) -> None:
        facts = path.lstat()
        if stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0:
            self.whiteouts.append(f"/{name}")
        elif stat.S_ISLNK(facts.st_mode):
            entry = _entry(name, tarfile.SYMTYPE, 0o777)
            entry.linkname = str(path.readlink())
            self._tar.addfile(entry)
        elif stat.S_ISREG(facts.st_mode):
            entry = _entry(name, tarfile.REGTYPE, stat.S_IMODE(facts.st_mode))
            entry.size = facts.st_size
            with path.open("rb") as file:
                self._tar.addfile(entry, file)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, FIXED_TIME_S
    return entry


def _is_opaque(place: str) -> bool:
    try:
        return os.getxattr(place, OPAQUE) == b"y"
    except OSError:
        return False
