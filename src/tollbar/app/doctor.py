"""`tollbar doctor`: what works on this machine, what does not, and the command that fixes it. Changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

import tollbar
from tollbar.settings import Settings

_SPACE_MB: Final = 1024


@dataclass(frozen=True)
class Finding:
    """One line: `ok`, `warn` or `fail`, what was found, and what a person can do about it."""

    check: str
    state: str
    found: str
    fix: str | None = None


def doctor(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Data directory to look at.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """Check this machine, and say how to fix what is wrong.

    Exit code 0 when nothing fails; a running server is not disturbed.

    Example: tollbar doctor
    """
    settings = Settings() if data_dir is None else Settings(data_dir=data_dir)
    findings = asyncio.run(_all(settings))
    failed = any(finding.state == "fail" for finding in findings)
    if json_:
        print(json.dumps({"ok": not failed, "checks": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(f"{finding.state:<5} {finding.check:<10} {finding.found}")
            if finding.fix and finding.state != "ok":
                print(f"{'':<5} {'':<10} fix: {finding.fix}")
    return 1 if failed else 0


async def _all(settings: Settings) -> list[Finding]:
    found = [_python(), _folder(settings.data_dir.expanduser())]
    found += [finding async for finding in _database(settings)]
    found += [finding async for finding in _sandboxes(settings)]
    return found


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", "ok", f"Python {version}, tollbar {tollbar.__version__}")


def _folder(folder: Path) -> Finding:
    """The nearest folder that exists decides about space; the data directory itself must be its owner's alone."""
    place = folder
    while not place.exists():
        place = place.parent
    free_mb = shutil.disk_usage(place).free >> 20
    if free_mb < _SPACE_MB:
        return Finding(
            "data",
            "warn",
            f"{folder}: {free_mb} MiB free",
            f"Free some space (at least {_SPACE_MB} MiB), or use another --data-dir.",
        )
    if not folder.exists():
        return Finding("data", "ok", f"{folder} will be made at the first start, {free_mb} MiB free")
    status = folder.stat()
    if status.st_uid != os.geteuid():
        return Finding("data", "fail", f"{folder} belongs to uid {status.st_uid}", "Start tollbar as its owner.")
    if stat.S_IMODE(status.st_mode) & 0o066:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        return Finding("data", "warn", f"{folder} has mode {mode}", f"chmod 700 {folder}")
    return Finding("data", "ok", f"{folder}, {free_mb} MiB free")


async def _database(settings: Settings) -> AsyncIterator[Finding]:
    from tollbar.db import migrate
    from tollbar.db.binaries import candidates
    from tollbar.db.datadir import read_server_facts
    from tollbar.kit.errors import TollbarError

    facts = read_server_facts(settings.data_dir.expanduser())
    url = settings.database_url or (facts or {}).get("database_url")
    if url is None:
        try:
            count = len(candidates())
        except TollbarError as error:
            yield Finding("database", "fail", error.message, error.hint)
        else:
            yield Finding(
                "database", "ok", f"embedded PostgreSQL ({count} versions); no server runs on this data directory"
            )
        return
    try:
        state = await asyncio.to_thread(migrate.check, url)
    except TollbarError as error:
        yield Finding("database", "fail", error.message, error.hint)
        return
    where = f"server at {facts['url']}" if facts else "your PostgreSQL"
    if not state.up_to_date:
        yield Finding(
            "database", "warn", f"{where}: revision {state.current}, head {state.head}", "tollbar up migrates it"
        )
    else:
        yield Finding("database", "ok", f"{where}: revision {state.current}")


async def _sandboxes(settings: Settings) -> AsyncIterator[Finding]:
    from tollbar.app.backends import bwrap_of

    root = settings.data_dir.expanduser() / "sandboxes"
    made = not root.exists()
    provider = bwrap_of(settings, settings.data_dir.expanduser())
    problems = await provider.preflight()
    for problem in problems:
        yield Finding("sandboxes", "fail", f"{problem.code}: {problem.message}", problem.fix)
    if not problems:
        levels = ", ".join(f"{name} {level}" for name, level in sorted(provider.capabilities().limits.items()))
        yield Finding("sandboxes", "ok", f"bubblewrap works; limits: {levels}")
        for problem in await provider.advice():
            yield Finding("sandboxes", "warn", f"{problem.code}: {problem.message}", problem.fix)
    if made:
        shutil.rmtree(root, ignore_errors=True)
    yield await _docker(settings)


async def _docker(settings: Settings) -> Finding:
    """Docker is needed by nothing that works without it: where nobody named an engine, its absence is no warning."""
    from tollbar.app.backends import docker_of
    from tollbar.sandboxes.docker.engine import is_configured

    provider = docker_of(settings, settings.data_dir.expanduser())
    if provider is None:
        return Finding("docker", "ok", "switched off (TOLLBAR_DOCKER_HOST)")
    try:
        problems = await provider.preflight()
    finally:
        await provider.close()
    if not problems:
        levels = ", ".join(f"{name} {level}" for name, level in sorted(provider.capabilities().limits.items()))
        return Finding("docker", "ok", f"a Docker engine answers: runner envhub/docker; limits: {levels}")
    found = f"{problems[0].code}: {problems[0].message}"
    if is_configured(settings.docker_host):
        return Finding("docker", "warn", found, problems[0].fix)
    return Finding("docker", "ok", "no Docker engine here: Jobs on envhub/docker need a worker that has one")
