"""`tollbar storage`: what takes disk, and removing what need not be kept, on the server's machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.app.installation import Installation
    from tollbar.settings import Settings

_FOLDERS: Final = ("pg", "blobs", "sandboxes", "tasks", "logs", "uploads", "agents")
_LARGEST: Final = 8

DataDir = Annotated[Path | None, Parameter(help="Data directory of the running server.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")]


def show(*, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """Show what takes disk: the database by table, stored files by kind, folders of this machine.

    "Unnamed" files belong to no row any more; they go a day after they were written.

    Example: tollbar storage show
    """
    return _run(_shown, _print_sizes, data_dir, as_json=json_)


def prune(*, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """Remove now what the server removes once an hour: lapsed files, unnamed ones, leftovers on this machine.

    What is old enough is said by TOLLBAR_KEEP_ARTIFACTS_DAYS and TOLLBAR_KEEP_CACHE_DAYS.

    Example: tollbar storage prune
    """
    return _run(_pruned, _print_removed, data_dir, as_json=json_)


def _run(
    work: Callable[[Installation], Awaitable[dict[str, Any]]],
    present: Callable[[dict[str, Any]], None],
    data_dir: Path | None,
    *,
    as_json: bool,
) -> int:
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        facts = asyncio.run(_joined(settings, work))
    except TollbarError as error:
        return refused(error, as_json=as_json)
    if as_json:
        print(json.dumps(facts))
    else:
        present(facts)
    return 1 if facts.get("busy") else 0


async def _joined(settings: Settings, work: Callable[[Installation], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    from tollbar.app import installation

    async with AsyncExitStack() as stack:
        return await work(await installation.join(stack, settings, connections=3))


async def _shown(own: Installation) -> dict[str, Any]:
    from tollbar.app.retention import Retention
    from tollbar.artifacts import store as artifacts
    from tollbar.artifacts.inventory import stored
    from tollbar.db import sizes

    async with own.database.session() as session:
        tables = await sizes.table_sizes(session)
        database = {
            "bytes": await sizes.database_size(session),
            "engine_bytes": sum(table.size for table in tables if table.schema == "dbos"),
            "largest_tables": [asdict(table) for table in tables[:_LARGEST]],
        }
        kinds = await artifacts.sums(session)
    everything = await asyncio.to_thread(lambda: list(stored(own.blobs)))
    unnamed = await Retention(own.database, own.blobs, own.clock, None).sweep().unneeded()
    settings = own.settings
    return {
        "database": database,
        "files": {
            "stored": _sum(everything),
            "unnamed": _sum(unnamed),
            "artifacts": [
                {"kind": kind, "state": state, "count": count, "bytes": size} for kind, state, count, size in kinds
            ],
        },
        "folders": await asyncio.to_thread(lambda: {name: _folder_bytes(own.data_dir / name) for name in _FOLDERS}),
        "kept_days": {
            "artifacts": settings.keep_artifacts_days,
            "engine": settings.keep_engine_days,
            "cache": settings.keep_cache_days,
        },
    }


async def _pruned(own: Installation) -> dict[str, Any]:
    from tollbar.app.retention import Leftovers, Retention

    settings = own.settings
    leftovers = await Leftovers(own.database, own.data_dir, own.clock, settings.keep_cache_days).run_once()
    forgotten = await Retention(own.database, own.blobs, own.clock, settings.keep_artifacts_days).run_once()
    return {**asdict(forgotten), "leftovers": leftovers}


def _sum(blobs: list[Any]) -> dict[str, int]:
    return {"count": len(blobs), "bytes": sum(blob.size for blob in blobs)}


def _folder_bytes(folder: Path) -> int:
    """Returns what a folder takes on its disk; 0 when it is not there. What goes meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _size(size: int) -> str:
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _print_sizes(facts: dict[str, Any]) -> None:
    database, files, kept = facts["database"], facts["files"], facts["kept_days"]
    print(f"database          {_size(database['bytes']):>11}   of the engine {_size(database['engine_bytes'])}")
    for table in database["largest_tables"]:
        print(f"  {table['schema']}.{table['name']:<24} {_size(table['size']):>11}")
    for name in ("stored", "unnamed"):
        print(f"files {name:<11} {_size(files[name]['bytes']):>11}   {files[name]['count']} files")
    for row in files["artifacts"]:
        print(f"  {row['kind']} {row['state']:<17} {_size(row['bytes']):>11}   {row['count']} artifacts")
    for name, size in facts["folders"].items():
        print(f"folder {name:<10} {_size(size):>11}")
    artifacts = "for ever" if kept["artifacts"] is None else f"{kept['artifacts']} days after a Job's end"
    print(f"kept: artifacts {artifacts}, the engine's rows {kept['engine']} days, unused tasks {kept['cache']} days")


def _print_removed(facts: dict[str, Any]) -> None:
    if facts["busy"]:
        print("a backup is being taken, or another process is at it; nothing was removed but leftovers")
    print(f"files of {facts['trials']} Trials lapsed")
    print(f"{facts['blobs']} unnamed files removed, {_size(facts['blob_bytes'])}")
    print(f"{facts['leftovers']} leftovers removed on this machine")
