"""`tollbar workers`: who works for this installation, for whoever can reach its database."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings


def workers(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Data directory of the running server.")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")] = False,
) -> int:
    """List the workers: state, machine, slots, seconds since the last beat, sandbox backends, the agents' software.

    Exit code 1 when none is living: then Jobs wait.

    Example: tollbar workers
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        found = asyncio.run(_seen(settings))
    except TollbarError as error:
        return refused(error, as_json=json_)
    living = [one for one in found if one["state"] == "live"]
    if json_:
        print(json.dumps({"items": found, "next_cursor": None}))
    else:
        for one in found:
            place = f"{one['host']}:{one['pid']}"
            cells = [one["worker_id"], one["state"], place, f"{one['slots']} slots", f"{one['silent_s']} s ago"]
            print("\t".join([*cells, ",".join(one["backends"]) or "-", *one["software"]]))
    if not living:
        print("no living worker: Jobs wait\n  start one: tollbar worker", file=sys.stderr)
    return 0 if living else 1


async def _seen(settings: Settings) -> list[dict[str, Any]]:
    from tollbar.app.installation import join
    from tollbar.engine.liveness import seen

    async with AsyncExitStack() as stack:
        joined = await join(stack, settings, connections=1)
        async with joined.database.session() as session:
            return await seen(session)
