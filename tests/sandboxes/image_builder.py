"""Builds contexts on a small base with a read-only bind, and reads what came out."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tollbar.sandboxes.base import BaseInfo
from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.identity import identify
from tollbar.sandboxes.image_build import build
from tollbar.sandboxes.interface import ImageSpec
from tollbar.sandboxes.layers import LayerStore


class Builder:
    """Builds a context on a small base with a read-only bind, and reads what came out."""

    def __init__(self, folder: Path):
        self.context = folder / "context"
        self.cache = folder / "layers"
        lower, bound = folder / "base", folder / "host-usr"
        for path in (self.context, self.cache, lower, bound / "local/bin", lower / "usr", lower / "etc", lower / "tmp"):
            path.mkdir(parents=True, exist_ok=True)
        (lower / "tmp").chmod(0o1777)
        (lower / "root").mkdir(mode=0o700)
        (lower / "bin").symlink_to("usr/bin")
        (lower / "var").mkdir()
        (lower / "run").mkdir()
        (lower / "var/run").symlink_to("/run")
        (lower / "etc/passwd").write_text("root:x:0:0\n")
        self.base = BaseInfo("host", "sha256:base", lower, ((bound, "/usr"),))
        self.store = LayerStore(self.cache, identify(0, effective_uid=os.geteuid()) if os.geteuid() else _root())
        self.options = {}

    def put(self, files: dict[str, str | bytes], dockerfile: str | None = None) -> None:
        for name, content in files.items():
            path = self.context / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        if dockerfile is not None:
            (self.context / "Dockerfile").write_text(dockerfile)

    async def image(self, *lines: str, run=None, **spec):
        if lines:
            (self.context / "Dockerfile").write_text("\n".join(("FROM some/image:1", *lines, "")))
        return await build(ImageSpec(**{"context": self.context, **spec}), base=self.base, layers=self.store, run=run)

    async def tree(self, *lines: str, **spec) -> dict[str, str]:
        """Builds and returns what the layers hold: path -> content, `/` for folders, `-> target` for links."""
        return self.read(await self.image(*lines, **spec))

    def read(self, image) -> dict[str, str]:
        found = {}
        for layer in image.layers:
            for path in sorted(layer.rglob("*")):
                name = str(path.relative_to(layer))
                if path.is_symlink():
                    found[name] = f"-> {path.readlink()}"
                else:
                    found[name] = "/" if path.is_dir() else path.read_text()
        return found

    def mode(self, image, name: str) -> int:
        return next(
            stat.S_IMODE((layer / name).lstat().st_mode) for layer in reversed(image.layers) if (layer / name).exists()
        )

    async def refused(self, *lines: str, **spec) -> str:
        with pytest.raises(EnvironmentRefused) as refused:
            await self.image(*lines, **spec)
        assert refused.value.detail == spec.get("detail", "key")
        assert self.layer_count() == 0
        return refused.value.message

    def layer_count(self) -> int:
        return len([path for path in self.cache.iterdir() if path.is_dir()])


def _root():
    """Root builds with its own uid here, so that the folders of a test can be removed by it."""
    return replace(identify(0, effective_uid=0), uid=0, gid=0, drop=False)
