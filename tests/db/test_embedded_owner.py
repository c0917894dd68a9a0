"""The embedded server in a process of its own: who owns it, and what is left when the owner is killed."""

import asyncio
import fcntl
import os
import stat

import pytest
from tests.db.conftest import alive, ask, contents, mode
from tests.support import eventually

from tollbar.db.datadir import hold_directory, read_server_facts, remove_server_facts, write_server_facts
from tollbar.db.embedded import EmbeddedServer
from tollbar.db.errors import DataDirectoryHeld

pytestmark = pytest.mark.slow


async def test_the_wheels_package_is_never_imported(new_owner, tmp_path):
    owner = await new_owner(tmp_path / "data")
    assert [name for name in owner.said["modules"] if "pixeltable" in name] == []
    assert "tollbar.db.embedded" in owner.said["modules"]


async def test_a_second_server_is_told_who_holds_the_directory(new_owner, tmp_path):
    first = await new_owner(tmp_path / "data")
    with pytest.raises(DataDirectoryHeld) as held:
        await EmbeddedServer.start(tmp_path / "data")
    assert f"in use by process {first.process.pid}, the server at http://127.0.0.1:1234." in str(held.value)
    assert held.value.facts["pid"] == first.process.pid
    second = await new_owner(tmp_path / "data")
    assert second.said["code"] == "DATA_DIRECTORY_HELD"
    assert second.said["url"] == "http://127.0.0.1:1234"
    assert ask(first.said["url"], "SELECT 1") == 1


async def test_a_killed_owner_takes_its_server_along_and_the_next_start_works(new_owner, tmp_path):
    owner = await new_owner(tmp_path / "data")
    ask(owner.said["url"], "CREATE TABLE kept AS SELECT 7 AS n")
    await owner.kill()

    async def gone():
        return not alive(owner.said["server_pid"])

    await eventually(gone, within_s=5)
    assert contents(owner.said["socket_dir"]) == []
    assert not (tmp_path / "data" / "pg" / "postmaster.pid").exists()
    server = await EmbeddedServer.start(tmp_path / "data")
    try:
        assert ask(server.url, "SELECT n FROM kept") == 7
        assert contents(owner.said["socket_dir"]) is None
    finally:
        await server.stop()


async def test_the_next_start_need_not_wait_for_the_killed_owners_server_to_be_gone(new_owner, tmp_path):
    owner = await new_owner(tmp_path / "data")
    ask(owner.said["url"], "CREATE TABLE kept AS SELECT 7 AS n")
    await owner.kill()
    second = await new_owner(tmp_path / "data")
    assert ask(second.said["url"], "SELECT n FROM kept") == 7
    assert not alive(owner.said["server_pid"])


async def test_owner_and_server_killed_together_lose_no_committed_row(new_owner, tmp_path):
    owner = await new_owner(tmp_path / "data")
    ask(owner.said["url"], "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    os.kill(owner.said["server_pid"], 9)
    await owner.kill()
    second = await new_owner(tmp_path / "data")
    assert ask(second.said["url"], "SELECT count(*) FROM kept") == 1000
    assert contents(owner.said["socket_dir"]) is None


async def test_a_socket_path_stays_short_when_the_temporary_directory_is_deep(new_owner, tmp_path):
    deep = tmp_path / ("t" * 60) / ("u" * 60)
    deep.mkdir(parents=True)
    owner = await new_owner(tmp_path / "data", env={"TMPDIR": str(deep)})
    assert len(os.fsencode(owner.said["socket_dir"])) < 60
    assert ask(owner.said["url"], "SELECT 1") == 1


async def test_facts_are_for_the_owner_of_the_directory_and_end_with_the_server(new_owner, tmp_path):
    data = tmp_path / "data"
    assert read_server_facts(data) is None
    owner = await new_owner(data)
    facts = read_server_facts(data)
    assert facts == {"pid": owner.process.pid, "url": "http://127.0.0.1:1234", "database_url": owner.said["url"]}
    assert mode(data / "server.json") == "0o600"
    await owner.kill()
    assert (data / "server.json").exists()
    assert read_server_facts(data) is None


def test_facts_are_replaced_whole_and_taken_away(tmp_path):
    held = hold_directory(tmp_path)
    write_server_facts(tmp_path, {"url": "http://one"})
    write_server_facts(tmp_path, {"url": "http://two"})
    assert read_server_facts(tmp_path) == {"pid": os.getpid(), "url": "http://two"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.json", "server.lock"]
    remove_server_facts(tmp_path)
    remove_server_facts(tmp_path)
    assert read_server_facts(tmp_path) is None
    held.release()


def test_facts_do_not_follow_a_link_and_never_become_readable_by_others(tmp_path):
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "server.json").symlink_to(tmp_path / "elsewhere")
    os.umask(old := os.umask(0))
    held = hold_directory(tmp_path)
    try:
        os.umask(0)
        write_server_facts(tmp_path, {"url": "http://one"})
    finally:
        os.umask(old)
        held.release()
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert stat.S_IMODE((tmp_path / "server.lock").stat().st_mode) & 0o077 == 0


async def test_a_reader_of_the_facts_does_not_turn_a_starting_server_away(tmp_path):
    hold_directory(tmp_path).release()
    reader = os.open(tmp_path / "server.lock", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    taking = asyncio.create_task(asyncio.to_thread(hold_directory, tmp_path))
    await asyncio.sleep(0)
    os.close(reader)
    (await taking).release()


def test_a_lock_whose_text_is_damaged_still_locks(tmp_path):
    held = hold_directory(tmp_path)
    (tmp_path / "server.lock").write_text("{")
    with pytest.raises(DataDirectoryHeld, match="in use by another process"):
        hold_directory(tmp_path)
    held.release()
