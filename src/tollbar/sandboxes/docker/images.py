"""Images: found on the engine, fetched, or built from an environment folder, once per content whoever asks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from dataclasses import replace
from typing import Any, Final

import aiodocker

from tollbar.sandboxes.docker.compose_file import MAIN, Service, Services, read
from tollbar.sandboxes.docker.compose_values import FILE, refused
from tollbar.sandboxes.docker.engine import Engine
from tollbar.sandboxes.errors import EnvironmentBuildFailed
from tollbar.sandboxes.interface import ImageRef, ImageSpec

_REPOSITORY: Final = "tollbar/task"
_NOT_FOUND: Final = 404
_SAID_CHARACTERS: Final = 2000


class Images:
    """The images of tasks on one engine. One that was built stays, under a tag that names its content."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._making: dict[str, asyncio.Lock] = {}

    async def ensure(self, spec: ImageSpec, *, dockerfile: str | None = None, target: str | None = None) -> ImageRef:
        """Returns the image of a description, or of one stage of one of its Dockerfiles.

        Raises `EnvironmentBuildFailed` (`build`, `pull`, `timeout`).
        """
        words = (
            *(("--file", str(spec.context / dockerfile)) if dockerfile and spec.context else ()),
            *(("--target", target) if target else ()),
        )
        if spec.context is None:
            assert spec.docker_image is not None, "a description names a folder or an image"
            tag = spec.docker_image
        else:
            tag = f"{_REPOSITORY}:{await asyncio.to_thread(_digest, spec, (dockerfile, target))}"
        async with self._making.setdefault(tag, asyncio.Lock()):
            found = await self._find(tag)
            if found is None:
                await (self._pull(tag, spec) if spec.context is None else self._build(tag, spec, words))
                found = await self._find(tag)
        if found is None:
            raise EnvironmentBuildFailed("build", f"The engine made {tag} and does not have it.")
        return _reference(found)

    async def with_services(self, spec: ImageSpec) -> ImageRef:
        """Returns the image of a description with those of the services beside it, if its folder has a compose file.

        Raises what `ensure` raises, and `EnvironmentRefused`.
        """
        folder = spec.services or spec.context
        if folder is None or not await asyncio.to_thread((folder / FILE).is_file):
            return await self.ensure(spec)
        services = await asyncio.to_thread(read, folder)
        found: dict[str, ImageRef] = {}
        for service in services.all:
            found[service.name] = await self._of_service(spec, services, service)
        main, own = found[MAIN], services.main
        images = {name: image.digest for name, image in found.items()}
        return replace(
            main,
            workdir=own.keys.get("working_dir") or main.workdir,
            env={**main.env, **own.environment},
            services=replace(services, images=images),
            neighbours=tuple(service.name for service in services.all),
        )

    async def _of_service(self, spec: ImageSpec, services: Services, service: Service) -> ImageRef:
        """Builds or finds the image of one service; `main` has the task's own where its entry names none."""
        build = service.build
        if build is None and service.image is not None:
            return await self.ensure(replace(spec, context=None, docker_image=service.image))
        if build is None and service.name != MAIN:
            raise refused(f"services.{service.name}", "has neither an image nor a build.")
        if build is None:
            return await self.ensure(spec)
        context, own = services.folder / build.context, replace(spec, build_args=dict(build.args))
        return await self.ensure(replace(own, context=context), dockerfile=build.dockerfile, target=build.target)

    async def _find(self, tag: str) -> dict[str, Any] | None:
        try:
            return await self._engine.client.images.inspect(tag)
        except aiodocker.DockerError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def _build(self, tag: str, spec: ImageSpec, more: tuple[str, ...]) -> None:
        arguments = [word for name, value in spec.build_args.items() for word in ("--build-arg", f"{name}={value}")]
        words = ("build", "--quiet", "--tag", tag, *more, *arguments, str(spec.context))
        await self._run("build", words, spec.timeout_s)

    async def _pull(self, tag: str, spec: ImageSpec) -> None:
        await self._run("pull", ("pull", "--quiet", tag), spec.timeout_s)

    async def _run(self, what: str, words: tuple[str, ...], timeout_s: float) -> None:
        try:
            said = await self._engine.run(*words, timeout_s=timeout_s)
        except TimeoutError as error:
            msg = f"docker {what} took longer than {timeout_s:g} s."
            raise EnvironmentBuildFailed("timeout", msg) from error
        if said.exit_code != 0:
            msg = f"docker {what} failed: {said.text.strip()[-_SAID_CHARACTERS:]}"
            raise EnvironmentBuildFailed(what, msg)


def _reference(found: dict[str, Any]) -> ImageRef:
    config: dict[str, Any] = found.get("Config") or {}
    env = dict(entry.split("=", 1) for entry in config.get("Env") or [])
    return ImageRef(found["Id"], (), config.get("WorkingDir") or "/", env)


def _digest(spec: ImageSpec, stage: tuple[str | None, str | None]) -> str:
    """Returns a hash of everything that a build reads: names, kinds, rights, contents, arguments; blocks."""
    assert spec.context is not None
    digest = hashlib.sha256()
    for what, name in zip(("file", "target"), stage, strict=True):
        if name is not None:
            digest.update(f"{what}\0{name}\0".encode())
    for name, value in sorted(spec.build_args.items()):
        digest.update(f"arg\0{name}\0{value}\0".encode())
    for path in sorted(spec.context.rglob("*")):
        facts = path.lstat()
        digest.update(f"{path.relative_to(spec.context)}\0{facts.st_mode:o}\0".encode("utf-8", "surrogateescape"))
        if stat.S_ISLNK(facts.st_mode):
            digest.update(os.fsencode(path.readlink()))
        elif stat.S_ISREG(facts.st_mode):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:40]
