"""The services of one sandbox as a Compose project: one file that is wholly tollbar's own, and what is made of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiodocker.networks import DockerNetwork
from aiodocker.volumes import DockerVolume

from tollbar.sandboxes.docker.compose_file import MAIN, Mount, Service, Services
from tollbar.sandboxes.docker.engine import Engine, unless_gone
from tollbar.sandboxes.docker.labels import INSTALLATION, NAME, Mark, name_of
from tollbar.sandboxes.docker.uploads import Upload
from tollbar.sandboxes.errors import EnvironmentStartFailed
from tollbar.sandboxes.interface import Limits, SandboxSpec

RIGHTS: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What package managers and `su` need inside; every other capability is dropped."""
_MIB: Final = 1 << 20
_CREATE_TIMEOUT_S: Final = 120.0
_READY_TIMEOUT_S: Final = 180.0
_LOOK_AGAIN_S: Final = 0.2
_SAID_CHARACTERS: Final = 2000
_NO_ADDRESS_OF_THE_HOST: Final = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""An internal network reaches its machine at the bridge's own address; this bridge has none."""
_NO_RESOLVER: Final = "192.0.2.53"
"""Older engines take names that an internal network does not have to the machine's resolver; here is none."""
_COMPLETED: Final = "service_completed_successfully"


@dataclass
class Project:
    """What stands beside `main`; `folder` is the sandbox's own, for the file that Compose reads."""

    engine: Engine
    spec: SandboxSpec
    services: Services
    mark: Mark
    folder: Path
    runtime: str | None
    _up: bool = field(default=False, init=False)
    _frozen: bool = field(default=False, init=False)

    @property
    def containers(self) -> list[str]:
        """Returns the names of the other services' containers."""
        return [self._container(service.name) for service in self.services.others]

    async def create(self) -> str:
        """Makes all containers, networks and volumes, starts none, and returns the engine's id of `main`.

        Raises `EnvironmentStartFailed`.
        """
        self.folder.mkdir(exist_ok=True)
        document = json.dumps(written(self.spec, self.services, self.mark, self.runtime))
        await asyncio.to_thread(_write, self.folder, document)
        await self._compose("create", "--no-build", timeout_s=_CREATE_TIMEOUT_S)
        for service in self.services.all:
            upload = await asyncio.to_thread(self._copies, service)
            if upload is not None:
                await self.engine.client.containers.container(self._container(service.name)).put_archive(
                    "/", await asyncio.to_thread(upload.done)
                )
        shown = await self.engine.client.containers.container(self._container(MAIN)).show()
        return str(shown["Id"])

    async def up(self) -> None:
        """Starts the other services and waits until each is ready; later on, lets them go on where they were.

        Raises `EnvironmentStartFailed` for one that ends, or is not healthy.
        """
        containers = [self.engine.client.containers.container(name) for name in self.containers]
        if self._frozen:
            self._frozen = False
            await asyncio.gather(*(unless_gone(container.unpause()) for container in containers))
        if self._up or not containers:
            return
        names = [service.name for service in self.services.others]
        await self._compose("up", "--detach", "--no-build", "--no-recreate", *names, timeout_s=_READY_TIMEOUT_S)
        deadline = time.monotonic() + _READY_TIMEOUT_S
        await asyncio.gather(*(self._ready(service, deadline) for service in self.services.others))
        self._up = True

    async def freeze(self) -> None:
        """Stops every process of the other services where it is; `up` lets them go on."""
        if self._up and not self._frozen:
            self._frozen = True
            containers = [self.engine.client.containers.container(name) for name in self.containers]
            await asyncio.gather(*(unless_gone(container.pause()) for container in containers))

    async def _ready(self, service: Service, deadline: float) -> None:
        container = self.engine.client.containers.container(self._container(service.name))
        completes = any(other.depends_on.get(service.name) == _COMPLETED for other in self.services.all)
        while True:
            state = (await container.show())["State"]
            health = (state.get("Health") or {}).get("Status", "healthy")
            if completes and state["Status"] == "exited" and state["ExitCode"] == 0:
                return
            if state["Running"] and health == "healthy" and not completes:
                return
            ended = state["Status"] in {"exited", "dead"}
            if ended or health == "unhealthy" or time.monotonic() > deadline:
                how = f"ended: exit code {state['ExitCode']}" if ended else f"is {health}"
                said = "".join(await container.log(stdout=True, stderr=True, tail=20))[-_SAID_CHARACTERS:]
                text = f"The service {service.name} {how}. {said.strip()}".strip()
                raise EnvironmentStartFailed("healthcheck" if not ended else "start", text)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _compose(self, *words: str, timeout_s: float) -> None:
        project = ("--project-name", self.mark.container(name_of(self.spec)), "--project-directory", str(self.folder))
        files = ("--file", str(self.folder / _FILE), "--env-file", str(self.folder / _ENVIRONMENT))
        try:
            said = await self.engine.run("compose", *project, *files, *words, timeout_s=timeout_s)
        except TimeoutError as error:
            msg = f"The services were not there within {timeout_s:g} s."
            raise EnvironmentStartFailed("timeout", msg) from error
        if said.exit_code != 0:
            msg = f"The services did not start: {said.text.strip()[-_SAID_CHARACTERS:]}"
            raise EnvironmentStartFailed("start", msg)

    def _container(self, service: str) -> str:
        return container_of(self.mark, name_of(self.spec), service)

    def _copies(self, service: Service) -> Upload | None:
        copied = [mount for mount in service.mounts if mount.source is not None]
        if not copied:
            return None
        upload = Upload()
        for mount in copied:
            source = self.services.folder / str(mount.source)
            if source.is_dir():
                upload.replacement(source, mount.target)
            else:
                upload.file(source, mount.target)
        return upload


