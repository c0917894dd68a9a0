"""The embedded server as root, as an ordinary user, and as root on machines that restrict it."""

import asyncio
import os
import pwd
import subprocess
import sys

import pytest
from tests.db.conftest import ROOT, ask, mode, needs_root, uids_of

from tollbar.db.binaries import candidates
from tollbar.db.embedded import EmbeddedServer
from tollbar.db.errors import EmbeddedDatabaseRefused

pytestmark = [needs_root, pytest.mark.slow]

NOBODY = 65534
WITHOUT_A_NAME = 54321
WAYS_OUT = ("as an ordinary user", "TOLLBAR_PG_UID", "TOLLBAR_DATABASE_URL")
CONNECT = """
import os, socket, sys
os.setgroups([]); os.setresgid({uid}, {uid}, {uid}); os.setresuid({uid}, {uid}, {uid})
client = socket.socket(socket.AF_UNIX)
try:
    client.connect({path!r})
except PermissionError:
    print("refused")
else:
    print("connected")
"""


def ordinary_uid():
    """Returns a uid with a name that is neither root nor nobody."""
    return next(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in {0, NOBODY})


def data_of(place, uid):
    data = place / "data"
    data.mkdir(mode=0o700)
    os.chown(data, uid, uid)
    return data


async def connects(uid, socket_dir):
    """Says whether a process of `uid` gets as far as a connection to the server's socket."""
    code = CONNECT.format(uid=uid, path=f"{socket_dir}/.s.PGSQL.5432")
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True)
    return {"connected": True, "refused": False}[done.stdout.strip()]


async def test_as_root_the_files_stay_roots_and_nobody_else_can_connect(place):
    server = await EmbeddedServer.start(place / "data")
    try:
        owners = {path.stat().st_uid for path in (place / "data").rglob("*")}
        assert owners == {0} == {server.socket_dir.stat().st_uid}
        assert {mode(place / "data" / "pg"), mode(server.socket_dir)} == {"0o700"}
        assert not await connects(NOBODY, server.socket_dir)
        assert not await connects(ordinary_uid(), server.socket_dir)
        assert await connects(0, server.socket_dir)
    finally:
        await server.stop()


async def test_as_root_the_server_has_no_rights_over_roots_files(place):
    server = await EmbeddedServer.start(place / "data")
    try:
        other = place / "closed"
        other.mkdir(mode=0o700)
        (other / "file").write_text("x")
        os.chown(other, 1, 1)
        with pytest.raises(Exception, match="Permission denied"):
            ask(server.url, f"SELECT pg_read_file('{other}/file')")
    finally:
        await server.stop()


@pytest.mark.parametrize("uid", [ordinary_uid(), NOBODY, WITHOUT_A_NAME])
async def test_an_ordinary_user_has_a_private_server(new_owner, place, uid):
    data = data_of(place, uid)
    owner = await new_owner(data, "--uid", str(uid))
    assert "url" in owner.said, owner.said
    socket_dir = owner.said["socket_dir"]
    assert {path.stat().st_uid for path in data.rglob("*")} == {uid}
    assert {mode(data / "pg"), mode(socket_dir), mode(f"{socket_dir}/.s.PGSQL.5432")} == {"0o700"}
    assert mode(place) == "0o711"
    assert uids_of(owner.said["server_pid"]) == {str(uid)}
    assert await connects(uid, socket_dir)
    assert not await connects(uid + 1 if uid != NOBODY else ordinary_uid(), socket_dir)


async def test_an_ordinary_users_server_dies_with_its_owner_too(new_owner, place):
    uid = ordinary_uid()
    owner = await new_owner(data_of(place, uid), "--uid", str(uid))
    await owner.kill()
    second = await new_owner(place / "data", "--uid", str(uid))
    assert ask(second.said["url"], "SELECT 1") == 1


