"""The bubblewrap backend: sandboxes made of namespaces and an overlay on the host's system folders; no daemon."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from tollbar.sandboxes.base import BaseInfo
from tollbar.sandboxes.build_steps import BuildSteps
from tollbar.sandboxes.bwrap_command import Root
from tollbar.sandboxes.cgroups import Cgroups, Group
from tollbar.sandboxes.claims import Claim, claim, take, used_layers
from tollbar.sandboxes.errors import BackendUnusable, EnvironmentFailure, EnvironmentStartFailed
from tollbar.sandboxes.folders import hand_over
from tollbar.sandboxes.ground import Ground, lay_ground, starts_without_overlay
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
    SandboxHandle,
    SandboxName,
    SandboxSpec,
)
from tollbar.sandboxes.one_shot import OneShotSandbox, Setting
from tollbar.sandboxes.places import PUBLIC_ROOT
from tollbar.sandboxes.preflight import HostView, Unprepared, cgroup_advice, overlay_problem, start_problem
from tollbar.sandboxes.process import settle
from tollbar.sandboxes.upper import ensure_folder, make_folder

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,120}\Z")
_ABANDONED_S: Final = 600.0
_PROBE_TIMEOUT_S: Final = 10.0
_MIB: Final = 1 << 20
_BUILD_LIMITS: Final = Limits()


class BwrapProvider:
    """Implements `interface.SandboxProvider`.

    `root` is a folder of the data directory. A supervisor that is root drops to `sandbox_uid`, which must be able to
    pass every folder above its sandboxes: when it cannot pass to `root`, a folder below `public_root` is used instead
    (made by us, mode 0711, on a file system that can hold an overlay's upper layer). `host` names the machine in
    handles. `cgroups` and `view` are found when not given.
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
        self._claims: dict[str, Claim] = {}
        self._living: dict[str, OneShotSandbox] = {}

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
            networks=frozenset({Network.NONE}),
            limits=self._ground.cgroups.levels(),
            gpu=False,
            healthcheck=False,
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
        ground = await self._prepared()
        text = _checked(name)
        if text in self._living:
            await self._living[text].destroy()
        return await asyncio.to_thread(self._fill_scratch, ground, text, fill)

    async def create(self, spec: SandboxSpec) -> OneShotSandbox:
        """Makes a sandbox; nothing runs in it yet. What an older try left under its name goes first.

        Raises `EnvironmentStartFailed` when another process holds the name, for too many layers, or for limits that
        the machine does not take, and `ValueError` for what this backend does not have (form, network).
        """
        if spec.form is not Form.ONE_SHOT or spec.network is not Network.NONE:
            msg = f"this backend has no {spec.form} sandbox with the network {spec.network}"
            raise ValueError(msg)
        ground = await self._prepared()
        name = _checked(spec.name)
        if name in self._living:
            await self._living[name].destroy()
        try:
            setting = await asyncio.to_thread(self._make, ground, name, spec)
            sandbox = OneShotSandbox(spec, setting, lambda: self._remove(ground, name))
        except BaseException:
            await self._remove(ground, name)
            raise
        self._living[name] = sandbox
        return sandbox

    async def reap(self, live: Collection[str], *, now: datetime) -> list[str]:
        """Removes sandboxes that no living process holds and that `live` does not name; returns their names.

        Layers of sandboxes that this process prepared and never created go after ten minutes; control groups without
        a folder, and layers above the cache's size, go too.
        """
        ground = await self._prepared()
        abandoned = [
            name
            for name, held in list(self._claims.items())
            if name not in self._living and name not in live and held.age_s(now.timestamp()) > _ABANDONED_S
        ]
        for name in abandoned:
            await self._remove(ground, name)
        gone = await asyncio.to_thread(self._reap, ground, frozenset(live))
        used = await asyncio.to_thread(used_layers, ground.places.sandboxes)
        kept = {ground.base.lower, *(ground.places.layers / name for name in used)}
        await ground.layers.prune(self._layer_cache_bytes, kept, now.timestamp())
        return sorted({*gone, *abandoned})

    async def kill_all(self) -> None:
        """Ends every process of every sandbox of this process; the files stay."""
        sandboxes = list(self._living.values())
        self.kill_now()
        await asyncio.gather(*(sandbox.kill() for sandbox in sandboxes))

    def kill_now(self) -> None:
        """The same for a watchdog: sends the signals and returns at once; any thread may call it."""
        for sandbox in list(self._living.values()):
            sandbox.kill_now()

    async def _prepared(self) -> Ground:
        if self._ground is None:
            async with self._laying:
                if self._ground is None:
                    self._ground = await lay_ground(
                        self._root, self._sandbox_uid, self._public_root, self._view, self._cgroups
                    )
        return self._ground

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

    def _group_prefix(self, ground: Ground) -> str:
        return f"tollbar-{ground.places.tag}-"

    def _group(self, ground: Ground, name: str) -> Group:
        return ground.cgroups.group(self._group_prefix(ground) + name)

    def _claim(self, ground: Ground, name: str) -> Claim:
        if name not in self._claims:
            self._claims[name] = claim(ground.places.sandboxes, name, ground.identity.uid)
        return self._claims[name]

    def _fill_scratch(self, ground: Ground, name: str, fill: Callable[[Path], None]) -> Path:
        held = self._claim(ground, name)
        folder = held.tenant_folder(f"in-{secrets.token_hex(3)}", ground.identity)
        fill(folder)
        hand_over(folder, ground.identity)
        return folder

    def _make(self, ground: Ground, name: str, spec: SandboxSpec) -> Setting:
        """Makes folders and group; blocks for about a millisecond."""
        held = self._claim(ground, name)
        lowers = lower_layers(ground.base, spec)
        root = Root(lowers, held.folder / "up", held.folder / "wk", ground.base.binds)
        root.arguments()
        missing = [path for path in lowers if not path.is_dir()]
        if missing:
            raise EnvironmentStartFailed("start", f"The layer {missing[0].name} is gone.")
        held.note_layers([path.name for path in lowers])
        held.tenant_folder("up", ground.identity)
        held.tenant_folder("wk", ground.identity)
        if spec.workdir != "/":
            ensure_folder(root.upper, lowers, spec.workdir, ground.identity)
        for folder in {*spec.directories} - {"/", spec.workdir}:
            make_folder(root.upper, lowers, folder, ground.identity)
        try:
            group = ground.cgroups.make(self._group_prefix(ground) + name, spec.limits)
        except OSError as error:
            msg = f"The machine does not take these limits: {error.strerror}."
            raise EnvironmentStartFailed("start", msg) from error
        data = {"directory": str(held.folder), "cgroups": [] if group is None else group.join}
        handle = SandboxHandle(self.name, self._host, spec.owner, name, data)
        return Setting(ground.programs, ground.identity, root, held.folder, group, ground.cgroups.levels(), handle)

    async def _remove(self, ground: Ground, name: str) -> None:
        """Removes group, folder and lock of a sandbox whose processes are dead; a cancellation waits for it."""
        self._living.pop(name, None)
        held = self._claims.pop(name, None)
        if held is not None:
            await settle(asyncio.create_task(asyncio.to_thread(self._clear, ground, held)))

    def _clear(self, ground: Ground, held: Claim) -> None:
        self._group(ground, held.folder.name).remove()
        held.remove()

    def _reap(self, ground: Ground, live: frozenset[str]) -> list[str]:
        gone: list[str] = []
        for folder in list(ground.places.sandboxes.iterdir()):
            if folder.name in live or folder.name in self._claims:
                continue
            left = take(folder)
            if left is not None:
                left.kill_leftovers(ground.identity.uid)
                self._clear(ground, left)
                gone.append(folder.name)
        prefix = self._group_prefix(ground)
        for group in ground.cgroups.names(prefix):
            if not (ground.places.sandboxes / group.removeprefix(prefix)).exists():
                ground.cgroups.group(group).remove()
        return gone


def _checked(name: SandboxName) -> str:
    text = str(name)
    if _NAME.match(text) is None:
        msg = f"{text!r} is not the name of a sandbox"
        raise ValueError(msg)
    return text


def lower_layers(base: BaseInfo, spec: SandboxSpec) -> tuple[Path, ...]:
    """Returns base, image and inputs, bottom first; a layer that stands twice counts where it is uppermost."""
    stack = (base.lower, *spec.image.layers, *spec.inputs)
    return tuple(reversed(dict.fromkeys(reversed(stack))))