_FILE: Final = "compose.json"
_ENVIRONMENT: Final = "empty.env"


def container_of(mark: Mark, name: str, service: str) -> str:
    """Returns the container's name of a service of a sandbox; that of `main` is the sandbox's own."""
    return mark.container(name) if service == MAIN else f"{mark.container(name)}.{service}"


def written(spec: SandboxSpec, services: Services, mark: Mark, runtime: str | None) -> dict[str, Any]:
    """Returns the one file that Compose reads, with its dollars doubled: it replaces no variable."""
    labels = mark.of(spec)
    document: dict[str, Any] = {
        "services": {
            service.name: _service(spec, service, services, mark, runtime) | {"labels": _labels(service) | labels}
            for service in services.all
        },
        "volumes": {name: {"labels": labels} for name in services.volumes},
    }
    if services.others:
        network = {"internal": True, "driver_opts": _NO_ADDRESS_OF_THE_HOST, "labels": labels}
        document["networks"] = dict.fromkeys(("default", *services.networks), network)
    return _without_variables(document)


def _labels(service: Service) -> dict[str, str]:
    return dict(service.keys.get("labels", {}))


def _service(
    spec: SandboxSpec, service: Service, services: Services, mark: Mark, runtime: str | None
) -> dict[str, Any]:
    keys = {name: value for name, value in service.keys.items() if name not in {"labels", *_LIMITED}}
    own: dict[str, Any] = {
        "image": services.images[service.name],
        "pull_policy": "never",
        "container_name": container_of(mark, name_of(spec), service.name),
        "environment": dict(service.environment),
        "depends_on": {name: {"condition": condition} for name, condition in service.depends_on.items()},
        "volumes": [_volume(mount) for mount in service.mounts if mount.volume is not None],
        "logging": {"driver": "local", "options": {"max-size": "1m", "max-file": "2"}},
    }
    if services.others:
        own["networks"] = list(service.networks) or ["default"]
        own["dns"] = [_NO_RESOLVER]
    else:
        own["network_mode"] = "none"
    if service.name == MAIN:
        keys = {"entrypoint": [], "command": ["sleep", "infinity"], "hostname": "sandbox", **keys}
        own |= {
            "environment": {"IS_SANDBOX": "1", **spec.env},
            "depends_on": {},
            "working_dir": spec.workdir,
            "logging": {"driver": "none"},
        }
    return keys | own | _forced(spec, service, runtime)


