"""An environment for Harbor that needs no Docker: bubblewrap with the namespaces and the overlay that tollbar uses.

Loaded by Harbor in its own virtual environment as `harbor_namespaces:NamespaceEnvironment`; imports nothing of
tollbar. One holder process keeps the namespaces, each command enters them. `/solution`, `/tests` and `/logs` are
folders of the host bound into it, so that transfers are plain copies: the cheapest that Harbor's interface allows.
What the task's two Dockerfiles say (a working directory, tests in the verifier's image) is done by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

_WORKDIR: Final = "/app"
_SHARED: Final = ("solution", "tests", "logs", "exchange")
_TOP: Final = ("app", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var", *_SHARED)
_LINKED: Final = ("bin", "sbin", "lib", "lib64")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOLD: Final = "echo up; exec sleep 2147483647 >/dev/null 2>&1"
_DROPS: Final = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")
_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
_UNSHARED: Final = (
    *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"),
)


class NamespaceEnvironment(BaseEnvironment):
    """One sandbox. `BENCH_BWRAP`, `BENCH_SANDBOXES` and `BENCH_UID` say with what, where and as whom."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._uid = int(os.environ["BENCH_UID"])
        self._folder = Path(tempfile.mkdtemp(dir=os.environ["BENCH_SANDBOXES"]))
        self._holder: asyncio.subprocess.Process | None = None
        self._inner = 0

    @staticmethod
    def type() -> str:
        return "namespaces"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities()

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(self.environment_dir / "Dockerfile")

    # --- life

    async def start(self, force_build: bool) -> None:
        del force_build
        await asyncio.to_thread(self._lay)
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as told:
            try:
                self._holder = await asyncio.create_subprocess_exec(
                    *self._command(write_end),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(write_end,),
                    env={"PATH": _PATH},
                )
            finally:
                os.close(write_end)
            assert self._holder.stdout is not None
            assert self._holder.stderr is not None
            if not await self._holder.stdout.readline():
                raise RuntimeError((await self._holder.stderr.read()).decode())
            self._inner = json.loads(told.read())["child-pid"]

    async def stop(self, delete: bool) -> None:
        del delete
        if self._holder is not None:
            with contextlib.suppress(ProcessLookupError):
                if self._inner:
                    os.kill(self._inner, signal.SIGKILL)
                else:
                    self._holder.kill()
            await self._holder.wait()
            self._holder = None
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _lay(self) -> None:
        """Makes the folders of this sandbox; the verifier's image has the tests in it."""
        self._folder.chmod(0o711)
        for name in ("lower", "upper", "work", *_SHARED):
            (self._folder / name).mkdir()
        for name in _TOP:
            (self._folder / "lower" / name).mkdir(exist_ok=True)
        for name in _LINKED:
            if Path("/", name).is_symlink():
                (self._folder / "lower" / name).symlink_to(f"usr/{name}")
        if (self.environment_dir / "test.sh").is_file():
            shutil.copytree(self.environment_dir, self._folder / "tests", dirs_exist_ok=True)
        for name in ("agent", "verifier", "artifacts"):
            (self._folder / "logs" / name).mkdir()
        self._give(self._folder / "lower" / "app")
        for name in ("upper", "work", *_SHARED):
            self._give(self._folder / name)

    def _give(self, path: Path) -> None:
        """Gives a file or folder with all in it to the sandbox's uid, where ours is another."""
        if os.geteuid() != 0:
            return
        os.chown(path, self._uid, self._uid)
        for parent, folders, files in os.walk(path):
            for name in (*folders, *files):
                os.chown(Path(parent, name), self._uid, self._uid, follow_symlinks=False)

    def _command(self, info: int) -> list[str]:
        identity = ["--reuid", str(self._uid), "--regid", str(self._uid), *_DROPS]
        folder = self._folder
        shared = [part for name in _SHARED for part in ("--bind", str(folder / name), f"/{name}")]
        return [
            *(["setpriv", *identity] if os.geteuid() == 0 else []),
            *(os.environ["BENCH_BWRAP"], *_UNSHARED, "--uid", "0", "--gid", "0", "--cap-drop", "ALL"),
            *(part for name in _CAPABILITIES for part in ("--cap-add", f"CAP_{name}")),
            *("--overlay-src", str(folder / "lower"), "--overlay", str(folder / "upper"), str(folder / "work"), "/"),
            *("--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"),
            *(*shared, "--chdir", "/", "--info-fd", str(info), "--", "/usr/bin/sh", "-c", _HOLD),
        ]

    # --- commands

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        del user
        places = ("--user", "--mount", "--pid", "--net", "--ipc", "--uts")
        script = f"cd {cwd or _WORKDIR} && {command}"
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "--target", str(self._inner), *places, "--", "/usr/bin/sh", "-c", script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, "HOME": "/root", **(self._merge_env(env) or {})},
        )
        try:
            async with asyncio.timeout(timeout_sec):
                stdout, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        code = process.returncode
        assert code is not None
        return ExecResult(stdout=stdout.decode(), stderr=stderr.decode(), return_code=code)

    # --- files

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._upload(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._upload(Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await asyncio.to_thread(_copy, self._seen(source_path), Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await asyncio.to_thread(_copy, self._seen(source_dir), Path(target_dir))

    async def _upload(self, source: Path, target: str) -> None:
        shared = self._shared(target)
        place = shared or self._folder / "exchange" / "upload"

        def bring() -> None:
            _copy(source, place)
            self._give(place)

        await asyncio.to_thread(bring)
        if shared is None:
            inner = "/exchange/upload"
            await self.exec(f"mkdir -p {PurePosixPath(target).parent} && cp -RT {inner} {target}; rm -rf {inner}")

    def _shared(self, path: str) -> Path | None:
        """Returns the host's path of what lies in a shared folder."""
        parts = PurePosixPath(path).parts
        return self._folder.joinpath(*parts[1:]) if len(parts) > 1 and parts[1] in _SHARED else None

    def _seen(self, path: str) -> Path:
        """Returns where the host finds a path of the sandbox."""
        return self._shared(path) or Path(f"/proc/{self._inner}/root{path}")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
