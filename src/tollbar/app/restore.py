"""`tollbar restore`: an installation from a backup, in an empty place, wholly or not at all."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings

_WORK: Final = ".restore"
_PARTS: Final = ("blobs", "pg")
"""What moves from the working folder to its place; the database last: without it the rest is nothing."""


def restore(
    file: Annotated[Path, Parameter(help="A file that `tollbar backup` wrote.")],
    /,
    *,
    data_dir: Annotated[Path | None, Parameter(help="Data directory to fill; empty, or not there yet.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """Make an installation from a backup, in an empty data directory and an empty database.

    Every file of the backup is checked. An older backup is brought up to date. Jobs that ran when the backup was made
    go on when a server starts. Keys work as before; the machine's own key is made anew at the first start. The key of
    the vault is in no backup: put the old vault.key into the data directory, before or after.

    Example: tollbar restore tollbar-2026-12-01.tar --data-dir ./restored
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        facts = asyncio.run(_restore(settings, file.expanduser().absolute()))
    except TollbarError as error:
        return refused(error, as_json=json_)
    if json_:
        print(json.dumps(facts))
    else:
        made_at = f"backup of {facts['created_at']}"
        print(f"{facts['data_dir']}: {made_at}, {facts['blobs']} stored files, revision {facts['revision']}")
    if facts["missing"]:
        print(f"warning: {len(facts['missing'])} stored files were not in the backup", file=sys.stderr)
    return 1 if facts["missing"] else 0


async def _restore(settings: Settings, file: Path) -> dict[str, Any]:
    from tollbar.app import archive
    from tollbar.app.installation import made
    from tollbar.db.datadir import LOCK_FILE, hold_directory
    from tollbar.db.errors import RestoreTargetNotEmpty
    from tollbar.db.migrate import require_known
    from tollbar.vault.keys import KEY_FILE

    head = await asyncio.to_thread(archive.read_head, file)
    require_known(head["revision"])
    async with AsyncExitStack() as stack:
        data_dir = made(settings.data_dir)
        stack.callback(hold_directory(data_dir).release)
        found = sorted(path.name for path in data_dir.iterdir() if path.name not in {LOCK_FILE, KEY_FILE})
        if found:
            raise RestoreTargetNotEmpty(f"{data_dir} has {', '.join(found[:5])}")
        work = data_dir / _WORK
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        work.mkdir(mode=0o700 if settings.pg_uid is None else 0o711)
        facts = await _filled(settings, file, work, head["client_major"])
        for name in _PARTS:
            if (work / name).exists():
                (work / name).rename(data_dir / name)
    return {"data_dir": str(data_dir), "created_at": head["created_at"], **facts}


async def _filled(settings: Settings, file: Path, work: Path, dumped_by: int) -> dict[str, Any]:
    """Fills database and store, the embedded ones in the working folder, and says what is in them."""
    from tollbar.app import archive
    from tollbar.app.installation import stored_blobs
    from tollbar.app.references import References
    from tollbar.db import dump, migrate
    from tollbar.db.embedded import EmbeddedServer
    from tollbar.db.session import open_database
    from tollbar.engine.migrate import migrate as migrate_engine
    from tollbar.jobs.events import store as events

    async with AsyncExitStack() as stack:
        url = settings.database_url
        if url is not None:
            await asyncio.to_thread(dump.require_empty, url)
        blobs = stored_blobs(settings, work / "blobs")
        opened = await asyncio.to_thread(archive.read, file, work, work / "database.dump", blobs)
        if url is None:
            server = await EmbeddedServer.start(work, pg_uid=settings.pg_uid)
            stack.push_async_callback(server.stop)
            url = server.url
        await dump.restore(url, work / "database.dump", dumped_by=dumped_by)
        await asyncio.to_thread(migrate.upgrade, url)
        await asyncio.to_thread(migrate_engine, url)
        database = open_database(url, pool_size=2)
        stack.push_async_callback(database.close)
        async with database.transaction() as session:
            # Numbers of the old server's transactions: here they would hide events until the new one has as many.
            await events.forget_transactions(session)
        named = sorted(await References(database, blobs).by_rows())
        there = await asyncio.gather(*(blobs.exists(name) for name in named))
        missing = [name for name, found in zip(named, there, strict=True) if not found]
        revision = (await asyncio.to_thread(migrate.check, url)).current
    return {"blobs": opened.blobs, "blob_bytes": opened.blob_bytes, "revision": revision, "missing": missing}
