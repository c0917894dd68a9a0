"""`tollbar storage upgrade`: the embedded database from an older PostgreSQL to the newest, by dump and restore."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings

_WORK: Final = ".upgrade"


def upgrade(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Data directory of the embedded database.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """Bring the embedded database to the newest PostgreSQL that is installed; stop the server first.

    Everything is dumped and restored into new files beside the old ones, every table is counted, and then they change
    places. The old files stay as `pg.MAJOR`; remove them when all is well. There must be place for both.

    Example: tollbar storage upgrade
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        facts = asyncio.run(_upgrade(settings))
    except TollbarError as error:
        return refused(error, as_json=json_)
    if json_:
        print(json.dumps(facts))
    elif facts["before"] == facts["after"]:
        print(f"up to date: PostgreSQL {facts['after']}")
    else:
        print(
            f"PostgreSQL {facts['before']} to {facts['after']}: {facts['rows']} rows; the old files are {facts['old']}"
        )
    return 0


async def _upgrade(settings: Settings) -> dict[str, Any]:
    from tollbar.app.installation import made
    from tollbar.db import dump
    from tollbar.db.datadir import hold_directory
    from tollbar.db.datafolder import UPGRADED, newest_major
    from tollbar.db.embedded import EmbeddedServer
    from tollbar.db.errors import NoDatabase, UpgradeIncomplete

    data_dir = made(settings.data_dir)
    async with AsyncExitStack() as stack:
        held = hold_directory(data_dir)
        stack.callback(held.release)
        place = data_dir / "pg"
        if not (place / "PG_VERSION").exists():
            raise NoDatabase(data_dir)
        before = int((place / "PG_VERSION").read_text())
        after = await newest_major(settings.pg_uid)
        if before >= after:
            return {"before": before, "after": before, "rows": None, "old": None}
        work = data_dir / _WORK
        shutil.rmtree(work, ignore_errors=True)
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        work.mkdir(mode=0o700 if settings.pg_uid is None else 0o711)
        file = work / "database.dump"
        old = await EmbeddedServer.start(data_dir, pg_uid=settings.pg_uid, held=held)
        try:
            counted = await asyncio.to_thread(dump.row_counts, old.url)
            with file.open("xb") as output:
                file.chmod(0o600)
                dumped = await dump.dump(old.url, output)
        finally:
            await old.stop()
        new = await EmbeddedServer.start(work, pg_uid=settings.pg_uid)
        try:
            await dump.restore(new.url, file, dumped_by=dumped.client_major)
            if await asyncio.to_thread(dump.row_counts, new.url) != counted:
                raise UpgradeIncomplete
        finally:
            await new.stop()
        aside = _aside(data_dir, before)
        # Between these steps the next start finds the new files under their own name and puts them into their place.
        (work / "pg").rename(data_dir / UPGRADED)
        place.rename(aside)
        (data_dir / UPGRADED).rename(place)
    return {"before": before, "after": after, "rows": sum(counted.values()), "old": str(aside)}


def _aside(data_dir: Path, major: int) -> Path:
    """Returns a name for the old files that nothing has."""
    number = 0
    while (aside := data_dir / (f"pg.{major}" + (f".{number}" if number else ""))).exists():
        number += 1
    return aside
