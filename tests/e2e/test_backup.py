"""Backup, wipe, restore: the same answers on every read route, and no way to lose or overwrite anything."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import tarfile
import time
from pathlib import Path

import httpx2
import pytest

from tests.e2e.conftest import Running
from tests.e2e.crawl import read_everything


def _cookies(server: Running) -> dict[str, str]:
    """Signs a browser in and returns its cookies."""
    with httpx2.Client(base_url=server.url, timeout=30, trust_env=False) as http:
        link = server.facts["sign_in_url"].partition("link=")[2]
        answer = http.post("/sign-in", data={"link": link}, headers={"Origin": server.url})
        assert answer.status_code == 303, answer.text
        return dict(http.cookies)


def _reader(server: Running, key: str, cookies: dict[str, str]) -> httpx2.Client:
    """Returns a client that can read every route and every page."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.Client(base_url=server.url, headers=headers, cookies=cookies, timeout=30, trust_env=False)


def _until_told(http: httpx2.Client) -> None:
    """Waits until the events of every Job are told to their end: they stand behind older transactions that are open."""
    for job in http.get("/v1/job").json()["items"]:
        told: list[str] = []
        deadline = time.monotonic() + 30
        while "job.ended" not in told:
            assert time.monotonic() < deadline, told
            page = http.get(f"/v1/job/{job['job_id']}/events?limit=100").json()
            told = [item["type"] for item in page["items"]]


def _restore(server: Running, file: Path, data_dir: Path) -> dict:
    return json.loads(server.cli("restore", str(file), "--data-dir", str(data_dir), "--json").stdout)


@pytest.mark.slow
def test_after_backup_wipe_and_restore_every_read_route_answers_as_before(fresh: Running, tmp_path: Path) -> None:
    fresh.start()
    port = int(fresh.url.rpartition(":")[2])
    for profile in ("tollbar/oracle", "tollbar/nop"):
        fresh.cli("jobs", "submit", "demo/mini@1", "--profile", profile, "--max-cost", "1", "--watch")
    key, cookies = fresh.key, _cookies(fresh)
    with _reader(fresh, key, cookies) as http:
        _until_told(http)
        before = read_everything(http)
    archive = tmp_path / "backup.tar"
    facts = json.loads(fresh.cli("backup", str(archive), "--data-dir", str(fresh.data_dir), "--json").stdout)
    assert facts["missing"] == []
    assert fresh.stop() == 0
    shutil.rmtree(fresh.data_dir)

    restored = _restore(fresh, archive, fresh.data_dir)
    assert (restored["blobs"], restored["missing"]) == (facts["blobs"], [])
    fresh.port = port
    fresh.start()
    assert fresh.key != key, "a backup has no key, only its hash; the machine's own is new"
    with _reader(fresh, key, cookies) as http:
        after = read_everything(http)
    assert len(before) > 60
    assert [path for path, (status, _) in before.items() if status >= 500] == []
    assert sum(status == 200 for status, _ in before.values()) > 50
    assert {path: said for path, said in after.items() if before.get(path) != said} == {}
    assert after.keys() == before.keys()


@pytest.mark.slow
def test_a_backup_taken_while_jobs_run_is_whole_and_its_jobs_end_in_the_restored_place(
    fresh: Running, tmp_path: Path
) -> None:
    fresh.start()
    jobs = []
    with fresh.http() as http:
        for _ in range(3):
            body = {"dataset": "demo/mini@1", "max_cost_usd": 1, "attempts": 4}
            jobs.append(http.post("/v1/job", json=body).json()["job_id"])
    archive = tmp_path / "backup.tar"
    facts = json.loads(fresh.cli("backup", str(archive), "--data-dir", str(fresh.data_dir), "--json").stdout)
    assert facts["missing"] == []
    assert fresh.stop() == 0
    shutil.rmtree(fresh.data_dir)
    assert _restore(fresh, archive, fresh.data_dir)["missing"] == []
    fresh.start()
    for job_id in jobs:
        job = fresh.finished(job_id)
        assert (job["status"], job["n_scored"], job["score"]) == ("completed", job["n_total"], 1.0)


