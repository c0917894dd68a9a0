"""`tollbar up`: database, worker and interfaces in one process, for one machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import webbrowser
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs
from tollbar.app.ports import PortTaken
from tollbar.kit.errors import TollbarError
from tollbar.settings import Settings

EXIT_DECLARED_DEAD: Final = 70
"""A process manager starts the server again, under a new id."""


def up(
    *,
    data_dir: Annotated[Path | None, Parameter(help="Folder of database, artifacts and the local key.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes any free one.")] = None,
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None,
    browser: Annotated[bool, Parameter(help="Open the console in a browser.")] = True,
    demo: Annotated[bool, Parameter(help="Add a finished demo Job at the first start.")] = True,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON line on stdout.")] = False,
) -> int:
    """Start tollbar on this machine: no key, no Docker, no network needed.

    Migrates and seeds what is missing, serves, and prints the address, a one-time sign-in link and the line that
    connects a coding agent. Stop it with Ctrl-C: running work is handed back and goes on at the next start.

    Example: tollbar up --port 8787 --no-browser
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.engine.errors import DeclaredDead

    given: dict[str, Any] = {"data_dir": data_dir, "port": port, "host": host}
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        code = asyncio.run(
            _run(settings, explicit_port=port is not None, browser=browser and not json_, demo=demo, as_json=json_)
        )
    except (TollbarError, PortTaken) as error:
        code = _refused(error, as_json=json_)
    except DeclaredDead:
        print("error: the other workers gave this one up and have its work; start it again", file=sys.stderr)
        code = EXIT_DECLARED_DEAD
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the engine library can wait for a lost database for ever; nothing of ours is left to do.
    os._exit(code)


def _refused(error: TollbarError | PortTaken, *, as_json: bool) -> int:
    if as_json and isinstance(error, TollbarError):
        print(json.dumps(error.body()), flush=True)
    print(f"error: {error}", file=sys.stderr)
    hint = getattr(error, "hint", None)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    return 1


async def _run(settings: Settings, *, explicit_port: bool, browser: bool, demo: bool, as_json: bool) -> int:
    from tollbar.app.server import start_server

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, loop, stopping, number)
    async with AsyncExitStack() as stack:
        server = await start_server(stack, settings, explicit_port=explicit_port, demo=demo)
        _announce(server.facts, as_json=as_json, quiet_browser=not browser)
        await server.serve_until(stopping)
        print("stopping: running work is handed back and goes on at the next start", file=sys.stderr)
    return 0


def _on_signal(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, number: signal.Signals) -> None:
    """The first signal stops, the second one kills."""
    stopping.set()
    loop.remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)


def _announce(facts: dict[str, Any], *, as_json: bool, quiet_browser: bool) -> None:
    if as_json:
        print(json.dumps(facts), flush=True)
        return
    header = '--header "Authorization: Bearer $TOLLBAR_API_KEY"'
    lines = [
        "",
        f"  tollbar runs at   {facts['url']}",
        f"  sign in (once)    {facts['sign_in_url']}",
        f"  data              {facts['data_dir']}",
        "",
        "  connect a coding agent:",
        f"    claude mcp add --transport http tollbar {facts['mcp_urls']['evaluation']} {header}",
        f"    with TOLLBAR_API_KEY={facts['api_key']}",
        "",
        "  try it:  tollbar jobs submit demo/mini@1 --max-cost 0.05 --watch",
        "",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
    if not quiet_browser:
        webbrowser.open(facts["sign_in_url"])
