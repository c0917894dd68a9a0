"""What all sandboxes of one server share: found once, before the first of them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.sandboxes.base import BaseInfo, host_base, host_digest
from tollbar.sandboxes.bwrap_command import Programs, chain, enter, environment_text, read_only_root
from tollbar.sandboxes.cgroups import Cgroups, detect
from tollbar.sandboxes.disk_image import DiskImages, find_images
from tollbar.sandboxes.errors import BackendUnusable
from tollbar.sandboxes.identity import Identity, identify
from tollbar.sandboxes.interface import Limits
from tollbar.sandboxes.layers import LayerStore
from tollbar.sandboxes.places import Places, make_places, reachable_bwrap
from tollbar.sandboxes.preflight import HostView, Unprepared, check_uid, find_bwrap, find_tools, path_problem
from tollbar.sandboxes.process import abandon, settle, start_tree
from tollbar.sandboxes.starter import Starter

_PROBE_S: Final = 10.0


@dataclass(frozen=True)
class Ground:
    """Identity, folders, programs, base, layers, control groups and disk images of one backend on one machine."""

    identity: Identity
    places: Places
    programs: Programs
    base: BaseInfo
    layers: LayerStore
    cgroups: Cgroups
    starter: Starter
    images: DiskImages | None = None

    def levels(self) -> dict[str, str]:
        """Returns who can hold each limit here: `kernel`, `watched` or `none`."""
        return {**self.cgroups.levels(), "disk": "watched" if self.images is None else "kernel"}


async def lay_ground(
    root: Path, sandbox_uid: int, public_root: Path, view: HostView, cgroups: Cgroups | None, *, images: bool = True
) -> Ground:
    """Finds the programs, makes the folders and the base. Raises `Unprepared`; nothing is started yet.

    Without `images` no limit of a disk is held by the kernel, whatever the machine can.
    """
    identity = identify(sandbox_uid)
    places, programs, digest, groups = await asyncio.to_thread(_find, root, identity, public_root, view, cgroups)
    layers = LayerStore(places.layers, identity)
    base = await host_base(layers, digest)
    disks = find_images(places.root / "d") if images else None
    return Ground(identity, places, programs, base, layers, groups, Starter(identity), disks)


def _find(
    root: Path, identity: Identity, public_root: Path, view: HostView, cgroups: Cgroups | None
) -> tuple[Places, Programs, str, Cgroups]:
    find_tools(view)
    bwrap = find_bwrap(view)
    if identity.drop:
        problem = check_uid(view, identity.uid)
        if problem is not None:
            raise Unprepared(problem)
    try:
        places = make_places(root, identity, public_root)
        bwrap = reachable_bwrap(bwrap, places.root, identity)
    except BackendUnusable as error:
        raise Unprepared(path_problem(error)) from error
    programs = Programs(os.fspath(bwrap))
    return places, programs, host_digest(), detect() if cgroups is None else cgroups


async def starts_without_overlay(ground: Ground) -> bool:
    """Says whether a sandbox starts when its root is read-only: then the overlay is what this machine refuses."""
    mounts = read_only_root(ground.base.lower, ground.base.binds)
    whole = chain(ground.programs.bwrap, "bwrap", mounts, Limits(), (), enter("/", ["true"]))
    try:
        tree = await start_tree(ground.starter, whole, ground.identity)
    except OSError:
        return False
    try:
        async with asyncio.timeout(_PROBE_S):
            return await tree.up() and await tree.release(environment_text({}))
    except TimeoutError:
        return False
    finally:
        await settle(asyncio.create_task(abandon(tree)))
