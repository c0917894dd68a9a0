"""A process that owns an embedded server: `python -m tests.db.owner DATA [--uid N] [--pg-uid N]`.

Prints one JSON line when the server runs, or the error's body, and stops the server when standard input ends.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import psycopg

# A user without rights may be unable to read the interpreter's folders, so everything is imported before the change.
from tollbar.db.datadir import write_server_facts
from tollbar.db.embedded import EmbeddedServer
from tollbar.kit.errors import TollbarError


def become(uid: int) -> None:
    """Gives root's rights up for a uid, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


async def _warm() -> None:
    """Makes the interpreter and psycopg load what they load late."""
    await asyncio.to_thread(int)
    with contextlib.suppress(psycopg.Error):
        await psycopg.AsyncConnection.connect(host="/nowhere")


def _say(facts: dict) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def _own(data_dir: Path, pg_uid: int | None) -> int:
    try:
        server = await EmbeddedServer.start(data_dir, pg_uid=pg_uid)
    except TollbarError as error:
        _say(error.body())
        return 1
    write_server_facts(data_dir, {"url": "http://127.0.0.1:1234", "database_url": server.url})
    facts = {
        "url": server.url,
        "socket_dir": str(server.socket_dir),
        "server_pid": server.pid,
        "modules": sorted(sys.modules),
    }
    _say(facts)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--pg-uid", type=int)
    options = parser.parse_args()
    asyncio.run(_warm())
    if options.uid is not None:
        become(options.uid)
    raise SystemExit(asyncio.run(_own(options.data_dir, options.pg_uid)))
