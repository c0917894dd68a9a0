"""What every installation has from its first start: a project, its key, datasets, runners, profiles."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access import service as access
from tollbar.access.errors import Unauthenticated
from tollbar.access.principal import Principal
from tollbar.agents import service as profiles
from tollbar.artifacts.blobs import BlobStore
from tollbar.datasets import service as datasets
from tollbar.db.session import Database
from tollbar.engine.locks import Lock, take_turns
from tollbar.kit.clock import Clock
from tollbar.sandboxes import service as runners

KEY_FILE: Final = "api_key"
_DATASETS: Final = {"tests/hello-world": "hello-world", "demo/mini": "mini"}


async def seed(
    database: Database, blobs: BlobStore, clock: Clock, best: str | Callable[[], Awaitable[str]] = "bwrap"
) -> Principal:
    """Seeds what is missing and returns the server's principal in the first project; repeating it adds nothing.

    `best` is the backend of the default runner, or what finds it.
    """
    async with database.transaction() as session:
        await take_turns(session, Lock.SEEDS)
        actor = await access.ensure_first_project(session, clock)
        await runners.seed(session, clock, backend=best)
        await profiles.seed(session, actor, clock)
        for name, folder in _DATASETS.items():
            await datasets.publish_folder(
                session,
                actor,
                folder=files("tollbar.app").joinpath("demo", folder),
                name=name,
                version="1",
                visibility="public",
                blobs=blobs,
                clock=clock,
            )
    return actor


async def local_key(database: Database, actor: Principal, data_dir: Path, clock: Clock) -> str:
    """Returns the key of this machine's owner: made once, kept in the data directory (0600), renewed when revoked."""
    path = data_dir / KEY_FILE
    async with database.transaction() as session:
        if path.exists() and await _works(session, path.read_text().strip(), clock):
            return path.read_text().strip()
        key = await access.create_key(session, actor, preset="Project automation", name="This machine", clock=clock)
        _write_private(path, key.secret)
    return key.secret


async def _works(session: AsyncSession, secret: str, clock: Clock) -> bool:
    try:
        await access.authenticate(session, secret, workspace=None, project=None, clock=clock)
    except Unauthenticated:
        return False
    return True


def _write_private(path: Path, text: str) -> None:
    """Writes by rename, so that a reader never sees a part, and readable by the owner alone from the first byte on."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text + "\n")
    fresh.rename(path)
