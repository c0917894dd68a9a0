"""The base root file system `host`: a skeleton folder of ours plus read-only views of the host's system folders."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.layers import LayerStore

OWN_PATH: Final = "/opt/tollbar/bin"
DEFAULT_PATH: Final = f"{OWN_PATH}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_HOME: Final = "/root"

_VERSION = 1
_PLAIN: Final = "boot dev etc home media mnt opt proc run srv sys usr var var/cache var/lib var/log opt/tollbar/bin"
_FOLDERS: Final = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700} | dict.fromkeys(_PLAIN.split(), 0o755)
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "etc/hostname": "sandbox\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "etc/resolv.conf": "",
    "etc/ld.so.cache": "",
}
_MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_BOUND: Final = ("usr", "etc/alternatives", "etc/ld.so.cache", "etc/ssl", "etc/ca-certificates")


@dataclass(frozen=True)
class BaseInfo:
    """A base: its name, its digest (`sha256:...`), its lowest layer, and read-only binds (host path, path inside)."""

    name: str
    digest: str
    lower: Path
    binds: tuple[tuple[Path, str], ...]

    @property
    def reference(self) -> str:
        """Returns how a trial names the base that it used, e.g. `host@sha256:...`."""
        return f"{self.name}@{self.digest}"


async def host_base(layers: LayerStore, digest: str, root: Path = Path("/")) -> BaseInfo:
    """Returns the host's base; its skeleton is a layer of the cache and made when it is missing."""
    binds = tuple((root / part, f"/{part}") for part in (*_BOUND, *_split(root)) if (root / part).exists())
    links = {part: str((root / part).readlink()) for part in _MERGED if (root / part).is_symlink()}
    own_python = not (root / "usr/bin/python").exists() and (root / "usr/bin/python3").exists()
    key = f"base:host:{_VERSION}:{links}:{[inside for _, inside in binds]}:{own_python}"

    def fill(folder: Path) -> None:
        _skeleton(folder, links, [inside for _, inside in binds], own_python=own_python)

    lower = await layers.ensure(key, fill)
    return BaseInfo("host", digest, lower, (*binds, (lower / "sys", "/sys")))


def _split(root: Path) -> list[str]:
    """Returns the top folders that the host did not merge into `usr`."""
    return [part for part in _MERGED if (root / part).is_dir() and not (root / part).is_symlink()]


def _skeleton(folder: Path, links: dict[str, str], mounts: list[str], *, own_python: bool) -> None:
    folder.chmod(0o755)
    for name, mode in _FOLDERS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name).chmod(mode)
    for inside in mounts:
        if inside.lstrip("/") not in _FILES:
            (folder / inside.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "etc/os-release").symlink_to("../usr/lib/os-release")
    (folder / "var/run").symlink_to("../run")
    if own_python:
        (folder / OWN_PATH.lstrip("/") / "python").symlink_to("/usr/bin/python3")


def host_digest(root: Path = Path("/")) -> str:
    """Returns `sha256:...` over what the host's system folders hold; blocks for some milliseconds.

    Read from os-release, the machine type and the package database, or the names and sizes in `/usr/bin` where
    there is none: two machines with different packages are two bases.
    """
    digest = hashlib.sha256()
    for part in _description(root):
        digest.update(hashlib.sha256(part).digest())
    return f"sha256:{digest.hexdigest()}"


def _description(root: Path) -> Iterator[bytes]:
    release = root / "usr/lib/os-release"
    yield release.read_bytes() if release.is_file() else b""
    yield platform.machine().encode()
    status = root / "var/lib/dpkg/status"
    rpm = shutil.which("rpm")
    if status.is_file():
        yield status.read_bytes()
    elif rpm is not None and root == Path("/"):
        listed = subprocess.run([rpm, "-qa"], capture_output=True, check=False, env={"LC_ALL": "C"}, timeout=60)
        yield b"\n".join(sorted(listed.stdout.splitlines()))
    else:
        names = sorted((entry.name, entry.stat().st_size) for entry in (root / "usr/bin").iterdir() if entry.is_file())
        yield repr(names).encode()
