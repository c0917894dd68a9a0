"""Disk limits that the kernel holds: the upper layer lies in an ext4 image that is mounted over a loop device.

Only root can mount. An image takes `disk_mb` and has one inode per 16 KiB of it, so neither bytes nor names can
grow beyond it, and removing it takes no walk over what a tenant nested.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.starter import HOST_ENV

MOUNTED: Final = "disk"
_IMAGE: Final = "disk.img"
_FREE_LOOP: Final = 0x4C82
_LOOP_CONTROL: Final = Path("/dev/loop-control")
_SYS_ADMIN: Final = 21
_FEATURES: Final = ("-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", "-i", "16384", "-m", "0")
_OPTIONS: Final = "loop,nosuid,nodev,noatime"
_MIB: Final = 1 << 20
_TIMEOUT_S: Final = 60.0
_TRIES: Final = 20
_PAUSE_S: Final = 0.01


@dataclass(frozen=True)
class DiskImages:
    """Makes images below `root`; one empty image per size is kept there, because a copy is cheaper than a new one."""

    root: Path
    mkfs: str
    mount: str

    def attach(self, folder: Path, disk_mb: int) -> Path:
        """Mounts a sandbox's image, a new and empty one where it has none, and returns where; blocks for some 30 ms.

        Raises `OSError` when the machine refuses.
        """
        place, image = folder / MOUNTED, folder / _IMAGE
        if not image.exists():
            _copy_sparse(self._template(disk_mb), image)
        place.mkdir(exist_ok=True)
        if not place.is_mount():
            _run(self.mount, "-o", _OPTIONS, str(image), str(place))
        return place

    def _template(self, disk_mb: int) -> Path:
        template = self.root / f"{disk_mb}.img"
        if not template.exists():
            self.root.mkdir(mode=0o700, exist_ok=True)
            staging = self.root / f"{disk_mb}.new-{secrets.token_hex(4)}"
            try:
                with staging.open("wb") as file:
                    file.truncate(disk_mb * _MIB)
                _run(self.mkfs, "-q", "-F", *_FEATURES, str(staging))
                staging.rename(template)
            finally:
                staging.unlink(missing_ok=True)
        return template


def find_images(root: Path) -> DiskImages | None:
    """Returns how images are made below `root`, or None where this process cannot mount one. Mounts nothing."""
    mkfs, mount = (shutil.which(name, path=HOST_ENV["PATH"]) for name in ("mkfs.ext4", "mount"))
    if mkfs is None or mount is None or os.geteuid() != 0 or not _may_administer():
        return None
    try:
        control = os.open(_LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC)
        try:
            number = fcntl.ioctl(control, _FREE_LOOP)
        finally:
            os.close(control)
    except OSError:
        return None
    return DiskImages(root, mkfs, mount) if Path(f"/dev/loop{number}").exists() else None


def release(folder: Path) -> None:
    """Unmounts and removes the image of a sandbox folder, if it has one; blocks. Raises `OSError`."""
    place = folder / MOUNTED
    for turn in range(_TRIES):
        if not place.is_mount():
            break
        try:
            _run("umount", *(["--lazy"] if turn == _TRIES - 1 else []), str(place))
        except OSError:
            if turn == _TRIES - 1:
                raise
            time.sleep(_PAUSE_S)
    (folder / _IMAGE).unlink(missing_ok=True)


def _may_administer() -> bool:
    text = Path("/proc/self/status").read_text()
    rights = next(line for line in text.splitlines() if line.startswith("CapEff:"))
    return bool(int(rights.split()[1], 16) >> _SYS_ADMIN & 1)


def _run(*argv: str) -> None:
    """Runs a program of the host. Raises `OSError` with what it printed."""
    try:
        done = subprocess.run(argv, capture_output=True, check=False, env=HOST_ENV, timeout=_TIMEOUT_S, cwd="/")
    except subprocess.TimeoutExpired as error:
        raise OSError(0, f"{argv[0]} took too long") from error
    if done.returncode != 0:
        raise OSError(0, done.stderr.decode(errors="replace").strip() or f"{argv[0]} ended with {done.returncode}")


def _copy_sparse(source: Path, target: Path) -> None:
    """Copies the parts of a file that hold something. Raises `OSError` and leaves nothing then."""
    try:
        with source.open("rb") as reader, target.open("xb") as writer:
            size = os.fstat(reader.fileno()).st_size
            writer.truncate(size)
            for start, end in _parts(reader.fileno(), size):
                position = start
                while position < end:
                    left = end - position
                    position += os.copy_file_range(reader.fileno(), writer.fileno(), left, position, position)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _parts(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    position = 0
    while position < size:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, position
