"""`RUN` on bubblewrap: one one-shot sandbox on the layers so far; what the command wrote becomes the next layer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tollbar.sandboxes.base import BaseInfo
from tollbar.sandboxes.errors import EnvironmentBuildFailed
from tollbar.sandboxes.image_build import RunRequest
from tollbar.sandboxes.interface import ExecResult
from tollbar.sandboxes.layers import LayerStore

_SAID_BYTES: Final = 4096
_PACKAGE_MANAGER: Final = re.compile(r"\b(?:apt|apt-get|dpkg|apk|yum|dnf|microdnf|zypper|pacman)\b")
_HINT: Final = " The base is the host's own folders: only an image base or the docker backend can install packages."
_PIP: Final = {"PIP_BREAK_SYSTEM_PACKAGES": "1"}


class Runs(Protocol):
    """Runs one command on layers and moves what it wrote to `target` when it exits 0 (`BwrapProvider.run_step`)."""

    async def __call__(
        self,
        target: Path,
        *,
        layers: Sequence[Path],
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: str,
        timeout_s: float,
    ) -> ExecResult: ...


@dataclass
class BuildSteps:
    """Implements `image_build.RunStep`. There is no network in a build."""

    base: BaseInfo
    store: LayerStore
    run: Runs
    network: str = "none"

    async def __call__(self, request: RunRequest) -> Path:
        """Returns the layer that the command made, once per key; raises `EnvironmentBuildFailed`."""
        return await self.store.ensure_with(
            f"image:{request.key}", lambda folder: self._make(request, folder), by_tenant=True
        )

    async def _make(self, request: RunRequest, folder: Path) -> None:
        command = request.step.command
        result = await self.run(
            folder,
            layers=request.layers,
            argv=("/bin/sh", "-c", command) if isinstance(command, str) else command,
            env=(_PIP if self.base.name == "host" else {}) | dict(request.env),
            workdir=request.workdir,
            timeout_s=request.timeout_s,
        )
        if result.exit_code != 0:
            raise _failed(self.base, request, result)


def _failed(base: BaseInfo, request: RunRequest, result: ExecResult) -> EnvironmentBuildFailed:
    where = f"Dockerfile line {request.step.line}: RUN"
    output = (result.stdout_tail + result.stderr_tail)[-_SAID_BYTES:].decode(errors="replace").strip()
    if result.timed_out:
        return EnvironmentBuildFailed("timeout", f"{where} took longer than {request.timeout_s:g} s. {output}".strip())
    how = "was ended for memory" if result.oom_killed else f"failed with exit code {result.exit_code}"
    text = request.step.command if isinstance(request.step.command, str) else " ".join(request.step.command)
    hint = _HINT if base.name == "host" and _PACKAGE_MANAGER.search(text) else ""
    return EnvironmentBuildFailed("build", f"{where} {how}.{hint} {output}".strip())
