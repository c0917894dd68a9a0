"""Layers of a sandbox on the disk, and what tests ask of their seals."""

import hashlib
import os
import stat
from pathlib import Path

from tollbar.sandboxes.interface import ArtifactPath, SealLimits
from tollbar.sandboxes.seal import read_file_overlay, read_manifest, restore, seal_overlay

SECRET = b"the host's own secret"
OPAQUE = "user.overlay.opaque"


class World:
    """Layers of a sandbox on the disk, with a planted secret beside them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.upper = folder / "up"
        self.image = folder / "image"
        self.upper.mkdir()
        self.image.mkdir()
        self.lowers = [self.image]
        self.secret = folder / "secret"
        self.secret.write_bytes(SECRET)
        self.blobs: dict[str, bytes] = {}
        self.limits = SealLimits()

    def put(self, name: str, content: bytes | str = b"x", *, layer: Path | None = None, mode: int = 0o644) -> Path:
        path = (layer or self.upper) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def link(self, name: str, target: str) -> None:
        path = self.upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def whiteout(self, name: str, layer: Path | None = None) -> None:
        path = (layer or self.upper) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))

    def store(self, descriptor: int, size: int) -> str:
        data = os.pread(descriptor, size, 0)
        if len(data) != size:
            raise ValueError("short")
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    def seal(self, *paths: str | ArtifactPath, **options):
        wanted = [ArtifactPath(path) if isinstance(path, str) else path for path in paths]
        return seal_overlay(self.upper, self.lowers, wanted, self.limits, self.store, **options)

    def read(self, path: str, max_bytes: int = 1000):
        return read_file_overlay(self.upper, self.lowers, path, max_bytes)

    def content(self, seal) -> dict[str, bytes | str]:
        """Returns the members of a seal: path -> bytes, `/` for folders, `-> target` for links."""
        return {
            member.path: self.blobs[member.sha256]
            if member.kind == "file"
            else ("/" if member.kind == "directory" else f"-> {member.target}")
            for entry in seal.entries
            for member in entry.members
        }

    def restored(self, seal, name: str = "restored") -> Path:
        folder = self.folder / name
        folder.mkdir()
        restore(read_manifest(seal.manifest), lambda sha256, fd: write_all(fd, self.blobs[sha256]), folder)
        return folder


def write_all(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)


def refusals(seal) -> list[tuple[str, str]]:
    return [(refusal.name, refusal.reason) for refusal in seal.refusals]


def statuses(seal) -> list[str]:
    return [entry.status for entry in seal.entries]


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def tree(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name, facts = str(path.relative_to(folder)), path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            found[name] = f"-> {path.readlink()}"
        elif stat.S_ISCHR(facts.st_mode):
            found[name] = "whiteout"
        else:
            found[name] = (stat.S_IMODE(facts.st_mode), path.read_bytes() if path.is_file() else None)
    return found