async def test_a_directory_that_a_user_may_not_write_is_an_error_with_a_sentence(new_owner, place):
    uid = ordinary_uid()
    owner = await new_owner(data_of(place, uid + 1), "--uid", str(uid))
    assert owner.said["code"] == "EMBEDDED_DATABASE_FAILED"
    assert "Permission denied" in owner.said["message"]


def reachable(uid):
    if not ROOT:
        return False
    done = subprocess.run(
        ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", candidates()[0], "--version"],
        capture_output=True,
    )
    return done.returncode == 0


@pytest.mark.skipif(not reachable(NOBODY), reason="the wheel lies in a folder that is closed to other users")
class TestWithPgUid:
    async def test_the_server_runs_as_that_uid_and_owns_its_folder_alone(self, place):
        server = await EmbeddedServer.start(place / "data", pg_uid=NOBODY)
        try:
            assert uids_of(server.pid) == {str(NOBODY)}
            assert (place / "data" / "pg").stat().st_uid == server.socket_dir.stat().st_uid == NOBODY
            assert (place / "data").stat().st_uid == 0
            assert mode(place / "data") == mode(place) == "0o711"
            assert {mode(place / "data" / "pg"), mode(server.socket_dir)} == {"0o700"}
            assert ask(server.url, "SELECT 1") == 1
            assert not await connects(ordinary_uid(), server.socket_dir)
        finally:
            await server.stop()

    async def test_a_killed_owner_takes_that_server_along(self, new_owner, place):
        owner = await new_owner(place / "data", "--pg-uid", str(NOBODY))
        await owner.kill()
        second = await new_owner(place / "data", "--pg-uid", str(NOBODY))
        assert ask(second.said["url"], "SELECT 1") == 1

    async def test_a_folder_changes_hands_when_the_setting_comes_and_goes(self, place):
        for pg_uid, owner in ((None, 0), (NOBODY, NOBODY), (None, 0)):
            if not (place / "data").exists():
                (place / "data").mkdir()
            server = await EmbeddedServer.start(place / "data", pg_uid=pg_uid)
            ask(server.url, "CREATE TABLE IF NOT EXISTS kept (n int)")
            await server.stop()
            assert {path.stat().st_uid for path in (place / "data" / "pg").rglob("*")} == {owner}

    async def test_a_folder_that_the_uid_cannot_reach_is_refused_with_the_ways_out(self, place):
        place.chmod(0o700)
        with pytest.raises(EmbeddedDatabaseRefused, match="cannot reach") as refused:
            await EmbeddedServer.start(place / "data", pg_uid=NOBODY)
        assert all(way in refused.value.hint for way in WAYS_OUT)
        assert mode(place) == "0o700"
        assert list((place / "data").glob("pg*")) == []


@pytest.mark.parametrize("pg_uid", [0, WITHOUT_A_NAME])
async def test_root_and_a_uid_without_a_name_are_no_pg_uid(place, pg_uid):
    with pytest.raises(EmbeddedDatabaseRefused, match=f"uid {pg_uid} is root or has no entry"):
        await EmbeddedServer.start(place / "data", pg_uid=pg_uid)


async def test_where_user_namespaces_are_refused_root_is_told_the_three_ways_out(place):
    refusing = place / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(EmbeddedDatabaseRefused, match="Operation not permitted") as refused:
        await EmbeddedServer.start(place / "data", unshare=str(refusing))
    assert all(way in refused.value.hint for way in WAYS_OUT)
    server = await EmbeddedServer.start(place / "data")
    await server.stop()


async def test_a_kernel_that_allows_no_user_namespaces_gives_the_same_answer(new_owner, place):
    limited = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    owner = await new_owner(place / "data", before=("unshare", "--user", "--map-root-user", "sh", "-c", limited, "sh"))
    assert owner.said["code"] == "EMBEDDED_DATABASE_REFUSED"
    assert all(way in owner.said["hint"] for way in WAYS_OUT)


async def test_a_missing_program_is_named(place):
    with pytest.raises(EmbeddedDatabaseRefused, match="no-such-unshare is missing"):
        await EmbeddedServer.start(place / "data", unshare=str(place / "no-such-unshare"))
