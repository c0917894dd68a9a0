"""`tollbar agents`: software of coding agents on this machine, installed by whoever owns the data directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.settings import Settings

DataDir = Annotated[Path | None, Parameter(help="Data directory of the server or worker on this machine.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")]
_NOT_FOUND: Final = 3
_MIB: Final = 1 << 20


def install(name: str, /, *, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """Install the software of an agent: claude-code, codex or mini-swe-agent, as NAME or NAME@VERSION.

    It comes from npm or PyPI, by this machine's own npm or pip, under its own licence; without a version, the one that
    this tollbar is tested with. Every machine with a worker needs it; a worker that runs sees it within seconds.

    Example: tollbar agents install codex
    """
    settings = _settings(data_dir)
    if settings is None:
        return 2
    from tollbar.agents import installing
    from tollbar.agents.packages import PACKAGES
    from tollbar.app.process import refused
    from tollbar.kit.clock import SystemClock
    from tollbar.kit.errors import TollbarError

    try:
        root = _root(settings)
        one, new = installing.install(root, name, SystemClock(), lambda line: print(line, file=sys.stderr, flush=True))
    except TollbarError as error:
        return refused(error, as_json=json_)
    if json_:
        print(json.dumps({**one.wire(), "new": new}))
    else:
        state = "is installed" if new else "was installed before"
        print(f"{one.reference} {state}: {one.bytes // _MIB} MiB, licence {PACKAGES[one.name].licence}")
    return 0


def list_agents(*, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """List what is installed on this machine, the version that runs by default first, and what can be.

    Example: tollbar agents list
    """
    settings = _settings(data_dir)
    if settings is None:
        return 2
    from tollbar.agents import software
    from tollbar.agents.packages import PACKAGES

    found = software.installed(_root(settings))
    missing = [package for package in PACKAGES.values() if package.name not in {one.name for one in found}]
    if json_:
        available = [{"name": package.name, "version": package.version} for package in missing]
        print(json.dumps({"items": [one.wire() for one in found], "available": available}))
        return 0
    for one in found:
        print("\t".join([one.name, one.version, f"{one.bytes // _MIB} MiB", f"since {one.installed_at}", one.source]))
    for package in missing:
        print(f"{package.name}\tnot installed\t\t\ttollbar agents install {package.name}")
    return 0


def remove(name: str, /, *, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """Remove an agent's software from this machine: NAME@VERSION, or every version of NAME.

    Trials that run keep what they have.

    Example: tollbar agents remove codex@0.171.0
    """
    settings = _settings(data_dir)
    if settings is None:
        return 2
    from tollbar.agents import installing

    gone = installing.remove(_root(settings), name)
    if json_:
        print(json.dumps({"removed": [one.reference for one in gone]}))
    elif gone:
        print("\n".join(f"{one.reference}: removed" for one in gone))
    else:
        print(f"error: {name} is not installed here\n  what is: tollbar agents list", file=sys.stderr)
    return 0 if gone else _NOT_FOUND


def _settings(data_dir: Path | None) -> Settings | None:
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import settings_of

    return settings_of({"data_dir": data_dir})


def _root(settings: Settings) -> Path:
    from tollbar.agents.software import FOLDER
    from tollbar.app.installation import made

    return made(made(settings.data_dir) / FOLDER)
