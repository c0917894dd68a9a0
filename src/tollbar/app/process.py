"""How a process of tollbar begins and ends: its settings, its signals, its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from tollbar.app.ports import PortTaken
from tollbar.engine.errors import DeclaredDead
from tollbar.kit.errors import TollbarError
from tollbar.settings import Settings

EXIT_DECLARED_DEAD: Final = 70
"""A process manager starts the process again, under a new id."""
EXIT_USAGE: Final = 2

Begin = Callable[[AsyncExitStack, Settings], Awaitable[Sequence[asyncio.Task[None]]]]
"""Starts everything, leaves its stops in the stack, and returns tasks of which none ends while all is well."""


def run(begin: Begin, given: dict[str, Any], *, stopping: str, as_json: bool) -> int:
    """Runs a process until a signal stops it; `given` are the options, of which None says nothing.

    `stopping` is what a person reads when it begins to end. Does not return: every thread ends with the process.
    """
    settings = settings_of(given)
    if settings is None:
        return EXIT_USAGE
    try:
        asyncio.run(_until_stopped(begin, settings, stopping))
        code = 0
    except (TollbarError, PortTaken) as error:
        code = refused(error, as_json=as_json)
    except DeclaredDead:
        print("error: the other workers gave this one up and have its work; start it again", file=sys.stderr)
        code = EXIT_DECLARED_DEAD
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the engine library can wait for a lost database for ever; nothing of ours is left to do.
    os._exit(code)


def settings_of(given: dict[str, Any]) -> Settings | None:
    """Returns the settings with these options, of which None says nothing; or None, and has printed what is wrong."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return None


def refused(error: TollbarError | PortTaken, *, as_json: bool) -> int:
    """Prints why a command did not do its work, and returns the exit code."""
    if as_json and isinstance(error, TollbarError):
        print(json.dumps(error.body()), flush=True)
    print(f"error: {error}", file=sys.stderr)
    hint = getattr(error, "hint", None)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    return 1


async def _until_stopped(begin: Begin, settings: Settings, stopping: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, loop, stop, number)
    async with AsyncExitStack() as stack:
        endings = await begin(stack, settings)
        told = asyncio.create_task(stop.wait())
        ended, _ = await asyncio.wait({told, *endings}, return_when=asyncio.FIRST_COMPLETED)
        print(f"stopping: {stopping}", file=sys.stderr)
    for task in ended - {told}:
        task.result()


def _on_signal(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, number: signal.Signals) -> None:
    """The first signal stops, the second one kills."""
    stop.set()
    loop.remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)
