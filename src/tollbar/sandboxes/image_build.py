"""Building the image of a task on a declared base: one read-only layer for each step that makes files."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from tollbar.kit.jsonio import canonical_sha256
from tollbar.sandboxes.base import DEFAULT_PATH, BaseInfo
from tollbar.sandboxes.copy_sources import Context, Source, SourceFault
from tollbar.sandboxes.dockerfile import MAX_BYTES, Arg, Copy, Dockerfile, Env, Run, Step, Workdir, parse, refuse
from tollbar.sandboxes.dockerfile_words import expand
from tollbar.sandboxes.errors import EnvironmentBuildFailed, EnvironmentRefused
from tollbar.sandboxes.image_layer import LayerPlan, PlaceTaken, ReadOnlyPlace, View, facts_of
from tollbar.sandboxes.interface import ImageRef, ImageSpec
from tollbar.sandboxes.layers import LayerStore
from tollbar.sandboxes.overlay_walk import Kind

T = TypeVar("T")

BUILDER_VERSION: Final = 1
"""Part of every layer's key: a builder that would make other layers has another version."""
MAX_LAYERS: Final = 48
"""As many as fit into one mount beside the base and the inputs of a phase."""

_DOCKERFILE: Final = "Dockerfile"
_COMPOSE: Final = "docker-compose.yaml"


@dataclass(frozen=True)
class RunRequest:
    """One `RUN`: the command, the image so far, and what the command sees. `key` names the layer that it makes."""

    step: Run
    layers: tuple[Path, ...]
    env: Mapping[str, str]
    workdir: str
    key: str
    timeout_s: float


class RunStep(Protocol):
    """What executes `RUN`. `network` is its network policy, which is part of the layer's key."""

    network: str

    async def __call__(self, request: RunRequest) -> Path:
        """Returns the layer that the command made; raises `EnvironmentBuildFailed`."""
        ...


async def build(spec: ImageSpec, *, base: BaseInfo, layers: LayerStore, run: RunStep | None = None) -> ImageRef:
    """Builds or finds the image of an environment folder on `base`.

    Without `run` a Dockerfile with `RUN` is refused. Raises `EnvironmentRefused` (`key` names instruction and line;
    `substitution` when the image that the task declares may not be replaced by the base) and
    `EnvironmentBuildFailed`.
    """
    if spec.docker_image is not None:
        return _named(spec.docker_image, spec, base)
    if spec.context is None:
        raise EnvironmentRefused("key", "The task has no environment folder and names no environment.docker_image.")
    context, plan = await asyncio.to_thread(_read, spec.context)
    used = _substitution(plan.declared, f"Dockerfile line {plan.declared_line}: FROM {plan.declared}", spec, base)
    if run is None:
        _refuse_run(plan)
    building = _Building(plan, spec, context, base, layers, run)
    for step in plan.steps:
        await building.take(step)
    return building.image(used)


def _named(image: str, spec: ImageSpec, base: BaseInfo) -> ImageRef:
    """Returns the bare base in the place of an image that the task names."""
    used = _substitution(image, f"environment.docker_image = {image!r}", spec, base)
    return ImageRef(_digest(base.digest, {}, "/"), (), "/", {}, used)


def _substitution(declared: str, where: str, spec: ImageSpec, base: BaseInfo) -> tuple[Mapping[str, Any], ...]:
    if declared in {base.name, base.reference}:
        return ()
    if not spec.allow_base_substitution:
        raise EnvironmentRefused(
            "substitution",
            f"{where} would be replaced by the base {base.reference}, which the Job does not allow; "
            "the docker backend runs the image itself.",
        )
    return ({"kind": "base", "declared": declared, "used": base.reference},)


