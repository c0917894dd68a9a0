"""A database of an older PostgreSQL works, says what to do, and is brought to the newest with all its rows."""

import asyncio
import json
import subprocess
import sys

import pytest
from tests.db.conftest import ask

from tollbar.db import dump, migrate
from tollbar.db.binaries import candidates
from tollbar.db.datafolder import UPGRADED
from tollbar.db.embedded import EmbeddedServer
from tollbar.db.launch import give, output_of, run_as
from tollbar.engine.migrate import migrate as migrate_engine


async def _older(data_dir):
    """Makes a migrated database of the older PostgreSQL of the two with a row in it, and returns its version."""
    how = run_as(None)
    found = {}
    for postgres in candidates():
        _, answer = await output_of(how, postgres, "--version")
        found[int(answer.split()[-1].split(".")[0])] = postgres
    assert len(found) == 2
    folder = data_dir / "pg"
    folder.mkdir(parents=True, mode=0o700)
    give(folder, how.owner)
    words = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
    status, output = await output_of(how, found[min(found)].parent / "initdb", "-D", str(folder), *words)
    assert status == 0, output
    server = await EmbeddedServer.start(data_dir)
    try:
        await asyncio.to_thread(migrate.upgrade, server.url)
        await asyncio.to_thread(migrate_engine, server.url)
        ask(
            server.url, "INSERT INTO workspace SELECT 'ws_' || n, 'Ünïcode ' || n, now() FROM generate_series(1, 500) n"
        )
        return min(found), max(found), dump.row_counts(server.url)
    finally:
        await server.stop()


def _command(data_dir):
    words = [sys.executable, "-m", "tollbar", "storage", "upgrade", "--data-dir", str(data_dir), "--json"]
    return subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.slow
async def test_an_older_database_is_brought_to_the_newest_postgresql_with_all_its_rows(tmp_path):
    data_dir = tmp_path / "data"
    older, newest, counted = await _older(data_dir)
    assert counted["public.workspace"] == 500
    done = await asyncio.to_thread(_command, data_dir)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["before"] == older
    assert json.loads(done.stdout)["after"] == newest
    assert "tollbar storage upgrade" in done.stderr, "a start on an older one says what to do"
    assert (data_dir / "pg" / "PG_VERSION").read_text().strip() == str(newest)
    assert (data_dir / f"pg.{older}" / "PG_VERSION").read_text().strip() == str(older), "the old files are kept"
    # Killed between its last two steps: the next start finishes it.
    (data_dir / "pg").rename(data_dir / UPGRADED)
    server = await EmbeddedServer.start(data_dir)
    try:
        assert dump.row_counts(server.url) == counted
        assert ask(server.url, "SELECT name FROM workspace WHERE id = 'ws_7'") == "Ünïcode 7"
        refused = await asyncio.to_thread(_command, data_dir)
        assert json.loads(refused.stdout)["code"] == "DATA_DIRECTORY_HELD"
    finally:
        await server.stop()
    again = await asyncio.to_thread(_command, data_dir)
    assert json.loads(again.stdout) == {"before": newest, "after": newest, "rows": None, "old": None}
