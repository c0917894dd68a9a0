"""One installation on several machines: who may start on its database and its storage, and what each part does."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.e2e.tasks import results
from tests.fleet.processes import Fleet
from tests.s3 import bucket


def test_machines_that_share_only_a_database_and_a_bucket_run_a_job_together(
    empty_database_url: str, tmp_path: Path
) -> None:
    with bucket("tollbar") as made:
        environment = {"TOLLBAR_ARTIFACTS_URL": "s3://tollbar/one", **made.environment}
        fleet = Fleet(empty_database_url, tmp_path, environment)
        try:
            assert json.loads(fleet.migrate().stdout)["before"] is None
            server = fleet.serve()
            workers = fleet.workers(1, 3)
            # One limit for all, sized for the largest, whoever came last: 2 slots' worth ahead and 16.
            assert fleet.rows("SELECT worker_concurrency FROM dbos.queues WHERE name = 'trials.bwrap'") == [(22,)]
            listed = json.loads(fleet.run("workers", "--json", "--data-dir", str(tmp_path / "w")).stdout)["items"]
            assert {(one["worker_id"], one["state"], one["slots"]) for one in listed} == {
                (worker.id, "live", slots) for worker, slots in zip(workers, (1, 3), strict=True)
            }
            job_id = submitted(server, dataset="demo/mini@1", attempts=8)
            job = server.finished(job_id)
            assert (job["status"], job["score"], job["n_scored"]) == ("completed", 1.0, 48)
            owners = {row[0] for row in fleet.rows("SELECT DISTINCT owner FROM trial")}
            assert owners == {worker.id for worker in workers}
            trial = results(server, job_id)[0]
            item = trial["artifacts"]["items"][0]
            with server.http() as http:
                content = http.get(f"/v1/trials/{trial['trial_id']}/artifacts/{item['artifact_id']}/content")
            assert len(content.content) == item["size"]
            assert made.objects
            assert not any(path.is_file() for path in tmp_path.glob("*/data/blobs/**/*"))
            # A server runs nothing, and a worker answers nothing.
            assert fleet.rows("SELECT count(*) FROM worker") == [(2,)]
        finally:
            fleet.stop()


def submitted(server, **body) -> str:
    with server.http() as http:
        answer = http.post("/v1/job", json={"max_cost_usd": 5, **body})
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]


def test_nobody_starts_on_a_database_without_tables_or_with_newer_ones(empty_database_url: str, tmp_path: Path) -> None:
    fleet = Fleet(empty_database_url, tmp_path, {})
    for words in (["serve", "--port", "0"], ["worker"]):
        refused = fleet.run(*words, "--json", "--data-dir", str(tmp_path / "data"))
        assert refused.returncode == 1
        assert json.loads(refused.stdout)["code"] == "DATABASE_BEHIND"
        assert "tollbar migrate" in refused.stderr
    assert fleet.run("migrate", "--check").returncode == 1
    assert fleet.migrate().returncode == 0
    assert fleet.run("migrate", "--check").returncode == 0
    assert "up to date" in fleet.run("migrate").stdout
    fleet.rows("UPDATE alembic_version SET version_num = '9999' RETURNING 1")
    for words in (["serve", "--port", "0"], ["worker"], ["migrate"]):
        refused = fleet.run(*words, "--json", "--data-dir", str(tmp_path / "data"))
        assert (refused.returncode, json.loads(refused.stdout)["code"]) == (1, "DATABASE_TOO_NEW")


def test_a_worker_without_any_database_says_what_it_needs(tmp_path: Path) -> None:
    refused = Fleet("", tmp_path, {}).run("worker", "--json", "--data-dir", str(tmp_path / "data"))
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (1, "NO_DATABASE")
    assert "TOLLBAR_DATABASE_URL" in refused.stderr


def test_a_worker_that_would_keep_artifacts_elsewhere_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    fleet.serve()
    fleet.environment["TOLLBAR_ARTIFACTS_URL"] = f"file://{tmp_path}/another"
    refused = fleet.run("worker", "--json", "--data-dir", str(tmp_path / "data"))
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (1, "FOREIGN_ARTIFACTS")


def test_a_worker_beside_a_local_server_uses_its_database_and_ends_with_it(tmp_path: Path) -> None:
    fleet = Fleet("", tmp_path, {"TOLLBAR_DOCKER_HOST": "off"})
    try:
        server = fleet.process("up", "--port", "0", "--no-browser", "--no-demo").ready()
        worker = fleet.process("worker", "--slots", "2", folder=server.folder).ready()
        assert (worker.facts["slots"], worker.facts["backends"]) == (2, ["bwrap"])
        server.send(signal.SIGTERM)
        assert server.ended() == 0
        assert worker.ended() == 1
        assert "has ended" in worker.log()
    finally:
        fleet.stop()
