"""Reads a task's compose file: only what is known to be harmless is taken, everything else is refused by name.

The file itself never reaches Compose. What is read here is written anew by `project`, with tollbar's own keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tollbar.sandboxes.docker import compose_values as values
from tollbar.sandboxes.docker.compose_values import FILE, refused

MAIN: Final = "main"
"""The service in which the agent works."""
_MAX_BYTES: Final = 256 << 10
_MAX_SERVICES: Final = 16
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_CONDITIONS: Final = frozenset({"service_started", "service_healthy", "service_completed_successfully"})
_WITHOUT_EFFECT: Final = frozenset({"expose", "init", "stop_grace_period"})
"""Allowed, and not written: an internal network hides no port, and tollbar says the rest itself."""


@dataclass(frozen=True)
class Mount:
    """What a service has at a path: a named volume, or a copy of a path of the task."""

    target: str
    volume: str | None = None
    source: str | None = None
    read_only: bool = False


@dataclass(frozen=True)
class Build:
    """How a service's image is built; paths are inside the folder of the file."""

    context: str = "."
    dockerfile: str | None = None
    target: str | None = None
    args: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Service:
    """One service. `keys` are those that are written as they are."""

    name: str
    image: str | None
    build: Build | None
    environment: Mapping[str, str]
    depends_on: Mapping[str, str]
    networks: tuple[str, ...]
    mounts: tuple[Mount, ...]
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class Services:
    """All services of a file. `images` says what each one runs once they are built, `main` included."""

    folder: Path
    main: Service
    others: tuple[Service, ...]
    networks: tuple[str, ...]
    volumes: tuple[str, ...]
    images: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def all(self) -> tuple[Service, ...]:
        return (self.main, *self.others)


def read(folder: Path) -> Services:
    """Reads `folder`'s compose file; blocks. Raises `EnvironmentRefused` and names what is in the way."""
    with (folder / FILE).open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise refused("the file", "is too large.")
    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise refused("the file", f"is no YAML: {str(error).splitlines()[0]}") from error
    document = values.table(values.filled({} if document is None else document), "the file")
    for name in document:
        if name not in _TOP:
            raise refused(name, "is not allowed in a task.")
    found = {name: _TOP[name](member, name) for name, member in document.items() if member is not None}
    given: dict[str, Any] = found.get("services", {})
    services: dict[str, Any] = {MAIN: {}, **given}
    if len(services) > _MAX_SERVICES:
        raise refused("services", f"are more than {_MAX_SERVICES}.")
    networks, volumes = tuple(found.get("networks", ())), tuple(found.get("volumes", ()))
    read_all = {name: _service(folder, name, member, networks, volumes) for name, member in services.items()}
    _check_order(read_all)
    others = tuple(service for name, service in read_all.items() if name != MAIN)
    return Services(folder, read_all[MAIN], others, networks, volumes)


def _names(value: Any, where: str) -> list[str]:
    """Reads a table of names that say nothing more."""
    for name, member in values.table(value, where).items():
        _check_name(name, f"{where}.{name}")
        if member:
            key = next(iter(member)) if isinstance(member, dict) else "value"
            if not (key == "internal" and len(member) == 1):
                raise refused(f"{where}.{name}.{key}", "is not allowed in a task.")
    return list(value)


def _volumes(value: Any, where: str) -> list[str]:
    for name, member in values.table(value, where).items():
        _check_name(name, f"{where}.{name}")
        if member:
            key = next(iter(member)) if isinstance(member, dict) else "value"
            raise refused(f"{where}.{name}.{key}", "is not allowed in a task.")
    return list(value)


def _check_name(name: str, where: str) -> None:
    if _NAME.match(name) is None:
        raise refused(where, "is no name of small letters, digits, hyphens and underscores.")


def _service(folder: Path, name: str, value: Any, networks: tuple[str, ...], volumes: tuple[str, ...]) -> Service:
    where = f"services.{name}"
    _check_name(name, where)
    given = values.table({} if value is None else value, where)
    for key in given:
        if key not in _READERS and key not in _WITHOUT_EFFECT and key not in _OWN:
            raise refused(f"{where}.{key}", "is not allowed in a task.")
    keys = {key: _READERS[key](member, f"{where}.{key}") for key, member in given.items() if key in _READERS}
    environment: dict[str, str] = {}
    for path in values.texts(given.get("env_file") or [], f"{where}.env_file"):
        environment |= _env_file(folder / values.inside(folder, path, f"{where}.env_file"))
    environment |= values.pairs(given.get("environment") or {}, f"{where}.environment")
    build = given.get("build")
    return Service(
        name=name,
        image=None if given.get("image") is None else values.text(given["image"], f"{where}.image"),
        build=None if build is None else _build(folder, build, f"{where}.build"),
        environment=environment,
        depends_on=_depends_on(given.get("depends_on") or [], f"{where}.depends_on"),
        networks=_networks(given.get("networks") or [], networks, f"{where}.networks"),
        mounts=tuple(
            _mount(folder, each, volumes, f"{where}.volumes[{at}]")
            for at, each in enumerate(_list(given.get("volumes") or [], f"{where}.volumes"))
        ),
        keys=keys,
    )


