"""`tollbar backup`: the whole installation as one file, taken while its servers and workers run."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.artifacts.blobs import BlobStore
    from tollbar.db.session import Database
    from tollbar.settings import Settings


def backup(
    file: Annotated[Path, Parameter(help="The file to write; it must not exist yet.")],
    /,
    *,
    data_dir: Annotated[Path | None, Parameter(help="Data directory of the installation.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """Write the database and every stored file into one archive, readable by you alone.

    Servers and workers go on meanwhile: it holds the database as it is at one moment, and every file that the database
    names then. Of keys it has only hashes. Exit code 1: the archive is written, but stored files were damaged or gone.

    Example: tollbar backup tollbar-2026-12-01.tar
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        facts = asyncio.run(_backup(settings, file.expanduser().absolute()))
    except TollbarError as error:
        return refused(error, as_json=json_)
    except OSError as error:
        print(f"error: {file} cannot be written: {error}", file=sys.stderr)
        return 1
    if json_:
        print(json.dumps(facts))
    else:
        print(f"{facts['file']}: {facts['bytes']} bytes, {facts['blobs']} stored files, revision {facts['revision']}")
    if facts["missing"]:
        print(f"warning: {len(facts['missing'])} stored files are damaged or gone, so not in it", file=sys.stderr)
    return 1 if facts["missing"] else 0


async def _backup(settings: Settings, file: Path) -> dict[str, Any]:
    from tollbar.app.archive import private_file
    from tollbar.app.installation import database_url, stored_blobs
    from tollbar.db.session import open_database

    async with AsyncExitStack() as stack:
        output = stack.enter_context(private_file(file))
        database = open_database(await database_url(stack, settings), pool_size=3)
        stack.push_async_callback(database.close)
        facts = await _written(output, file.parent, database, stored_blobs(settings))
    return {"file": str(file), "bytes": (await asyncio.to_thread(file.stat)).st_size, **facts}


async def _written(output: IO[bytes], scratch: Path, database: Database, blobs: BlobStore) -> dict[str, Any]:
    """Dumps first and copies then: a blob is older than the row that names it, and nothing removes blobs meanwhile."""
    import tollbar
    from tollbar.app import archive
    from tollbar.app.references import References
    from tollbar.artifacts.inventory import stored
    from tollbar.db.dump import dump as dump_database
    from tollbar.db.migrate import check
    from tollbar.engine.locks import Lock, take_turns
    from tollbar.kit.clock import SystemClock, wire_time

    async with database.transaction() as session:
        await take_turns(session, Lock.BLOBS)
        needed = await References(database, blobs).by_rows()
        revision = (await asyncio.to_thread(check, database.url)).current
        with tempfile.TemporaryFile(dir=scratch) as dump:
            began = wire_time(SystemClock().now())
            versions = await dump_database(database.url, dump)
            head = {"tollbar": tollbar.__version__, "created_at": began, "revision": revision, **asdict(versions)}
            content = await asyncio.to_thread(lambda: sorted(stored(blobs), key=lambda blob: blob.sha256))
            written = await asyncio.to_thread(archive.write, output, scratch, head, dump, content, blobs)
    missing = needed - {blob.sha256 for blob in content} | set(written.left_out)
    return {**head, "blobs": written.blobs, "blob_bytes": written.blob_bytes, "missing": sorted(missing)}
