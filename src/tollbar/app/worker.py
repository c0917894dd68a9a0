"""`tollbar worker`: work only, on the database of an installation; any number of them on any number of machines."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings

_CONNECTIONS: Final = 10


def worker(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Folder of sandboxes and caches on this machine.")] = None,
    slots: Annotated[int | None, Parameter(help="Trials that run here at once.")] = None,
    grace: Annotated[float, Parameter(help="Seconds that running steps get to end before they are handed back.")] = 5.0,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON line on stdout.")] = False,
) -> int:
    """Run Trials of an installation, and serve nothing.

    It needs a database that `tollbar migrate` has brought up to date (TOLLBAR_DATABASE_URL), or a server that runs on
    the same data directory. Stop it with Ctrl-C: running work is handed back, and the other workers go on with it.
    Exit code 70: the others gave this one up because it did not beat; start it again.

    Example: tollbar worker --slots 8
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app import process

    async def begin(stack: AsyncExitStack, settings: Settings) -> Sequence[asyncio.Task[None]]:
        return await _begin(stack, settings, grace_s=grace, as_json=json_)

    given = {"data_dir": data_dir, "slots": slots}
    return process.run(begin, given, stopping="running work is handed back, other workers go on with it", as_json=json_)


async def _begin(
    stack: AsyncExitStack, settings: Settings, *, grace_s: float, as_json: bool
) -> Sequence[asyncio.Task[None]]:
    from tollbar.app import installation
    from tollbar.app.work import start_work

    joined = await installation.join(stack, settings, connections=_CONNECTIONS)
    work = await start_work(stack, joined, grace_s=grace_s)
    facts = {"worker_id": work.worker_id, "slots": settings.slots, "backends": list(work.backends)}
    if as_json:
        print(json.dumps(facts), flush=True)
    else:
        backends = " and ".join(work.backends) or "no"
        text = f"worker {work.worker_id} takes up to {settings.slots} Trials at once, in {backends} sandboxes"
        print(text, file=sys.stderr, flush=True)
    return [work.ended, asyncio.create_task(joined.lost())]
