"""`tollbar limits set`: what a project may spend, set by whoever owns the data directory (local administration)."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings


def set_limits(
    *,
    per_day: Annotated[
        str | None, Parameter(help="The most that all Jobs may spend in a UTC day, in USD; none: no such limit.")
    ] = None,
    default_cap: Annotated[
        str | None, Parameter(help="The cap of a Job that names none, in USD; none: such a Job has no cap.")
    ] = None,
    data_dir: Annotated[Path | None, Parameter(help="Data directory of the installation.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """Set what the project may spend; a limit that is not named stays as it is.

    A new limit for the day counts what was spent today before, and holds from the next call on.

    Example: tollbar limits set --per-day 20 --default-cap 1
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import InvalidAmount, InvalidRequest, TollbarError

    given = {
        name: None if value == "none" else value
        for name, value in (("daily_cap_usd", per_day), ("default_job_cap_usd", default_cap))
        if value is not None
    }
    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        found = asyncio.run(_set(settings, given))
    except (InvalidAmount, InvalidRequest) as error:
        refused(error, as_json=json_)
        return EXIT_USAGE
    except TollbarError as error:
        return refused(error, as_json=json_)
    for name, value in found.items():
        if not json_:
            print(f"{name.removesuffix('_usd').replace('_', ' ')}: {'no limit' if value is None else f'{value} USD'}")
    if json_:
        print(json.dumps(found))
    return 0


async def _set(settings: Settings, given: dict[str, Any]) -> dict[str, str | None]:
    from tollbar.access import service as access
    from tollbar.app.installation import database_url
    from tollbar.budget import limits
    from tollbar.db import migrate
    from tollbar.db.session import open_database
    from tollbar.kit.clock import SystemClock

    async with AsyncExitStack() as stack:
        url = await database_url(stack, settings)
        await asyncio.to_thread(migrate.require_current, url)
        database, clock = open_database(url, pool_size=1), SystemClock()
        stack.push_async_callback(database.close)
        async with database.transaction() as session:
            actor = await access.ensure_first_project(session, clock)
            return (await limits.set_limits(session, actor, given, clock)).wire()
