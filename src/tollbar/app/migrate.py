"""`tollbar migrate`: brings a database up to date, before servers and workers of this version start on it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.db.migrate import MigrationState
    from tollbar.settings import Settings


def migrate(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Data directory of the embedded database.")] = None,
    check: Annotated[
        bool, Parameter(negative="", help="Only report; exit code 1 when the database is behind.")
    ] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """Bring the database up to date, wholly or not at all; a second one at the same time waits and has nothing to do.

    Stop the workers and servers of the older version first when the notes of a release say so.

    Example: tollbar migrate --check
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        before, after = asyncio.run(_migrate(settings, only_check=check))
    except TollbarError as error:
        return refused(error, as_json=json_)
    if json_:
        print(json.dumps({"before": before.current, "after": after.current, "newest": after.head}))
    elif not after.up_to_date:
        print(f"behind: revision {after.current or 'none'}, newest {after.head}; tollbar migrate brings it up to date")
    elif before.up_to_date:
        print(f"up to date: revision {after.current}")
    else:
        print(f"migrated: revision {before.current or 'none'} to {after.current}")
    return 0 if after.up_to_date else 1


async def _migrate(settings: Settings, *, only_check: bool) -> tuple[MigrationState, MigrationState]:
    from tollbar.app.installation import database_url
    from tollbar.db import migrate as tables
    from tollbar.engine.migrate import migrate as migrate_engine

    async with AsyncExitStack() as stack:
        url = await database_url(stack, settings)
        before = await asyncio.to_thread(tables.check, url)
        if only_check:
            return before, before
        await asyncio.to_thread(tables.upgrade, url)
        await asyncio.to_thread(migrate_engine, url)
        return before, await asyncio.to_thread(tables.check, url)
