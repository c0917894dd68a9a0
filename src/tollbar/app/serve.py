"""`tollbar serve`: interfaces only, on the database of an installation; workers elsewhere do the work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.app.interfaces import Interfaces
    from tollbar.settings import Settings

_CONNECTIONS: Final = 10


def serve(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Folder of the local key and of uploads.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes any free one.")] = None,
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON line on stdout.")] = False,
) -> int:
    """Serve HTTP, MCP and the console, and run nothing: workers on this or other machines do the work.

    It needs a database that `tollbar migrate` has brought up to date (TOLLBAR_DATABASE_URL). Any number of servers
    may share one.

    Example: tollbar serve --host 0.0.0.0 --port 8787
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app import process

    async def begin(stack: AsyncExitStack, settings: Settings) -> Sequence[asyncio.Task[None]]:
        return await _begin(stack, settings, explicit_port=port is not None, as_json=json_)

    given = {"data_dir": data_dir, "port": port, "host": host}
    return process.run(begin, given, stopping="the workers go on", as_json=json_)


async def _begin(
    stack: AsyncExitStack, settings: Settings, *, explicit_port: bool, as_json: bool
) -> Sequence[asyncio.Task[None]]:
    from tollbar.app import installation
    from tollbar.app.announce import announce
    from tollbar.app.interfaces import Interfaces
    from tollbar.engine.dbos_engine import DbosEngine

    joined = await installation.join(stack, settings, connections=_CONNECTIONS)
    interfaces = await Interfaces.prepare(stack, joined, explicit_port=explicit_port)
    engine = DbosEngine(joined.database.url)
    stack.push_async_callback(engine.stop)
    serving = await interfaces.serve(stack, interfaces.jobs(engine, {}))
    facts = await interfaces.facts()
    _publish(stack, interfaces)
    announce(facts, as_json=as_json, browser=False)
    return [serving, asyncio.create_task(joined.lost())]


def _publish(stack: AsyncExitStack, interfaces: Interfaces) -> None:
    """Lets local commands find this server, unless another one on the same data directory is found already."""
    from tollbar.db.datadir import hold_directory, write_server_facts
    from tollbar.db.errors import DataDirectoryHeld

    data_dir = interfaces.installation.data_dir
    try:
        stack.callback(hold_directory(data_dir).release)
    except DataDirectoryHeld:
        return
    write_server_facts(data_dir, {"url": interfaces.origin, "database_url": interfaces.installation.database.url})
