"""`tollbar up`: database, worker and interfaces in one process, for one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings

_GRACE_S: Final = 2.0


def up(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Folder of database, artifacts and the local key.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes any free one.")] = None,
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None,
    browser: Annotated[bool, Parameter(help="Open the console in a browser.")] = True,
    demo: Annotated[bool, Parameter(help="Run the demo Jobs at the first start.")] = True,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON line on stdout.")] = False,
) -> int:
    """Start tollbar on this machine: no key, no Docker, no network needed.

    Migrates and seeds what is missing, serves, and prints the address, a one-time sign-in link and the line that
    connects a coding agent. Stop it with Ctrl-C: running work is handed back and goes on at the next start.

    Example: tollbar up --port 8787 --no-browser
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app import process

    async def begin(stack: AsyncExitStack, settings: Settings) -> Sequence[asyncio.Task[None]]:
        return await _begin(stack, settings, explicit_port=port is not None, browser=browser, demo=demo, as_json=json_)

    return process.run(
        begin,
        {"data_dir": data_dir, "port": port, "host": host},
        stopping="running work is handed back and goes on at the next start",
        as_json=json_,
    )


async def _begin(
    stack: AsyncExitStack, settings: Settings, *, explicit_port: bool, browser: bool, demo: bool, as_json: bool
) -> Sequence[asyncio.Task[None]]:
    from tollbar.app import installation
    from tollbar.app.announce import announce
    from tollbar.app.first_jobs import submit_first_jobs
    from tollbar.app.interfaces import Interfaces
    from tollbar.app.work import start_work
    from tollbar.db.datadir import write_server_facts

    own = await installation.own(stack, settings)
    interfaces = await Interfaces.prepare(stack, own, explicit_port=explicit_port)
    work = await start_work(stack, own, grace_s=_GRACE_S)
    jobs = interfaces.jobs(work.engine, work.capabilities)
    if demo and work.backends:
        await submit_first_jobs(own.database, jobs, interfaces.actor)
    serving = await interfaces.serve(stack, jobs)
    facts = await interfaces.facts()
    write_server_facts(own.data_dir, {"url": interfaces.origin, "database_url": own.database.url})
    announce(facts, as_json=as_json, browser=browser and not as_json)
    return [serving, work.ended, asyncio.create_task(own.lost())]
