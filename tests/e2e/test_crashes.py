"""Crashes: the only worker is killed, an answer is lost, the engine's own rows are gone. Every result stands once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.e2e.conftest import Running
from tests.e2e.keys import call
from tests.e2e.machine import gone_within, living, new_mark
from tests.e2e.tasks import results, toml, write_task
from tollbar.db.embedded import EmbeddedServer

SHELL = "#!/bin/sh\n"
MINI = {"dataset": "demo/mini@1", "max_cost_usd": 5}


def submit(server: Running, **body: Any) -> str:
    with server.http() as http:
        answer = http.post("/v1/job", json={"max_cost_usd": 5, **body})
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()["job_id"]


def counts(server: Running, job_id: str) -> dict[str, int]:
    with server.http() as http:
        return http.get(f"/v1/job/{job_id}").json()["trial_counts"]


@pytest.mark.requirement("G-ENG-17.only_worker", "G-EVAL-18.19", "G-EVAL-18.20")
@pytest.mark.timeout(300)
def test_a_killed_server_ends_each_trial_once_and_sealed_ones_run_no_second_agent(
    fresh: Running, tmp_path: Path
) -> None:
    """Each agent leaves a number of its own; where the kill comes while the verifier runs, the number stays."""
    mark = new_mark()
    agent = f"{SHELL}head -c 16 /dev/urandom | od -An -tx1 > /app/number.txt\n"
    verifier = f"{SHELL}test -s /app/number.txt || exit 1\nsleep 3\necho 1 > /logs/verifier/reward.txt\n"
    sealed = toml(top='artifacts = ["/app/number.txt"]', verifier='environment_mode = "separate"')
    for name in ("sealed-1", "sealed-2"):
        write_task(tmp_path / "set", name, {"solution/solve.sh": agent, "tests/test.sh": verifier, "task.toml": sealed})
    for name in ("u-running", "v-running"):
        write_task(tmp_path / "set", name, {"solution/solve.sh": f"{SHELL}setsid sleep {mark} &\nsleep 3\n"})
    for number in range(4):
        write_task(tmp_path / "set", f"w-waiting-{number}", {})
    fresh.start()
    fresh.cli("datasets", "push", str(tmp_path / "set"), "--name", "bad/phases", "--version", "1")
    job_id = submit(fresh, dataset="bad/phases@1", runner="envhub/metered@main", request_id="phases")
    deadline = time.monotonic() + 30
    while not ((found := counts(fresh, job_id))["verifying"] == 2 and found["running"] == 2):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    before = {trial["task"]["task_id"]: trial for trial in results(fresh, job_id)}
    fresh.kill()
    assert gone_within(mark, 2)
    fresh.start()
    job = fresh.finished(job_id, within_s=60)
    assert (job["status"], job["n_scored"], job["n_total"], job["score"]) == ("completed", 8, 8, 1.0)
    trials = {trial["task"]["task_id"]: trial for trial in results(fresh, job_id)}
    assert {trial["trial_id"] for trial in trials.values()} == {trial["trial_id"] for trial in before.values()}
    for name, trial in trials.items():
        assert (trial["status"], trial["reward"]) == ("succeeded", 1.0)
        assert trial["try_no"] == 2 or ("waiting" in name and trial["try_no"] == 1), name
    for name in ("sealed-1", "sealed-2"):
        assert trials[name]["sealed_sha256"] == before[name]["sealed_sha256"] is not None
        assert trials[name]["verifier"]["sealed_sha256"] == before[name]["sealed_sha256"]
    assert job["budget"]["reserved_usd"] == "0"
    assert living(mark) == []


@pytest.mark.requirement("G-ENG-17.emptied")
@pytest.mark.timeout(300)
def test_with_the_engines_tables_emptied_while_stopped_every_job_still_ends(fresh: Running, tmp_path: Path) -> None:
    write_task(tmp_path / "set", "slow", {"solution/solve.sh": f"{SHELL}sleep 1\n"})
    fresh.start()
    fresh.cli("datasets", "push", str(tmp_path / "set"), "--name", "bad/slow", "--version", "1")
    jobs = [submit(fresh, dataset="bad/slow@1", attempts=12), submit(fresh, **MINI, attempts=10)]
    stopping = submit(fresh, dataset="bad/slow@1", attempts=50)
    while counts(fresh, jobs[0])["running"] == 0:
        time.sleep(0.05)
    with fresh.http() as http:
        http.post(f"/v1/job/{stopping}/stop")
    fresh.kill()
    asyncio.run(_emptied(fresh.data_dir))
    fresh.start()
    ends = [fresh.finished(job_id, within_s=90) for job_id in jobs]
    assert [(job["status"], job["n_scored"], job["score"]) for job in ends] == [
        ("completed", 12, 1.0),
        ("completed", 60, 1.0),
    ]
    assert fresh.finished(stopping, within_s=60)["status"] == "cancelled"


async def _emptied(data_dir: Path) -> None:
    """Deletes every row of the engine's schema in a stopped server's database."""
    database = await EmbeddedServer.start(data_dir)
    try:
        with psycopg.connect(_plain(database.url), autocommit=True) as connection:
            found = connection.execute(
                "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables"
                " WHERE schemaname = 'dbos' AND tablename NOT LIKE '%migration%'"
            ).fetchone()
            assert found is not None
            connection.execute(f"TRUNCATE {found[0]}")
    finally:
        await database.stop()


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def outside(database_url: str, tmp_path: Path) -> Iterator[Running]:
    """A server on a database that outlives it, and in which a commit may be made to wait."""
    with psycopg.connect(_plain(database_url), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET synchronous_commit = on")
    running = Running(tmp_path / "data", environment={"TOLLBAR_DATABASE_URL": database_url}).start()
    yield running
    if running.process is not None and running.process.poll() is None:
        running.stop()


@pytest.mark.requirement("G-ENG-17.lost_answer", "G-HTTP-16.5")
@pytest.mark.timeout(300)
def test_a_kill_between_commit_and_answer_and_the_same_request_again_give_one_job(
    outside: Running, database_url: str
) -> None:
    """The commit is made to wait for a standby that never comes: it is durable, and nobody is told of it."""
    wanted = {**MINI, "request_id": "lost"}
    with psycopg.connect(_plain(database_url), autocommit=True) as other, outside.http() as http:
        assert http.get("/v1/me").status_code == 200, "the key's last use is written, so that only the Job waits"
        _standby(other, "nobody")
        try:
            with pytest.raises(httpx2.TimeoutException):
                http.post("/v1/job", json=wanted, timeout=2)
            outside.kill()
        finally:
            _standby(other, "")
        deadline = time.monotonic() + 5
        while len(rows := other.execute("SELECT id FROM job WHERE request_id = 'lost'").fetchall()) == 0:
            assert time.monotonic() < deadline, "it was not committed"
        outside.start()
        again = [submit(outside, **wanted) for _ in range(2)]
        assert again == [rows[0][0]] * 2
        assert outside.finished(again[0])["n_scored"] == 6
        assert other.execute("SELECT count(*) FROM job").fetchone() == (1,)


def _standby(connection: psycopg.Connection, name: str) -> None:
    connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    connection.execute("SELECT pg_reload_conf()")


@pytest.mark.requirement("G-HTTP-16.5")
async def test_of_fifty_equal_submissions_at_once_over_both_interfaces_one_is_new(server: Running) -> None:
    wanted = {**MINI, "request_id": "fifty"}

    def over_http() -> tuple[int, str]:
        with server.http() as http:
            answer = http.post("/v1/job", json=wanted)
            return answer.status_code, answer.json()["job_id"]

    async def over_mcp() -> tuple[int, str]:
        return 0, (await call(server, "envloop_job_submit", **wanted))["job_id"]

    found = await asyncio.gather(*(asyncio.to_thread(over_http) if n % 2 else over_mcp() for n in range(50)))
    assert len({job_id for _, job_id in found}) == 1
    statuses = [status for status, _ in found if status]
    assert (set(statuses) <= {200, 202}, statuses.count(202) <= 1, len(statuses)) == (True, True, 25)
    with server.http() as http:
        for name, value in (("attempts", 2), ("max_cost_usd", 6), ("params", {"x": 1})):
            answer = http.post("/v1/job", json={**wanted, name: value})
            assert (answer.status_code, answer.json()["code"]) == (409, "JOB_REQUEST_CONFLICT")
            assert answer.json()["differs"] == [name]
        jobs = [job for job in http.get("/v1/job?limit=100").json()["items"] if job["request_id"] == "fifty"]
    assert len(jobs) == 1
