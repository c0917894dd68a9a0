"""The Docker backend: containers of any image, without network, with the least rights that images need to work."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiodocker

from tollbar.sandboxes.claims import Claim, claim, take
from tollbar.sandboxes.docker.container import DockerSandbox, Place
from tollbar.sandboxes.docker.engine import Engine, unless_gone
from tollbar.sandboxes.docker.images import Images
from tollbar.sandboxes.docker.labels import INSTALLATION, NAME, Mark, name_of
from tollbar.sandboxes.docker.project import RIGHTS, Project, marked, purge
from tollbar.sandboxes.docker.uploads import Upload
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.identity import Identity
from tollbar.sandboxes.interface import (
    Capabilities,
    Form,
    ImageRef,
    ImageSpec,
    Network,
    Problem,
    SandboxHandle,
    SandboxName,
    SandboxSpec,
    SandboxView,
)
from tollbar.sandboxes.kept import Kept, read_kept
from tollbar.sandboxes.layers import LayerStore

_MIB: Final = 1 << 20
_NANO: Final = 1_000_000_000
_OWN_NETWORKS: Final = frozenset({"runsc", "kata"})
"""Runtimes whose containers have a loopback that no process of the machine can join."""
_IDLE: Final = ("sleep", "infinity")
_LEVELS: Final = {"cpus": "kernel", "memory": "kernel", "pids": "kernel", "nofile": "kernel", "disk": "none"}


class DockerProvider:
    """Implements `interface.SandboxProvider` on a Linux engine.

    `root` is a folder of the data directory: claims of living sandboxes, input layers. `host` names the machine in
    labels. `runtime` is an engine's runtime such as `runsc`; None is the engine's own.
    """

    def __init__(self, root: Path, *, host: str, engine: Engine | None = None, runtime: str | None = None) -> None:
        self._root = root
        self._host = host
        self._engine = engine or Engine()
        self._runtime = runtime
        self._images = Images(self._engine)
        self._living: dict[str, DockerSandbox] = {}
        self._claims: dict[str, Claim] = {}
        self._layers: LayerStore | None = None
        self._mark: Mark | None = None
        self._has_compose = False

    @property
    def name(self) -> str:
        return "docker"

    async def preflight(self) -> list[Problem]:
        """Returns what is in the way: no program, no engine, one that does not answer, or lacks the runtime."""
        problem = await self._engine.problem(self._runtime)
        if problem is not None:
            return [problem]
        self._has_compose = await self._engine.has_compose()
        return []

    def capabilities(self) -> Capabilities:
        """Returns what this backend enforces. A disk is not bounded; nothing holds a container to a size."""
        return Capabilities(
            compose=self._has_compose,
            dockerfile="full",
            image=True,
            users=False,
            networks=self._networks(),
            limits=_LEVELS,
            gpu=False,
            healthcheck=True,
            kernel_isolation={"runsc": "gvisor", "kata": "vm"}.get(self._runtime or "", "shared"),
            seal=True,
            regrade=True,
            forms=frozenset({Form.HELD}),
            keeps=False,
        )

    def _networks(self) -> frozenset[Network]:
        """Returns what its sandboxes can reach: ports inside are opened by joining a container's network."""
        if os.geteuid() != 0 or self._runtime in _OWN_NETWORKS:
            return frozenset({Network.NONE})
        return frozenset({Network.NONE, Network.GATEWAY, Network.ALLOWLIST})

    async def base_digest(self) -> str:
        """Returns the name of this backend: every image is a base of its own."""
        return self.name

    async def build(self, spec: ImageSpec) -> ImageRef:
        """Builds or finds the image, and those of the services beside it.

        Raises `EnvironmentBuildFailed`, and `EnvironmentRefused` for a compose file that asks for too much.
        """
        return await self._images.with_services(spec)

    async def layer(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Returns the folder of that key; `fill(folder)` makes it once, in a thread."""
        return await (await self._layer_store()).ensure(key, fill)

    async def scratch_layer(self, name: SandboxName, fill: Callable[[Path], None]) -> Path:
        """Returns a folder of one sandbox, which is created after it; it goes with that sandbox's `destroy`."""
        text = str(name)
        if text in self._living:
            await self._living[text].destroy()
        held = await self._claim(text)

        def make() -> Path:
            folder = held.folder / f"scratch-{secrets.token_hex(4)}"
            folder.mkdir()
            fill(folder)
            return folder

        return await asyncio.to_thread(make)

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        """Makes a container that does not run yet, with its inputs in it; an older try's goes first.

        Raises `EnvironmentStartFailed`, and `ValueError` for a network that this backend does not have.
        """
        if spec.network not in self._networks():
            msg = f"this backend has no sandbox with the network {spec.network}"
            raise ValueError(msg)
        name, mark = name_of(spec), await self._marked()
        if name in self._living:
            await self._living[name].destroy()
        await self._claim(name)
        try:
            upload = await asyncio.to_thread(_inputs, spec)
            project = None
            if spec.image.services is None:
                await self._delete(mark.container(name))
                container = (
                    await self._engine.client.containers.create(
                        self._configuration(spec, mark), name=mark.container(name)
                    )
                ).id
            else:
                await purge(self._engine, mark, name)
                folder = self._claims[name].folder / "project"
                project = Project(self._engine, spec, spec.image.services, mark, folder, self._runtime)
                container = await project.create()
            sandbox = self._sandbox(spec, container, upload.whiteouts, project)
            await sandbox.upload(upload)
        except aiodocker.DockerError as error:
            with suppress(aiodocker.DockerError):
                await self._remove(name)
            raise EnvironmentStartFailed("start", f"The container was not made: {error.message}") from error
        except BaseException:
            await self._remove(name)
            raise
        return sandbox

    async def keep(self, name: SandboxName, until: datetime) -> None:
        """Ends the processes of a sandbox of this process and keeps its files until that time; then `reap` takes it.

        Its owner must not destroy it. Raises `SandboxLost` when this process has no such sandbox.
        """
        sandbox = self._living.get(str(name))
        if sandbox is None:
            raise SandboxLost("worker", f"There is no sandbox {name} in this process.")
        await sandbox.kill()
        await asyncio.to_thread(Kept(until, sandbox.spec).write, self._claims[str(name)].folder)

    async def let_go(self, name: SandboxName) -> None:
        """Lets go of a kept sandbox of this process, so that any process of this machine may `attach` it."""
        if self._living.pop(str(name), None) is not None:
            self._claims.pop(str(name)).let_go()

    async def attach(self, name: SandboxName) -> DockerSandbox:
        """Returns a sandbox of this process, or a kept one that a dead process left; or raises `SandboxLost`."""
        text, mark = str(name), await self._marked()
        if text in self._living:
            return self._living[text]
        held = await asyncio.to_thread(take, self._folder(text))
        note = None if held is None else read_kept(held.folder)
        if held is None or note is None:
            if held is not None:
                held.let_go()
            raise SandboxLost("worker", f"There is no sandbox {name}.")
        self._claims[text] = held
        try:
            container = await self._engine.client.containers.get(mark.container(text))
        except aiodocker.DockerError as error:
            raise SandboxLost("engine", f"The container of {name} is gone.") from error
        return self._sandbox(note.spec, container.id, (), None)

    async def list_sandboxes(self, *, now: datetime) -> list[SandboxView]:
        """Returns the sandboxes of this process and the kept ones on this machine, the oldest first."""
        kept = {folder.name: note for folder in self._folders() if (note := read_kept(folder)) is not None}
        specs = {name: note.spec for name, note in kept.items()}
        specs |= {name: sandbox.spec for name, sandbox in self._living.items()}
        views = [
            SandboxView(
                name,
                spec.owner,
                spec.form,
                name in self._living,
                now.timestamp() - self._folder(name).stat().st_mtime,
                kept[name].until if name in kept else None,
            )
            for name, spec in specs.items()
        ]
        return sorted(views, key=lambda view: (-view.age_s, view.name))

    async def reap(self, live: Collection[str], *, now: datetime) -> list[str]:
        """Removes containers and folders that no living process holds and `live` does not name; returns the names.

        Kept ones go when their time is over. Another installation's containers are never touched.
        """
        mark = await self._marked()
        found = await self._engine.client.containers.list(
            all="true", filters=f'{{"label": ["{INSTALLATION}={mark.installation}"]}}'
        )
        mine = {item["Labels"][NAME] for item in found if mark.is_mine(item["Labels"])}
        gone: list[str] = []
        mine |= await marked(self._engine, mark)
        for name in sorted({*mine, *(folder.name for folder in self._folders())} - set(live)):
            note = read_kept(self._folder(name))
            if note is not None and note.until > now:
                continue
            if name in self._living:
                if note is not None:
                    await self._living[name].destroy()
                    gone.append(name)
            elif name not in self._claims and await self._reap(name):
                gone.append(name)
        await (await self._layer_store()).prune(10 << 30, (), now.timestamp())
        return gone

    async def kill_all(self) -> None:
        """Ends every process of every sandbox of this process; files stay."""
        await asyncio.gather(*(sandbox.kill() for sandbox in list(self._living.values())))

    def kill_now(self) -> None:
        """The same for a watchdog: tells the engine and returns at once; any thread may call it."""
        self._engine.kill_now([name for sandbox in list(self._living.values()) for name in sandbox.give_up()])

    async def close(self) -> None:
        """Closes the connections to the engine."""
        await self._engine.close()

    def _configuration(self, spec: SandboxSpec, mark: Mark) -> dict[str, Any]:
        limits = spec.limits
        memory = limits.memory_mb * _MIB
        host: dict[str, Any] = {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "CapAdd": list(RIGHTS),
            "SecurityOpt": ["no-new-privileges:true"],
            "Init": True,
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": round(limits.cpus * _NANO),
            "PidsLimit": limits.pids,
            "Ulimits": [{"Name": "nofile", "Soft": limits.nofile, "Hard": limits.nofile}],
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
            "Privileged": False,
        }
        if self._runtime is not None:
            host["Runtime"] = self._runtime
        return {
            "Image": spec.image.digest,
            "Entrypoint": [],
            "Cmd": list(_IDLE),
            "Env": [f"{name}={value}" for name, value in {"IS_SANDBOX": "1", **spec.env}.items()],
            "WorkingDir": spec.workdir,
            "Hostname": "sandbox",
            "Labels": mark.of(spec),
            "NetworkDisabled": True,
            "StopSignal": "SIGKILL",
            "HostConfig": host,
        }

    def _sandbox(
        self, spec: SandboxSpec, container: str, whiteouts: list[str] | tuple[str, ...], project: Project | None
    ) -> DockerSandbox:
        name = name_of(spec)

        async def remove() -> None:
            await self._remove(name)

        handle = SandboxHandle(self.name, self._host, spec.owner, name, {"container": container, "levels": _LEVELS})
        sandbox = DockerSandbox(spec, Place(self._engine, container, handle, remove, project), whiteouts)
        self._living[name] = sandbox
        return sandbox

    async def _claim(self, name: str) -> Claim:
        if name not in self._claims:
            await self._marked()
            self._claims[name] = await asyncio.to_thread(claim, self._root / "sandboxes", name, _NOBODY)
        return self._claims[name]

    async def _remove(self, name: str) -> None:
        sandbox, held = self._living.pop(name, None), self._claims.pop(name, None)
        mark = await self._marked()
        try:
            await self._delete(mark.container(name))
            if sandbox is None or sandbox.spec.image.services is not None:
                await purge(self._engine, mark, name)
        except BaseException:
            # Whatever is left is the reaper's from now on.
            if held is not None:
                held.let_go()
            raise
        if held is not None:
            await asyncio.to_thread(held.remove)

    async def _reap(self, name: str) -> bool:
        folder = self._folder(name)
        folder.mkdir(exist_ok=True)
        held = await asyncio.to_thread(take, folder)
        if held is None:
            return False
        mark = await self._marked()
        await self._delete(mark.container(name))
        await purge(self._engine, mark, name)
        await asyncio.to_thread(held.remove)
        return True

    async def _delete(self, container: str) -> None:
        await unless_gone(self._engine.client.containers.container(container).delete(force=True, v=True))

    async def _marked(self) -> Mark:
        if self._mark is None:
            self._mark = Mark(await asyncio.to_thread(_installation, self._root), self._host)
        return self._mark

    async def _layer_store(self) -> LayerStore:
        if self._layers is None:
            await self._marked()
            self._layers = LayerStore(self._root / "layers", Identity(os.geteuid(), os.getegid(), drop=False))
        return self._layers

    def _folder(self, name: str) -> Path:
        return self._root / "sandboxes" / name

    def _folders(self) -> list[Path]:
        folder = self._root / "sandboxes"
        return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


_NOBODY: Final = 0
"""No program of this machine is a tenant's: nothing is to be ended when a claim is taken over."""


def _inputs(spec: SandboxSpec) -> Upload:
    upload = Upload()
    for layer in spec.inputs:
        upload.layer(layer)
    upload.folders(folder for folder in spec.directories if folder != spec.workdir)
    return upload


def _installation(root: Path) -> str:
    """Returns the id of this data directory, made once."""
    for folder in ("sandboxes", "layers"):
        (root / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    path = root / "installation"
    with suppress(FileExistsError), path.open("x") as file:
        file.write(secrets.token_hex(6))
    return path.read_text().strip()
