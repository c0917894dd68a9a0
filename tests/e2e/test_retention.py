"""What a server forgets: files of old Jobs, never what a living Trial, another Job or a dataset still needs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.e2e.conftest import Running
from tollbar.kit.clock import SystemClock

DAY = 86_400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that keeps files of Trials for a day."""
    data_dir = tmp_path_factory.mktemp("up") / "data"
    running = Running(data_dir, environment={"TOLLBAR_KEEP_ARTIFACTS_DAYS": "1"}).start()
    yield running
    assert running.stop() == 0, running.log()


def sql(server: Running, statement: str, *values: object) -> None:
    url = json.loads((server.data_dir / "server.json").read_text())["database_url"]
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement, values)


def ended(server: Running) -> str:
    done = server.cli("jobs", "submit", "demo/mini@1", "--max-cost", "1", "--watch", "--json")
    return json.loads(done.stdout.splitlines()[-1])["job_id"]


def grow_old(folder: Path, seconds: int) -> None:
    then = SystemClock().now().timestamp() - seconds
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def prune(server: Running) -> dict:
    os.environ["TOLLBAR_KEEP_ARTIFACTS_DAYS"] = "1"
    try:
        return json.loads(server.cli("storage", "prune", "--data-dir", str(server.data_dir), "--json").stdout)
    finally:
        del os.environ["TOLLBAR_KEEP_ARTIFACTS_DAYS"]


def artifacts(server: Running, job_id: str) -> list[tuple[str, str, int, str | None]]:
    """Returns (state, upload state, status of its content, code) of every artifact that has or had content."""
    found = []
    with server.http() as http:
        for trial in http.get("/v1/trials", params={"job_id": job_id}).json()["items"]:
            base = f"/v1/trials/{trial['trial_id']}/artifacts"
            for item in http.get(base).json()["items"]:
                if item["sha256"]:
                    answer = http.get(f"{base}/{item['artifact_id']}/content")
                    code = None if answer.status_code == 200 else answer.json()["code"]
                    found.append((item["state"], item["upload_state"], answer.status_code, code))
    return found


THERE = ("available", "uploaded", 200, None)
GONE = ("expired", "deleted", 404, "ARTIFACT_NOT_FOUND")


def test_files_of_old_jobs_go_and_shared_ones_only_with_the_last_of_them(server: Running) -> None:
    old, young = ended(server), ended(server)
    grow_old(server.data_dir / "blobs", 2 * DAY)
    assert prune(server)["trials"] == 0
    assert set(artifacts(server, old)) == set(artifacts(server, young)) == {THERE}

    sql(server, "UPDATE job SET finished_at = finished_at - interval '2 days' WHERE id = %s", old)
    forgotten = prune(server)
    assert forgotten["trials"] == 6
    assert set(artifacts(server, old)) == {GONE}
    assert set(artifacts(server, young)) == {THERE}, "both wrote the same bytes"
    with server.http() as http:
        job = http.get(f"/v1/job/{old}").json()
        assert (job["status"], job["score"]) == ("completed", 1.0), "results stay"

    sql(server, "UPDATE job SET finished_at = finished_at - interval '2 days' WHERE id = %s", young)
    again = prune(server)
    assert again["trials"] == 6
    assert again["blobs"] > 0
    assert set(artifacts(server, young)) == {GONE}
    assert prune(server) == {"trials": 0, "blobs": 0, "blob_bytes": 0, "busy": False, "leftovers": 0}
    last = ended(server)
    with server.http() as http:
        assert http.get(f"/v1/job/{last}").json()["score"] == 1.0, "datasets stay"


def test_files_of_a_job_that_has_not_ended_stay_whatever_its_age(server: Running) -> None:
    job_id = ended(server)
    sql(server, "UPDATE job SET state = 'running', finished_at = now() - interval '9 days' WHERE id = %s", job_id)
    try:
        prune(server)
        assert set(artifacts(server, job_id)) == {THERE}
    finally:
        sql(server, "UPDATE job SET state = 'completed', finished_at = now() WHERE id = %s", job_id)


def test_leftovers_of_killed_servers_go_and_those_of_living_trials_stay(server: Running) -> None:
    job_id = ended(server)
    with server.http() as http:
        trial_id = http.get("/v1/trials", params={"job_id": job_id}).json()["items"][0]["trial_id"]
    logs, tasks, uploads = (server.data_dir / name for name in ("logs", "tasks", "uploads"))
    uploads.mkdir(exist_ok=True)
    left = [logs / f"{trial_id}-1-agent", logs / "trial_unknown-2-verifier", uploads / "upload-x", tasks / ("0" * 64)]
    left[3].mkdir()
    for path in left[:3]:
        path.write_text("left")
    for path in left:
        os.utime(path, (1, 1))
    young = logs / "trial_young-1-agent"
    young.write_text("being written")
    used = [path for path in tasks.iterdir() if path.is_dir() and path != left[3]]
    assert used

    sql(
        server,
        "UPDATE trial SET state = 'running', reward = NULL, passed = NULL, finished_at = NULL WHERE id = %s",
        trial_id,
    )
    assert prune(server)["leftovers"] == 3
    assert [path.exists() for path in left] == [True, False, False, False]
    assert young.exists()
    assert all(path.is_dir() for path in used)
    sql(
        server,
        "UPDATE trial SET state = 'failed', reason = 'INTERNAL_ERROR', finished_at = now() WHERE id = %s",
        trial_id,
    )
    assert prune(server)["leftovers"] == 1
    assert not left[0].exists()


def test_a_task_whose_folder_was_removed_runs_again_on_the_same_server(server: Running) -> None:
    ended(server)
    tasks = server.data_dir / "tasks"
    for path in tasks.iterdir():
        if path.is_dir():
            os.utime(path, (1, 1))
    assert prune(server)["leftovers"] > 0
    job_id = ended(server)
    with server.http() as http:
        assert http.get(f"/v1/job/{job_id}").json()["score"] == 1.0


def test_what_takes_disk_is_shown(server: Running) -> None:
    shown = json.loads(server.cli("storage", "show", "--data-dir", str(server.data_dir), "--json").stdout)
    stored = [path for path in (server.data_dir / "blobs" / "sha256").rglob("*") if path.is_file()]
    assert shown["files"]["stored"] == {"count": len(stored), "bytes": sum(path.stat().st_size for path in stored)}
    assert shown["database"]["bytes"] > shown["database"]["engine_bytes"] > 0
    assert shown["folders"]["pg"] > shown["folders"]["logs"]
    assert shown["kept_days"]["engine"] == 7
    assert {row["kind"] for row in shown["files"]["artifacts"]} >= {"log", "verifier"}
    assert "kept: artifacts" in server.cli("storage", "show", "--data-dir", str(server.data_dir)).stdout