@pytest.fixture(scope="module")
def backup(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a server that was just started."""
    file = tmp_path_factory.mktemp("backup") / "backup.tar"
    server.cli("backup", str(file), "--data-dir", str(server.data_dir))
    return file


def test_a_backup_is_its_owners_alone_and_says_what_it_holds(server: Running, backup: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with tarfile.open(backup) as tar:
        names = tar.getnames()
        head = json.load(tar.extractfile("tollbar-backup.json"))
    assert names[:2] == ["tollbar-backup.json", "database.dump"]
    assert names[-1] == "end.json"
    assert any("hashes" in line for line in head["contains"])
    assert any("keys of providers" in line for line in head["does_not_contain"])


def test_a_backup_holds_no_key(server: Running, backup: Path, tmp_path: Path) -> None:
    """Of the restored database, too, which is not compressed as the dump in the archive is."""
    data_dir = tmp_path / "restored"
    _restore(server, backup, data_dir)
    secret = server.key.encode()
    everything = [backup, *(path for path in data_dir.rglob("*") if path.is_file())]
    assert len(everything) > 100
    assert [path for path in everything if secret in path.read_bytes()] == []


def test_a_backup_never_overwrites_a_file(server: Running, backup: Path) -> None:
    before = backup.read_bytes()
    ended = server.cli("backup", str(backup), "--data-dir", str(server.data_dir), "--json", check=False)
    assert (ended.returncode, json.loads(ended.stdout)["code"]) == (1, "BACKUP_FILE_EXISTS")
    assert backup.read_bytes() == before
    assert sorted(path.name for path in backup.parent.iterdir()) == [backup.name]


def test_a_restore_touches_no_place_that_has_something(server: Running, backup: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    ended = server.cli("restore", str(backup), "--data-dir", str(tmp_path), "--json", check=False)
    assert (ended.returncode, json.loads(ended.stdout)["code"]) == (1, "RESTORE_TARGET_NOT_EMPTY")
    assert "letter.txt" in ended.stderr
    assert (tmp_path / "letter.txt").read_text() == "mine"
    running = server.cli("restore", str(backup), "--data-dir", str(server.data_dir), "--json", check=False)
    assert json.loads(running.stdout)["code"] == "DATA_DIRECTORY_HELD"


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _one_bit(data: bytes) -> bytes:
    """Changes one bit of the first stored file."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        place = next(member for member in tar if member.name.startswith("blobs/") and member.size).offset_data
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _dump_bit(data: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        place = tar.getmember("database.dump").offset_data + 5000
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _one_blob_less(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar, tarfile.open(fileobj=out, mode="w") as less:
        dropped = next(name for name in tar.getnames() if name.startswith("blobs/"))
        for member in tar:
            if member.name != dropped:
                less.addfile(member, tar.extractfile(member))
    return out.getvalue()


def _of_the_future(data: bytes) -> bytes:
    return re.sub(rb'"format": 1', b'"format": 9', data, count=1)


@pytest.mark.parametrize("spoil", [_cut, _one_bit, _dump_bit, _one_blob_less, _of_the_future, lambda _: b"no tar"])
def test_a_damaged_backup_is_refused_and_leaves_nothing(server: Running, backup: Path, tmp_path: Path, spoil) -> None:
    file, data_dir = tmp_path / "spoilt.tar", tmp_path / "data"
    file.write_bytes(spoil(backup.read_bytes()))
    ended = server.cli("restore", str(file), "--data-dir", str(data_dir), "--json", check=False)
    assert (ended.returncode, json.loads(ended.stdout)["code"]) == (1, "BACKUP_DAMAGED"), ended.stderr
    assert not data_dir.exists() or [path.name for path in data_dir.iterdir()] == ["server.lock"]


def test_a_backup_of_a_newer_tollbar_is_refused_before_anything_is_made(
    server: Running, backup: Path, tmp_path: Path
) -> None:
    file = tmp_path / "newer.tar"
    revision = re.search(rb'"revision": "(\d+)"', backup.read_bytes())[1]
    file.write_bytes(backup.read_bytes().replace(b'"revision": "' + revision, b'"revision": "' + b"9" * len(revision)))
    ended = server.cli("restore", str(file), "--data-dir", str(tmp_path / "data"), "--json", check=False)
    assert (ended.returncode, json.loads(ended.stdout)["code"]) == (1, "DATABASE_TOO_NEW")
    assert not (tmp_path / "data").exists()


def test_it_works_with_a_database_of_ones_own(
    server: Running, backup: Path, tmp_path: Path, empty_database_url: str
) -> None:
    """The test run's own server stands for it: it was not started by a data directory of the installation."""
    os.environ["TOLLBAR_DATABASE_URL"] = empty_database_url
    try:
        _restore(server, backup, tmp_path / "data")
        again = server.cli("restore", str(backup), "--data-dir", str(tmp_path / "other"), "--json", check=False)
        assert json.loads(again.stdout)["code"] == "RESTORE_TARGET_NOT_EMPTY"
        second = tmp_path / "second.tar"
        server.cli("backup", str(second), "--data-dir", str(tmp_path / "data"))
    finally:
        del os.environ["TOLLBAR_DATABASE_URL"]
    assert not (tmp_path / "data" / "pg").exists()
    with tarfile.open(backup) as one, tarfile.open(second) as two:
        assert set(two.getnames()) == set(one.getnames())
