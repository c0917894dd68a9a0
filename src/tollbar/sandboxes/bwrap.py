"""The bubblewrap backend: sandboxes made of namespaces and an overlay on the host's system folders; no daemon."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from tollbar.sandboxes.build_steps import BuildSteps
from tollbar.sandboxes.cgroups import Cgroups
from tollbar.sandboxes.claims import used_layers
from tollbar.sandboxes.entry import Entrance
from tollbar.sandboxes.errors import BackendUnusable, EnvironmentFailure, SandboxLost
from tollbar.sandboxes.ground import Ground, lay_ground, starts_without_overlay
from tollbar.sandboxes.held import HeldSandbox
from tollbar.sandboxes.image_build import build
from tollbar.sandboxes.interface import (
    Capabilities,
    ExecResult,
    Form,
    ImageRef,
    ImageSpec,
    Limits,
    Network,
    Problem,
    Purpose,
    SandboxName,
    SandboxSpec,
    SandboxView,
)
from tollbar.sandboxes.kept import Kept
from tollbar.sandboxes.one_shot import OneShotSandbox
from tollbar.sandboxes.places import PUBLIC_ROOT
from tollbar.sandboxes.preflight import HostView, Unprepared, cgroup_advice, overlay_problem, start_problem
from tollbar.sandboxes.registry import ABANDONED_S, KERNEL, Registry, add_leaves
from tollbar.sandboxes.sandbox_base import BwrapSandbox, Setting

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,120}\Z")
_PROBE_TIMEOUT_S: Final = 10.0
_MIB: Final = 1 << 20
_NETWORKS: Final = frozenset({Network.NONE, Network.GATEWAY, Network.ALLOWLIST})
"""Of held sandboxes; a one-shot one has none."""
_BUILD_LIMITS: Final = Limits()


class BwrapProvider:
    """Implements `interface.SandboxProvider`.

    `root` is a folder of the data directory. A supervisor that is root drops to `sandbox_uid`, which must be able to
    pass every folder above its sandboxes: when it cannot pass to `root`, a folder below `public_root` is used instead
    (made by us, mode 0711, on a file system that can hold an overlay's upper layer). `host` names the machine in
    handles. `cgroups` and `view` are found when not given. Without `disk_images` disks are only watched.
    """

    def __init__(
        self,
        root: Path,
        *,
        sandbox_uid: int = 64000,
        host: str,
        public_root: Path = PUBLIC_ROOT,
        view: HostView | None = None,
        cgroups: Cgroups | None = None,
        layer_cache_mb: int = 10240,
        disk_images: bool = True,
    ) -> None:
        self._root = root
        self._sandbox_uid = sandbox_uid
        self._host = host
        self._public_root = public_root
        self._view = view or HostView()
        self._cgroups = cgroups
        self._layer_cache_bytes = layer_cache_mb * _MIB
        self._ground: Ground | None = None
        self._laying = asyncio.Lock()
        self._attaching = asyncio.Lock()
        self._disk_images = disk_images
        self._registry: Registry | None = None
        self._entrance: Entrance | None = None
        self._living: dict[str, BwrapSandbox] = {}

    @property
    def name(self) -> str:
        return "bwrap"

    async def preflight(self) -> list[Problem]:
        """Returns what stands in the way of sandboxes, each with its code and what mends it; takes a moment.

        A real sandbox is started and writes a file; nothing on the machine is changed.
        """
        try:
            ground = await self._prepared()
        except Unprepared as error:
            return [error.problem]
        said = await self._probe()
        if said is None:
            return []
        if await starts_without_overlay(ground):
            return [overlay_problem(ground.places.root, said)]
        return [start_problem(self._view, ground.programs.bwrap, said)]

    async def advice(self) -> list[Problem]:
        """Returns what works, but could be better: limits that are only watched (`CGROUP`)."""
        advice = cgroup_advice((await self._prepared()).cgroups)
        return [] if advice is None else [advice]

    def capabilities(self) -> Capabilities:
        """Returns what this backend enforces here. Raises `BackendUnusable` before the first preflight or use."""
        if self._ground is None:
            msg = "the capabilities are known after the preflight"
            raise BackendUnusable(msg)
        return Capabilities(
            compose=False,
            dockerfile="subset",
            image=False,
            users=False,
            networks=_NETWORKS,
            limits=self._ground.levels(),
            gpu=False,
            healthcheck=True,
            kernel_isolation="shared",
            seal=True,
            regrade=True,
        )

    async def base_digest(self) -> str:
        """Returns the digest of the base, e.g. `host@sha256:...`."""
        return (await self._prepared()).base.reference

    async def build(self, spec: ImageSpec) -> ImageRef:
        """Builds or finds the image of an environment folder. Raises `EnvironmentRefused`, `EnvironmentBuildFailed`."""
        ground = await self._prepared()
        steps = BuildSteps(ground.base, ground.layers, self.run_step)
        return await build(spec, base=ground.base, layers=ground.layers, run=steps)

    async def run_step(
        self,
        target: Path,
        *,
        layers: Sequence[Path],
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: str,
        timeout_s: float,
        limits: Limits = _BUILD_LIMITS,
    ) -> ExecResult:
        """Runs one command of a build on the layers so far; when it exits 0, what it wrote is moved to `target`.

        `target` is an empty folder of the layer cache. No network; every process is dead when this returns.
        """
        name = SandboxName(f"build_{os.getpid()}_{secrets.token_hex(4)}", 0, Purpose.BUILD)
        image = ImageRef("", tuple(layers), workdir, {})
        sandbox = await self.create(SandboxSpec(name, self._host, Form.ONE_SHOT, image, workdir, env, limits))
        try:
            result = await sandbox.exec(argv, timeout_s=timeout_s)
            if result.exit_code == 0:
                await sandbox.give_upper(target)
        finally:
            await sandbox.destroy()
        return result

    async def layer(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Returns the read-only layer of that key; `fill(folder)` makes it once, in a thread."""
        return await (await self._prepared()).layers.ensure(key, fill)

    async def scratch_layer(self, name: SandboxName, fill: Callable[[Path], None]) -> Path:
        """Returns a layer of one sandbox, which is created after it; it goes with that sandbox's `destroy`."""
        registry = await self._registered()
        text = _checked(name)
        if text in self._living:
            await self._living[text].destroy()
        return await asyncio.to_thread(registry.fill_scratch, text, fill)

    async def create(self, spec: SandboxSpec) -> BwrapSandbox:
        """Makes a sandbox; nothing of a tenant runs in it yet. What an older try left under its name goes first.

        Raises `EnvironmentStartFailed` when another process holds the name, for too many layers, for limits that the
        machine does not take, and for a held one that does not come up; `ValueError` for what this backend does not
        have (network, disk level).
        """
        ground, registry = await self._prepared(), await self._registered()
        reaches = spec.network in (_NETWORKS if spec.form is Form.HELD else {Network.NONE})
        if not reaches or (spec.disk_level == KERNEL and ground.images is None):
            msg = f"no {spec.form} sandbox here has the network {spec.network} and the disk level {spec.disk_level}"
            raise ValueError(msg)
        name = _checked(spec.name)
        if name in self._living:
            await self._living[name].destroy()
        try:
            setting = await asyncio.to_thread(registry.make, name, spec)
            sandbox = self._sandbox(ground, spec, setting)
            self._living[name] = sandbox
            if isinstance(sandbox, HeldSandbox):
                await sandbox.start()
        except BaseException:
            await self._remove(name)
            raise
        return sandbox

    async def keep(self, name: SandboxName, until: datetime) -> None:
        """Ends the processes of a sandbox of this process and keeps its files until that time; then `reap` takes it.

        Its owner must not destroy it. Raises `SandboxLost` when this process has no such sandbox.
        """
        text, registry = _checked(name), await self._registered()
        sandbox = self._living.get(text)
        if sandbox is None:
            raise SandboxLost("worker", f"There is no sandbox {text} in this process.")
        await sandbox.kill()
        await asyncio.to_thread(registry.keep, text, Kept(until, sandbox.spec))

    async def let_go(self, name: SandboxName) -> None:
        """Lets go of a kept sandbox of this process, so that any process of this machine may `attach` it."""
        text = _checked(name)
        if self._living.pop(text, None) is not None:
            await asyncio.to_thread((await self._registered()).let_go, text)

    async def attach(self, name: SandboxName) -> HeldSandbox:
        """Returns a sandbox of this process in the form `held`, or a kept one on the files that a dead process left.

        A one-shot sandbox is ended and entered anew on its files. A kept one of a dead process has the environment
        of no command: that is not written down. Raises `SandboxLost` when there is none.
        """
        ground, registry, text = await self._prepared(), await self._registered(), _checked(name)
        async with self._attaching:
            sandbox = self._living.get(text)
            if isinstance(sandbox, HeldSandbox):
                return sandbox
            if sandbox is None:
                spec, setting = await asyncio.to_thread(registry.take_kept, text)
            else:
                await sandbox.kill()
                spec, setting = replace(sandbox.spec, form=Form.HELD), sandbox.setting
                if setting.group is not None:
                    add_leaves(setting.group)
            held = HeldSandbox(spec, setting, lambda: self._remove(text), self._entrance_of(ground))
            self._living[text] = held
            return held

    async def list_sandboxes(self, *, now: datetime) -> list[SandboxView]:
        """Returns the sandboxes of this process and the kept ones on this machine, the oldest first."""
        registry = await self._registered()
        kept = await asyncio.to_thread(registry.kept)
        specs = {name: note.spec for name, note in kept.items()}
        specs |= {name: sandbox.spec for name, sandbox in self._living.items()}
        views = [
            SandboxView(
                name,
                spec.owner,
                spec.form,
                name in self._living,
                registry.age_s(name, now),
                kept[name].until if name in kept else None,
            )
            for name, spec in specs.items()
        ]
        return sorted(views, key=lambda view: (-view.age_s, view.name))

    async def reap(self, live: Collection[str], *, now: datetime) -> list[str]:
        """Removes sandboxes that no living process holds and that `live` does not name; returns their names.

        Kept ones go when their time is over, those of this process, too. Layers of sandboxes that this process
        prepared and never created go after ten minutes; empty control groups of dead servers, and layers above the
        cache's size, go too.
        """
        ground, registry = await self._prepared(), await self._registered()
        kept = await asyncio.to_thread(registry.kept)
        over = [name for name in self._living if name in kept and kept[name].until <= now and name not in live]
        for name in over:
            await self._living[name].destroy()
        abandoned = [
            name
            for name in registry.prepared()
            if name not in self._living and name not in live and registry.age_s(name, now) > ABANDONED_S
        ]
        for name in abandoned:
            await registry.remove(name)
        gone = await asyncio.to_thread(registry.reap, frozenset(live), now)
        used = await asyncio.to_thread(used_layers, ground.places.sandboxes)
        needed = {ground.base.lower, *(ground.places.layers / name for name in used)}
        await ground.layers.prune(self._layer_cache_bytes, needed, now.timestamp())
        return sorted({*gone, *abandoned, *over})

    async def kill_all(self) -> None:
        """Ends every process of every sandbox of this process, and the helper that lets commands in; files stay."""
        sandboxes = list(self._living.values())
        self.kill_now()
        await asyncio.gather(*(sandbox.kill() for sandbox in sandboxes))
        if self._entrance is not None:
            await self._entrance.close()
        if self._ground is not None:
            await self._ground.starter.close()

    def kill_now(self) -> None:
        """The same for a watchdog: sends the signals and returns at once; any thread may call it."""
        for sandbox in list(self._living.values()):
            sandbox.kill_now()

    async def _prepared(self) -> Ground:
        if self._ground is None:
            async with self._laying:
                if self._ground is None:
                    self._ground = await lay_ground(
                        self._root,
                        self._sandbox_uid,
                        self._public_root,
                        self._view,
                        self._cgroups,
                        images=self._disk_images,
                    )
        return self._ground

    async def _registered(self) -> Registry:
        if self._registry is None:
            ground = await self._prepared()
            self._registry = self._registry or Registry(ground, self.name, self._host)
        return self._registry

    def _entrance_of(self, ground: Ground) -> Entrance:
        if self._entrance is None:
            self._entrance = Entrance(ground.identity)
        return self._entrance

    def _sandbox(self, ground: Ground, spec: SandboxSpec, setting: Setting) -> BwrapSandbox:
        async def remove() -> None:
            await self._remove(setting.handle.name)

        if spec.form is Form.HELD:
            return HeldSandbox(spec, setting, remove, self._entrance_of(ground))
        return OneShotSandbox(spec, setting, remove)

    async def _remove(self, name: str) -> None:
        self._living.pop(name, None)
        await (await self._registered()).remove(name)

    async def _probe(self) -> str | None:
        """Starts a sandbox that writes a file; returns what went wrong, or None."""
        name = SandboxName(f"probe_{os.getpid()}_{secrets.token_hex(4)}", 0, Purpose.BUILD)
        image = ImageRef("", (), "/", {})
        try:
            sandbox = await self.create(
                SandboxSpec(name, self._host, Form.ONE_SHOT, image, "/", {}, Limits(memory_mb=64, pids=16))
            )
        except EnvironmentFailure as error:
            return error.message
        try:
            result = await sandbox.exec(["sh", "-c", "echo written > /probe"], timeout_s=_PROBE_TIMEOUT_S)
        except EnvironmentFailure as error:
            return error.message
        finally:
            await sandbox.destroy()
        return (
            None if result.exit_code == 0 else result.stderr_tail.decode(errors="replace").strip() or "no reason given"
        )


def _checked(name: SandboxName) -> str:
    text = str(name)
    if _NAME.match(text) is None:
        msg = f"{text!r} is not the name of a sandbox"
        raise ValueError(msg)
    return text
