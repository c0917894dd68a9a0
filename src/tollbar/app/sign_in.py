"""`tollbar sign-in`: a fresh sign-in link, for whoever owns the server's data directory (local administration)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tollbar.access import service as access
from tollbar.db.embedded import read_server_facts
from tollbar.db.session import open_database
from tollbar.kit.clock import SystemClock
from tollbar.settings import Settings


def sign_in(*, data_dir: Annotated[Path | None, Parameter(help="Data directory of the running server.")] = None) -> int:
    """Print a link that signs one browser in, once, within ten minutes.

    Example: tollbar sign-in
    """
    folder = data_dir or Settings().data_dir
    facts = read_server_facts(folder)
    if facts is None:
        print(f"error: no server runs on {folder}\n  start one: tollbar up", file=sys.stderr)
        return 1
    token = asyncio.run(_link(facts["database_url"]))
    print(f"{facts['url']}/sign-in?link={token}")
    return 0


async def _link(database_url: str) -> str:
    database, clock = open_database(database_url, pool_size=1), SystemClock()
    try:
        async with database.transaction() as session:
            actor = await access.ensure_first_project(session, clock)
            return await access.create_sign_in_link(session, actor, clock)
    finally:
        await database.close()
