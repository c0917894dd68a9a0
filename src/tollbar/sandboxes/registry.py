"""The sandbox folders of one backend: made and held by this process, kept for a while, and removed with everything."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from tollbar.sandboxes.base import BaseInfo
from tollbar.sandboxes.bwrap_command import Root
from tollbar.sandboxes.cgroups import Group
from tollbar.sandboxes.claims import Claim, claim, make_tenant_folder, take
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.folders import hand_over
from tollbar.sandboxes.ground import Ground
from tollbar.sandboxes.group_names import GROUPS, lives, maker_of_groups, parts_of
from tollbar.sandboxes.held import HOLDER_LEAF, RUN_LEAF
from tollbar.sandboxes.interface import Form, SandboxHandle, SandboxSpec
from tollbar.sandboxes.kept import Kept, read_kept
from tollbar.sandboxes.process import settle
from tollbar.sandboxes.sandbox_base import Setting
from tollbar.sandboxes.upper import ensure_folder, make_folder

ABANDONED_S: Final = 600.0
KERNEL: Final = "kernel"
_SPARE: Final = "spare"


class Registry:
    """What this process holds of the sandbox folders of a machine; names are those of `SandboxName` as text.

    Methods that are not coroutines block for some milliseconds and are for threads.
    """

    def __init__(self, ground: Ground, backend: str, host: str) -> None:
        self._ground = ground
        self._backend = backend
        self._host = host
        self._claims: dict[str, Claim] = {}
        self._maker = maker_of_groups()

    def levels(self, spec: SandboxSpec) -> dict[str, str]:
        """Returns who holds each limit of such a sandbox."""
        return {**self._ground.cgroups.levels(), "disk": spec.disk_level}

    def fill_scratch(self, name: str, fill: Callable[[Path], None]) -> Path:
        """Makes a layer in the folder of a sandbox; its content is handed to the tenants' uid."""
        identity = self._ground.identity
        folder = self._claim(name).tenant_folder(f"in-{secrets.token_hex(3)}", identity)
        fill(folder)
        hand_over(folder, identity)
        return folder

    def make(self, name: str, spec: SandboxSpec) -> Setting:
        """Makes folders and group of a new sandbox. Raises `EnvironmentStartFailed`."""
        setting = self._set(self._claim(name), spec)
        identity, root = self._ground.identity, setting.root
        if spec.workdir != "/":
            ensure_folder(root.upper, root.lowers, spec.workdir, identity)
        for folder in {*spec.directories} - {"/", spec.workdir}:
            make_folder(root.upper, root.lowers, folder, identity)
        return setting

    def take_kept(self, name: str) -> tuple[SandboxSpec, Setting]:
        """Takes over the files of a kept sandbox whose process is gone, to be entered in the form `held`.

        Raises `SandboxLost` when there is none, or when another process holds it.
        """
        folder = self._ground.places.sandboxes / name
        kept = read_kept(folder)
        found = None if kept is None or name in self._claims else take(folder)
        if kept is None or found is None:
            raise SandboxLost("worker", f"There is no sandbox {name} that this process could enter.")
        try:
            found.kill_leftovers(self._ground.identity.uid)
            spec = replace(kept.spec, form=Form.HELD)
            setting = self._set(found, spec)
        except BaseException:
            found.let_go()
            raise
        self._claims[name] = found
        return spec, setting

    def keep(self, name: str, kept: Kept) -> None:
        """Notes that a sandbox of this process is kept."""
        kept.write(self._claims[name].folder)

    def let_go(self, name: str) -> None:
        """Lets go of a kept sandbox whose processes are dead: its group goes, its folder stays and is anybody's."""
        held = self._claims.pop(name)
        self._ground.cgroups.group(self._group_name(name)).remove()
        held.let_go()

    def kept(self) -> dict[str, Kept]:
        """Returns the notes of all kept sandboxes on this machine."""
        notes = {folder.name: read_kept(folder) for folder in self._ground.places.sandboxes.iterdir()}
        return {name: note for name, note in notes.items() if note is not None}

    def age_s(self, name: str, now: datetime) -> float:
        """Returns how long ago a sandbox was made, in seconds; 0 for one that is gone."""
        held = self._claims.get(name)
        if held is not None:
            return held.age_s(now.timestamp())
        with contextlib.suppress(FileNotFoundError):
            return now.timestamp() - (self._ground.places.sandboxes / name / "lock").stat().st_mtime
        return 0.0

    def prepared(self) -> list[str]:
        """Returns the names that this process holds, whether a sandbox was made for them or only its layers."""
        return list(self._claims)

    async def remove(self, name: str) -> None:
        """Removes group, folder and lock of a sandbox whose processes are dead; a cancellation waits for it."""
        held = self._claims.pop(name, None)
        if held is not None:
            await settle(asyncio.create_task(asyncio.to_thread(self._clear, held)))

    def reap(self, live: Collection[str], now: datetime) -> list[str]:
        """Removes folders that nobody holds, names or keeps, and groups whose sandbox is gone; returns the names."""
        places, groups = self._ground.places, self._ground.cgroups
        gone: list[str] = []
        for folder in list(places.sandboxes.iterdir()):
            if folder.name in live or folder.name in self._claims:
                continue
            kept = read_kept(folder)
            left = None if kept is not None and kept.until > now else take(folder)
            if left is not None:
                left.kill_leftovers(self._ground.identity.uid)
                self._clear(left)
                gone.append(folder.name)
        for group in groups.names(GROUPS):
            self._remove_orphan(group)
        return gone

    def _remove_orphan(self, group: str) -> None:
        """Removes a group of a sandbox that is gone: one of this process, or one whose maker is dead.

        Also of other data directories, which may not exist any more: nobody else would come for it.
        """
        tag, maker, name = parts_of(group)
        if maker != self._maker and lives(maker):
            return
        found = self._ground.cgroups.group(group)
        if tag != self._ground.places.tag:
            found.discard()
        elif not (self._ground.places.sandboxes / name).exists():
            found.remove()

    def _group_name(self, name: str) -> str:
        return f"{GROUPS}{self._ground.places.tag}-{self._maker}-{name}"

    def _claim(self, name: str) -> Claim:
        if name not in self._claims:
            ground = self._ground
            self._claims[name] = claim(ground.places.sandboxes, name, ground.identity.uid)
        return self._claims[name]

    def _clear(self, held: Claim) -> None:
        self._ground.cgroups.group(self._group_name(held.folder.name)).remove()
        held.remove()

    def _set(self, held: Claim, spec: SandboxSpec) -> Setting:
        """Makes what is missing of the folders, and a group. Raises `EnvironmentStartFailed`."""
        ground = self._ground
        lowers = lower_layers(ground.base, spec)
        top = self._top(held, spec)
        root = Root(lowers, top / "up", top / "wk", ground.base.binds)
        root.arguments()
        missing = [path for path in lowers if not path.is_dir()]
        if missing:
            raise EnvironmentStartFailed("start", f"The layer {missing[0].name} is gone.")
        held.note_layers([path.name for path in lowers])
        for folder in (root.upper, root.work):
            make_tenant_folder(folder, ground.identity)
        spare = held.folder if top == held.folder else top / _SPARE
        spare.mkdir(mode=0o700, exist_ok=True)
        levels = self.levels(spec)
        group = self._group(held.folder.name, spec)
        data = {
            "directory": str(held.folder),
            "upper": str(root.upper),
            "cgroups": [] if group is None else group.join,
            "levels": levels,
        }
        handle = SandboxHandle(self._backend, self._host, spec.owner, held.folder.name, data)
        return Setting(ground.programs, ground.identity, root, spare, group, levels, handle, ground.starter)

    def _top(self, held: Claim, spec: SandboxSpec) -> Path:
        """Returns the folder in which the upper layer lies: the sandbox's own, or one with a limit of the kernel's."""
        if spec.disk_level != KERNEL or self._ground.images is None:
            return held.folder
        try:
            return self._ground.images.attach(held.folder, spec.limits.disk_mb)
        except OSError as error:
            raise EnvironmentStartFailed("start", f"The machine gives no bounded disk: {error.strerror}.") from error

    def _group(self, name: str, spec: SandboxSpec) -> Group | None:
        try:
            group = self._ground.cgroups.make(self._group_name(name), spec.limits)
            if group is not None and spec.form is Form.HELD:
                add_leaves(group)
        except OSError as error:
            msg = f"The machine does not take these limits: {error.strerror}."
            raise EnvironmentStartFailed("start", msg) from error
        return group


def add_leaves(group: Group) -> None:
    """Makes the two leaves of a held sandbox: its own processes, and those that commands start."""
    for name in (HOLDER_LEAF, RUN_LEAF):
        group.leaf(name).create()


def lower_layers(base: BaseInfo, spec: SandboxSpec) -> tuple[Path, ...]:
    """Returns base, image and inputs, bottom first; a layer that stands twice counts where it is uppermost."""
    stack = (base.lower, *spec.image.layers, *spec.inputs)
    return tuple(reversed(dict.fromkeys(reversed(stack))))
