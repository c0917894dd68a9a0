"""`tollbar trials shell`: a look into the kept sandbox of a Trial, by whoever owns the data directory."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.jobs.keeping import KeptSandbox
    from tollbar.sandboxes.interface import Terminal
    from tollbar.settings import Settings

_LONGEST_S: Final = 86_400.0
_CHUNK: Final = 4096
_PLAIN_SIZE: Final = (24, 80)


def shell(
    trial_id: str | None = None,
    /,
    *,
    command: Annotated[str, Parameter(help="What to run in it.")] = "sh",
    data_dir: Annotated[Path | None, Parameter(help="Data directory of the installation.")] = None,
) -> int:
    """Enter the kept sandbox of a Trial, on the machine that has it; without a Trial, list what is kept.

    Its files are as the agent and the verifier left them, and what you do to them stays until its time is over. Its
    processes are dead. Nothing of it changes the Trial's result. A Job keeps the sandboxes of Trials that do not pass
    when it was submitted with --keep-failed.

    Example: tollbar trials shell trial_01K0000000000000000000000
    """
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        if trial_id is None:
            return _list(asyncio.run(_kept(settings)))
        return asyncio.run(_enter(settings, trial_id, command))
    except TollbarError as error:
        return refused(error, as_json=False)


def _list(found: list[KeptSandbox]) -> int:
    for each in found:
        print(f"{each.trial_id}  until {each.until:%Y-%m-%d %H:%M} UTC  on {each.host}")
    if not found:
        print("nothing is kept", file=sys.stderr)
    return 0


async def _kept(settings: Settings) -> list[KeptSandbox]:
    from tollbar.access import service as access
    from tollbar.app.installation import database_url
    from tollbar.db.session import open_database
    from tollbar.jobs import keeping
    from tollbar.kit.clock import SystemClock

    async with AsyncExitStack() as stack:
        database, clock = open_database(await database_url(stack, settings), pool_size=1), SystemClock()
        stack.push_async_callback(database.close)
        async with database.transaction() as session:
            actor = await access.ensure_first_project(session, clock)
            return await keeping.all_kept(session, actor, clock.now())


async def _enter(settings: Settings, trial_id: str, command: str) -> int:
    from tollbar.app.backends import bwrap_of
    from tollbar.app.installation import made
    from tollbar.jobs.errors import SandboxNotKept
    from tollbar.sandboxes.errors import EnvironmentFailure

    kept = next((each for each in await _kept(settings) if each.trial_id == trial_id), None)
    if kept is None:
        raise SandboxNotKept(trial_id)
    provider = bwrap_of(settings, made(settings.data_dir))
    try:
        sandbox = await provider.attach(kept.name)
    except EnvironmentFailure as error:
        print(f"error: {error.message}\n  it is kept on {kept.host}; enter it there", file=sys.stderr)
        return 1
    try:
        rows, columns = _size()
        terminal = await sandbox.interactive([command], timeout_s=_LONGEST_S, rows=rows, columns=columns)
        try:
            return await _joined(terminal)
        finally:
            await terminal.close()
    finally:
        await provider.keep(kept.name, kept.until)
        await provider.let_go(kept.name)
        await provider.kill_all()


async def _joined(terminal: Terminal) -> int:
    """Joins this terminal to that one until the command there has ended; returns its exit code."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue()
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()

    async def show() -> None:
        while data := await terminal.read():
            os.write(screen, data)

    async def write() -> None:
        while True:
            await terminal.write(await typed.get())

    def read() -> None:
        data = os.read(keyboard, _CHUNK)
        if data:
            typed.put_nowait(data)
        else:
            loop.remove_reader(keyboard)
            typed.put_nowait(b"\x04")

    loop.add_signal_handler(signal.SIGWINCH, lambda: terminal.resize(*_size()))
    with _raw(keyboard):
        loop.add_reader(keyboard, read)
        writing = asyncio.create_task(write())
        try:
            await show()
            result = await terminal.ended()
        finally:
            loop.remove_reader(keyboard)
            writing.cancel()
    return result.exit_code if result.exit_code is not None else 1


@contextmanager
def _raw(descriptor: int) -> Generator[None]:
    """Hands every key through as it is, while this is a terminal."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size()
    except OSError:
        return _PLAIN_SIZE
    return (size.lines, size.columns) if size.lines and size.columns else _PLAIN_SIZE