def _read(folder: Path) -> tuple[Context, Dockerfile]:
    try:
        context = Context(folder)
        if context.has(_COMPOSE):
            raise EnvironmentRefused("key", f"{_COMPOSE}: this backend runs no services; the docker backend does.")
        data = context.read(_DOCKERFILE, MAX_BYTES + 1)
    except SourceFault as fault:
        raise EnvironmentRefused("key", f"The build context {fault}.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise EnvironmentRefused("key", f"The task has no folder {folder.name}.") from None
    if data is None:
        raise EnvironmentRefused("key", f"The environment folder has no {_DOCKERFILE}.")
    return context, parse(data)


def _refuse_run(plan: Dockerfile) -> None:
    for step in plan.steps:
        if isinstance(step, Run):
            refuse(step.line, "RUN is not executed here; the docker backend executes it")


def _digest(key: str, env: Mapping[str, str], workdir: str) -> str:
    return f"sha256:{canonical_sha256({'layers': key, 'env': dict(env), 'workdir': workdir})}"


@dataclass
class _Building:
    """An image while it is built: layers, key, variables and directory so far."""

    plan: Dockerfile
    spec: ImageSpec
    context: Context
    base: BaseInfo
    store: LayerStore
    run: RunStep | None
    layers: list[Path] = field(default_factory=list[Path])
    env: dict[str, str] = field(default_factory=dict[str, str])
    args: dict[str, str | None] = field(default_factory=dict[str, str | None])
    workdir: str = "/"

    def __post_init__(self) -> None:
        self.key = self.base.digest
        self._outer: dict[str, str | None] = {}
        for arg in self.plan.globals:
            self._declare(arg, self._outer)

    async def take(self, step: Step) -> None:
        """Takes one step; every layer is made on those before it."""
        if isinstance(step, Env):
            # All values see the variables from before the line.
            self.env |= {self._word(step, name): self._word(step, value) for name, value in step.pairs}
        elif isinstance(step, Arg):
            self._declare(step, self.args)
        elif isinstance(step, Workdir):
            await self._change_directory(step)
        elif isinstance(step, Copy):
            await self._copy(step)
        else:
            await self._run(step)

    def image(self, substitutions: tuple[Mapping[str, Any], ...]) -> ImageRef:
        """Returns what was built."""
        return ImageRef(
            _digest(self.key, self.env, self.workdir),
            tuple(self.layers),
            self.workdir,
            dict(self.env),
            substitutions,
            passed_over=tuple(
                f"line {inert.line}: {inert.name}" for inert in self.plan.inert if inert.name != "comment"
            ),
        )

    def _declare(self, step: Arg, into: dict[str, str | None]) -> None:
        """Gives arguments the task's value, else their default, else that of the same name before `FROM`."""
        found: dict[str, str | None] = {}
        for written, default in step.pairs:
            name = self._word(step, written)
            own = None if default is None else self._word(step, default)
            inherited = into.get(name, self._outer.get(name))
            found[name] = self.spec.build_args.get(name, inherited if own is None else own)
        into |= found

    def _word(self, step: Step, text: str) -> str:
        """Returns a word with its variables replaced; a variable that nobody declared is empty, as in Docker."""
        name = type(step).__name__.upper()
        inside = step not in self.plan.globals

        def lookup(variable: str) -> str:
            values: dict[str, str | None] = {"PATH": DEFAULT_PATH, **self.args, **self.env} if inside else self._outer
            value = values.get(variable, "")
            if value is None:
                refuse(step.line, f"{name} uses the argument {variable}, which has no default and no value")
            return value

        return expand(text, lookup, self.plan.escape)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join("/", self.workdir, path)).replace("//", "/")

    async def _change_directory(self, step: Workdir) -> None:
        path = self._word(step, step.path)
        if not path:
            refuse(step.line, "WORKDIR names no directory")
        self.workdir = self._absolute(path)
        plan = await asyncio.to_thread(self._planned, step, self._plan_directory)
        if plan is not None:
            self._count(step)
            self.key = self._next_key("WORKDIR", [step.path])
            self.layers.append(await self.store.ensure(f"image:{self.key}", lambda folder: plan.write(None, folder)))

    def _plan_directory(self) -> LayerPlan | None:
        view = View(self.base, tuple(self.layers))
        path = view.resolve(self.workdir)
        if view.kind(path) is Kind.FOLDER or view.bound_folder(path):
            return None
        plan = LayerPlan(view)
        plan.add_folder(path)
        return plan

    async def _copy(self, step: Copy) -> None:
        words = [self._word(step, source) for source in step.sources]
        dest = self._word(step, step.dest)
        if ".." in dest.split("/") or not dest:
            refuse(step.line, f"COPY goes to {dest!r}, which is no path below the root")
        into = dest.endswith(("/", "/.")) or dest == "."
        place = self._absolute(dest)
        target = f"{place}/" if into and place != "/" else place
        sources = await asyncio.to_thread(self._planned, step, lambda: self._sources(words))
        found = [source for each in sources.values() for source in each]
        if not found:
            refuse(step.line, "COPY takes nothing: no file matches")
        if len(found) > 1 and not target.endswith("/"):
            refuse(step.line, "COPY of several sources needs a destination that ends with /")
        self._count(step)
        chmod = None if step.chmod is None else int(step.chmod, 8)
        plan = await asyncio.to_thread(self._planned, step, lambda: self._plan_copy(found, target, chmod))
        text = [list(step.sources), step.dest, step.chmod]
        self.key = self._next_key("COPY", text, sources=facts_of(sources))
        self.layers.append(await self.store.ensure(f"image:{self.key}", lambda folder: self._write(plan, folder)))

    def _sources(self, words: list[str]) -> dict[str, list[Source]]:
        return {word: self.context.sources(word) for word in words}

    def _plan_copy(self, sources: list[Source], target: str, chmod: int | None) -> LayerPlan:
        plan = LayerPlan(View(self.base, tuple(self.layers)))
        plan.copy(sources, target, chmod)
        return plan

    def _write(self, plan: LayerPlan, folder: Path) -> None:
        try:
            plan.write(self.context, folder)
        except SourceFault as fault:
            raise EnvironmentBuildFailed("build", f"COPY {fault}.") from None

    async def _run(self, step: Run) -> None:
        if self.run is None:
            refuse(step.line, "RUN is not executed here; the docker backend executes it")
        self._count(step)
        command = step.command if isinstance(step.command, str) else list(step.command)
        self.key = self._next_key("RUN", command, network=self.run.network)
        env = {name: value for name, value in self.args.items() if value is not None} | self.env
        request = RunRequest(step, tuple(self.layers), env, self.workdir, self.key, self.spec.timeout_s)
        self.layers.append(await self.run(request))

    def _planned(self, step: Step, plan: Callable[[], T]) -> T:
        """Returns what `plan()` returns; what stands in the way names the instruction and its line."""
        name = type(step).__name__.upper()
        try:
            return plan()
        except SourceFault as fault:
            refuse(step.line, f"{name} {fault}")
        except ReadOnlyPlace as fault:
            refuse(step.line, f"{name} cannot write there: {fault}; the docker backend can")
        except PlaceTaken as fault:
            msg = f"Dockerfile line {step.line}: {name} failed: {fault}."
            raise EnvironmentBuildFailed("build", msg) from None

    def _next_key(self, instruction: str, text: Any, **more: Any) -> str:
        return canonical_sha256(
            {
                "builder": BUILDER_VERSION,
                "parent": self.key,
                "instruction": instruction,
                "text": text,
                "env": self.env,
                "args": self.args,
                "workdir": self.workdir,
                **more,
            }
        )

    def _count(self, step: Step) -> None:
        if len(self.layers) >= MAX_LAYERS:
            refuse(step.line, f"{type(step).__name__.upper()} would make more than {MAX_LAYERS} layers")