_LIMITED: Final = frozenset({"mem_limit", "cpus", "pids_limit", "ulimits", "shm_size"})


def _forced(spec: SandboxSpec, service: Service, runtime: str | None) -> dict[str, Any]:
    """Returns what every service has, whatever its file says; it may ask for less than the limits, not for more."""
    most: Limits = spec.limits if service.name == MAIN else spec.ceiling or spec.limits
    memory = most.memory_mb * _MIB
    default = memory if service.name == MAIN else min(memory, spec.limits.memory_mb * _MIB)
    asked = service.keys
    limits = asked.get("ulimits", {})
    memory = min(asked.get("mem_limit") or default, memory)
    forced: dict[str, Any] = {
        "privileged": False,
        "cap_drop": ["ALL"],
        "cap_add": list(RIGHTS),
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "restart": "no",
        "stop_signal": "SIGKILL",
        "mem_limit": memory,
        "memswap_limit": memory,
        "cpus": min(asked.get("cpus") or spec.limits.cpus, most.cpus),
        "pids_limit": min(asked.get("pids_limit") or spec.limits.pids, most.pids),
        "ulimits": {
            "nofile": min(limits.get("nofile") or spec.limits.nofile, most.nofile),
            **({"nproc": min(limits["nproc"], most.pids)} if limits.get("nproc") else {}),
        },
    }
    if "shm_size" in asked:
        forced["shm_size"] = min(asked["shm_size"], memory)
    if runtime is not None:
        forced["runtime"] = runtime
    return forced


def _volume(mount: Mount) -> dict[str, Any]:
    return {"type": "volume", "source": mount.volume, "target": mount.target, "read_only": mount.read_only}


def _without_variables(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {name: _without_variables(member) for name, member in node.items()}
    if isinstance(node, list):
        return [_without_variables(member) for member in node]
    return node.replace("$", "$$") if isinstance(node, str) else node


def _write(folder: Path, document: str) -> None:
    """Writes for this user's eyes only: the environment may hold secrets. It goes with the sandbox."""
    (folder / _ENVIRONMENT).touch(mode=0o600)
    path = folder / _FILE
    path.touch(mode=0o600)
    path.write_text(document)


async def purge(engine: Engine, mark: Mark, name: str) -> None:
    """Removes every container, network and volume of a sandbox, whoever made it; safe to repeat."""
    wanted = {"label": [f"{INSTALLATION}={mark.installation}", f"{NAME}={name}"]}
    client = engine.client
    containers = await client.containers.list(all="true", filters=json.dumps(wanted))
    await asyncio.gather(*(unless_gone(found.delete(force=True, v=True)) for found in containers))
    for found in await client.networks.list(filters=wanted):
        await unless_gone(DockerNetwork(client, found["Id"]).delete())
    for found in (await client.volumes.list(filters=wanted))["Volumes"] or []:
        await unless_gone(DockerVolume(client, found["Name"]).delete())


async def marked(engine: Engine, mark: Mark) -> set[str]:
    """Returns the names of the sandboxes of which a network or a volume of this machine's is left."""
    wanted = {"label": f"{INSTALLATION}={mark.installation}"}
    networks = await engine.client.networks.list(filters=wanted)
    volumes = (await engine.client.volumes.list(filters=wanted))["Volumes"] or []
    return {found["Labels"][NAME] for found in [*networks, *volumes] if mark.is_mine(found["Labels"] or {})}