def _build(folder: Path, value: Any, where: str) -> Build:
    if isinstance(value, str):
        return Build(values.inside(folder, value, where))
    readers = {"context": values.text, "dockerfile": values.text, "args": values.pairs, "target": values.text}
    given = values.only(values.table(value, where), readers, where)
    context = values.inside(folder, given.get("context", "."), f"{where}.context")
    dockerfile = given.get("dockerfile")
    if dockerfile is not None:
        values.inside(folder / context, dockerfile, f"{where}.dockerfile")
    return Build(context, dockerfile, given.get("target"), given.get("args", {}))


def _env_file(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    split = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in split if equals and name.strip()}


def _depends_on(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        return dict.fromkeys(values.texts(value, where), "service_started")
    found: dict[str, str] = {}
    for name, member in value.items():
        readers = {"condition": values.text, "required": values.flag, "restart": values.flag}
        given = values.only(values.table(member or {}, f"{where}.{name}"), readers, f"{where}.{name}")
        found[name] = given.get("condition", "service_started")
        if found[name] not in _CONDITIONS:
            raise refused(f"{where}.{name}.condition", f"must be one of {', '.join(sorted(_CONDITIONS))}.")
    return found


def _networks(value: Any, known: tuple[str, ...], where: str) -> tuple[str, ...]:
    if isinstance(value, dict):
        for name, member in value.items():
            if member:
                raise refused(f"{where}.{name}", "says more than a name, which is not allowed in a task.")
        value = list(value)
    for name in (found := values.texts(value, where)):
        if name not in known and name != "default":
            raise refused(where, f"names {name}, which the file does not declare.")
    return tuple(found)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise refused(where, "must be a list.")
    return value


def _mount(folder: Path, value: Any, volumes: tuple[str, ...], where: str) -> Mount:
    if isinstance(value, dict):
        readers = {"type": values.text, "source": values.text, "target": values.text, "read_only": values.flag}
        given = values.only(value, readers, where)
        if given.get("type") not in {"volume", "bind"}:
            raise refused(f"{where}.type", "must be volume or bind.")
        source, target, read_only = given.get("source", ""), given.get("target", ""), given.get("read_only", False)
    else:
        source, _, rest = values.text(value, where).partition(":")
        target, _, mode = rest.partition(":")
        if mode not in {"", "ro", "rw"}:
            raise refused(where, f"has the mode {mode}, which is not allowed in a task.")
        read_only = mode == "ro"
    if not target.startswith("/") or ".." in target.split("/") or target.rstrip("/") == "":
        raise refused(where, "needs a source, and an absolute path inside the service.")
    if source in volumes:
        return Mount(target, volume=source, read_only=read_only)
    if _NAME.match(source):
        raise refused(where, f"names the volume {source}, which the file does not declare.")
    if not read_only:
        raise refused(where, "mounts a path of the task, which must be read-only (:ro).")
    return Mount(target, source=values.inside(folder, source, where), read_only=True)


def _check_order(services: Mapping[str, Service]) -> None:
    """Raises `EnvironmentRefused` for a service that waits for one that is not there, or for `main`."""
    for service in services.values():
        for name in service.depends_on:
            where = f"services.{service.name}.depends_on"
            if name not in services:
                raise refused(where, f"names {name}, which the file does not have.")
            if name == MAIN:
                raise refused(where, "names main, which starts when all the others are ready.")


def _labels(value: Any, where: str) -> dict[str, str]:
    found = values.pairs(value, where)
    for name in found:
        if name.startswith(("tollbar.", "com.docker.")):
            raise refused(f"{where}.{name}", "is a label that is not a task's to give.")
    return found


def _healthcheck(value: Any, where: str) -> dict[str, Any]:
    times = dict.fromkeys(("interval", "timeout", "start_period", "start_interval"), values.text)
    readers = {"test": values.words, "retries": values.count, "disable": values.flag, **times}
    found = values.only(values.table(value, where), readers, where)
    # Older engines refuse it; a check that runs at its usual interval from the start is as good.
    found.pop("start_interval", None)
    return found


def _ulimits(value: Any, where: str) -> dict[str, int]:
    """Reads the two that a task may lower; `nofile` counts as it is, soft and hard."""
    found: dict[str, int] = {}
    for name, member in values.table(value, where).items():
        if name not in {"nofile", "nproc"}:
            raise refused(f"{where}.{name}", "is not allowed in a task.")
        hard = member.get("hard") if isinstance(member, dict) else member
        found[name] = values.count(hard, f"{where}.{name}")
    return found


_TOP: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "services": values.table,
    "volumes": _volumes,
    "networks": _names,
    "name": values.text,
    "version": values.text,
}
_OWN: Final = frozenset({"image", "build", "environment", "env_file", "depends_on", "networks", "volumes"})
_READERS: Final = {
    "command": values.words,
    "entrypoint": values.words,
    "working_dir": values.text,
    "user": values.text,
    "hostname": values.text,
    "healthcheck": _healthcheck,
    "read_only": values.flag,
    "labels": _labels,
    "tmpfs": values.texts,
    "shm_size": values.size,
    "ulimits": _ulimits,
    "mem_limit": values.size,
    "cpus": values.number,
    "pids_limit": values.count,
}
"""The keys of a service that are written as they are read, within the limits."""
