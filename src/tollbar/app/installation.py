"""What every process of one installation shares: its database, its artifacts, a data directory, a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import make_url

from tollbar.app.logs import redact_logs
from tollbar.app.models import Models, read_models
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.errors import ForeignStore
from tollbar.artifacts.stores import open_blobs
from tollbar.datasets import service as datasets
from tollbar.db import migrate
from tollbar.db.datadir import HeldDirectory, hold_directory, read_server_facts
from tollbar.db.embedded import EmbeddedServer
from tollbar.db.errors import DatabaseOwnerEnded, EmbeddedDatabaseFailed, NoDatabase
from tollbar.db.session import Database, limited_url, open_database
from tollbar.engine.migrate import migrate as migrate_engine
from tollbar.gateway import books
from tollbar.kit.clock import Clock, SystemClock
from tollbar.settings import Settings
from tollbar.vault.keys import load_key
from tollbar.vault.redactor import MIN_LENGTH, Redactor
from tollbar.vault.service import Vault

_WATCH_S: Final = 2.0
_OWNER_CONNECTIONS: Final = 20

Watch = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Installation:
    """An open installation, as one process sees it."""

    settings: Settings
    data_dir: Path
    database: Database
    blobs: BlobStore
    clock: Clock
    vault: Vault
    """Open; its redactor knows what may stand in no log."""
    models: Models
    alone: bool
    """Whoever else used the database ended with it: this process started the server."""
    lost: Watch
    """Waits, and raises when the database has ended for good."""


async def own(stack: AsyncExitStack, settings: Settings) -> Installation:
    """Opens the installation of a data directory, migrated; without a URL the embedded database is started.

    Raises `DataDirectoryHeld`, `EmbeddedDatabaseFailed`, `DatabaseUnreachable`, `DatabaseTooNew`, and
    those of the storage of artifacts and of `models.toml`.
    """
    data_dir = made(settings.data_dir)
    held = hold_directory(data_dir)
    stack.callback(held.release)
    url, lost = settings.database_url, _never
    if url is None:
        embedded = await _embedded(stack, settings, held)
        url, lost = embedded.url, _server_ends(embedded)
    await asyncio.to_thread(migrate.upgrade, url)
    await asyncio.to_thread(migrate_engine, url)
    alone = settings.database_url is None
    database = open_database(_limited(url, settings), pool_size=_OWNER_CONNECTIONS, may_restart=not alone)
    return await _opened(stack, settings, data_dir, database, alone=alone, lost=lost)


async def join(stack: AsyncExitStack, settings: Settings, *, connections: int) -> Installation:
    """Opens an installation that is there and current: by its URL, or beside the server of the same data directory.

    Raises `NoDatabase`, `DatabaseUnreachable`, `DatabaseTooNew`, `DatabaseBehind`, and those of the storage of
    artifacts.
    """
    data_dir = made(settings.data_dir)
    url, lost = settings.database_url, _never
    if url is None:
        owner = read_server_facts(data_dir)
        if owner is None:
            raise NoDatabase(data_dir)
        url, lost = owner["database_url"], _owner_ends(data_dir, owner["pid"])
    await asyncio.to_thread(migrate.require_current, url)
    database = open_database(_limited(url, settings), pool_size=connections)
    return await _opened(stack, settings, data_dir, database, alone=False, lost=lost)


async def database_url(stack: AsyncExitStack, settings: Settings) -> str:
    """Returns the URL of a data directory's database; the embedded one is started when no server runs it now."""
    if settings.database_url is not None:
        return settings.database_url
    data_dir = made(settings.data_dir)
    owner = read_server_facts(data_dir)
    if owner is not None:
        return str(owner["database_url"])
    held = hold_directory(data_dir)
    stack.callback(held.release)
    return (await _embedded(stack, settings, held)).url


async def open_vault(settings: Settings, database: Database) -> Vault:
    """Returns the installation's vault, its key checked against the stored secrets.

    Raises `VaultKeyWrong` and `VaultKeyMalformed`.
    """
    text = None if settings.vault_key is None else settings.vault_key.get_secret_value()
    vault = Vault(await asyncio.to_thread(load_key, made(settings.data_dir), text), Redactor())
    async with database.transaction() as session:
        await vault.open(session)
    return vault


def stored_blobs(settings: Settings, folder: Path | None = None) -> BlobStore:
    """Returns where this installation keeps artifacts; `folder` stands for the one in the data directory."""
    return open_blobs(settings.artifacts_url, folder or made(settings.data_dir) / "blobs")


def made(folder: Path) -> Path:
    """Returns the absolute path of a folder, made private when it is missing."""
    path = folder.expanduser().resolve()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _limited(url: str, settings: Settings) -> str:
    """Once a worker counts as dead it must hold no row any more."""
    return limited_url(url, settings.dead_after_s)


async def _embedded(stack: AsyncExitStack, settings: Settings, held: HeldDirectory) -> EmbeddedServer:
    server = await EmbeddedServer.start(held.path, pg_uid=settings.pg_uid, held=held)
    stack.push_async_callback(server.stop)
    return server


async def _opened(
    stack: AsyncExitStack,
    settings: Settings,
    data_dir: Path,
    database: Database,
    *,
    alone: bool,
    lost: Watch,
) -> Installation:
    stack.push_async_callback(database.close)
    blobs = stored_blobs(settings)
    await blobs.check()
    await _require_same(database, blobs)
    vault = await open_vault(settings, database)
    _learn_settings(vault.redactor, settings)
    clock = SystemClock()
    models = await asyncio.to_thread(read_models, data_dir, vault, clock)
    async with database.transaction() as session:
        await books.keep(session, models.book)
    redact_logs(vault.redactor)
    return Installation(settings, data_dir, database, blobs, clock, vault, models, alone, lost)


def _learn_settings(redactor: Redactor, settings: Settings) -> None:
    """Teaches the redactor the secrets that this process was started with."""
    password = None if settings.database_url is None else make_url(settings.database_url).password
    token = None if settings.metrics_token is None else settings.metrics_token.get_secret_value()
    key = None if settings.vault_key is None else settings.vault_key.get_secret_value()
    for name, value in (("database password", password), ("metrics token", token), ("vault key", key)):
        if value is not None and len(value) >= MIN_LENGTH:
            redactor.add(name, value)


async def _require_same(database: Database, blobs: BlobStore) -> None:
    """Raises `ForeignStore` when the installation keeps its artifacts elsewhere: its Trials would fail one by one."""
    async with database.session() as session:
        known = await datasets.blob_in_use(session)
    if known is not None and not await blobs.exists(known):
        raise ForeignStore(known)


async def _never() -> None:
    """A server of one's own may restart: its clients wait for it."""
    await asyncio.Event().wait()


def _server_ends(server: EmbeddedServer) -> Watch:
    async def watch() -> None:
        while server.running:  # noqa: ASYNC110 - a process tells nobody that it ended
            await asyncio.sleep(_WATCH_S)
        raise EmbeddedDatabaseFailed(
            "it ended while the server ran", hint="Look at postgres.log in the data directory."
        )

    return watch


def _owner_ends(data_dir: Path, pid: int) -> Watch:
    async def watch() -> None:
        while (read_server_facts(data_dir) or {}).get("pid") == pid:  # noqa: ASYNC110 - nor does another's
            await asyncio.sleep(_WATCH_S)
        raise DatabaseOwnerEnded(data_dir, pid)

    return watch
