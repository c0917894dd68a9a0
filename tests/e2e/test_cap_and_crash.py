"""Money and loss: a cap that is too small, a server that is killed, a Job that is stopped."""

from __future__ import annotations

import os
import subprocess
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Running

OWN_UID = "TOLLBAR_SANDBOX_UID"


def submit(server: Running, **body: Any) -> str:
    with server.http() as http:
        answer = http.post("/v1/job", json={"dataset": "demo/mini@1", "max_cost_usd": 1, **body})
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]


def trials_of(server: Running, job_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor = None
    with server.http() as http:
        while True:
            query = {"trials_limit": 100, **({"trials_cursor": cursor} if cursor else {})}
            page = http.get(f"/v1/job/{job_id}/result", params=query).json()["trials"]
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items


def sandbox_processes(server: Running) -> list[str]:
    """Command lines of everything living that a sandbox of that server would leave on this machine."""
    found = subprocess.run(["ps", "-eo", "uid,stat,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in found.splitlines()[1:]]
    if os.geteuid() == 0:
        return [args for uid, state, args in lines if state[0] != "Z" and uid == server.environment[OWN_UID]]
    return [args for _, state, args in lines if state[0] != "Z" and "bwrap" in args and str(server.data_dir) in args]


def test_a_cap_that_is_too_small_stops_the_job_and_keeps_what_was_scored(server: Running) -> None:
    job_id = submit(server, attempts=100, runner="envhub/metered@main", max_cost_usd=0.8, request_id="capped")
    cap, most, seen = Decimal("0.8"), Decimal(0), 0
    with server.http() as http:
        while True:
            job = http.get(f"/v1/job/{job_id}").json()
            spent = Decimal(job["budget"]["spent_usd"]) + Decimal(job["budget"]["reserved_usd"])
            most, seen = max(most, spent), seen + 1
            assert spent <= cap
            if job["final"]:
                break
    assert (job["status"], job["error"]["code"], job["error"]["scope"]) == ("cancelled", "BUDGET_EXCEEDED", "job")
    assert job["budget"]["state"] == "exceeded"
    assert job["budget"]["stopped_by"] is not None
    assert job["n_scored"] >= 1
    assert job["score"] == 1.0
    trials = trials_of(server, job_id)
    assert len(trials) == 600
    assert {trial["status"] for trial in trials} == {"succeeded", "cancelled"}
    assert {trial["reason"] for trial in trials if trial["status"] == "cancelled"} == {"BUDGET_EXCEEDED"}
    assert sum(trial["reward"] is not None for trial in trials) == job["n_scored"]
    assert seen > 1
    assert most > 0
    after = server.finished(job_id)["budget"]
    assert after["reserved_usd"] == "0"
    cost = sum(Decimal(trial["cost_usd"]) for trial in trials)
    assert cost == Decimal(after["spent_usd"]) <= cap


def test_a_stopped_job_ends_soon_and_nothing_of_it_runs_on(server: Running) -> None:
    job_id = submit(server, attempts=100, request_id="stopped")
    with server.http() as http:
        while http.get(f"/v1/job/{job_id}").json()["n_scored"] == 0:
            time.sleep(0.05)
        assert http.post(f"/v1/job/{job_id}/stop").json()["status"] in {"stopping", "cancelled"}
        job = server.finished(job_id, within_s=15)
        assert (job["status"], job["error"]) == ("cancelled", None)
        counts = job["trial_counts"]
        assert counts["succeeded"] + counts["failed"] + counts["cancelled"] == 600
        assert counts["pending"] == counts["running"] == 0
        assert http.post(f"/v1/job/{job_id}/stop").json() == http.get(f"/v1/job/{job_id}").json()


def test_a_killed_server_loses_nothing_records_nothing_twice_and_leaves_no_process(fresh: Running) -> None:
    # A uid of its own, so that nobody else's sandboxes on this machine count, a second run of these tests included.
    fresh.environment[OWN_UID] = str(40_000 + os.getpid() % 20_000)
    # Sixteen slots claim 48 Trials: so many are in flight when the server dies.
    fresh.environment["TOLLBAR_SLOTS"] = "16"
    fresh.start()
    metered = submit(fresh, attempts=20, runner="envhub/metered@main", max_cost_usd=100, request_id="crash")
    with fresh.http() as http:
        while http.get(f"/v1/job/{metered}").json()["n_scored"] < 10:
            time.sleep(0.02)
    fresh.kill()
    for _ in range(100):
        if not sandbox_processes(fresh):
            break
        time.sleep(0.05)
    assert sandbox_processes(fresh) == []
    fresh.start()
    job = fresh.finished(metered)
    assert (job["status"], job["score"], job["n_scored"]) == ("completed", 1.0, 120)
    trials = trials_of(fresh, metered)
    assert len({trial["trial_id"] for trial in trials}) == 120
    assert len({(trial["task_id"], trial["attempt"]) for trial in trials}) == 120
    assert job["budget"]["reserved_usd"] == "0"
    assert Decimal(job["budget"]["spent_usd"]) <= 100
    assert fresh.stop() == 0
    assert sandbox_processes(fresh) == []


def test_a_server_that_is_told_to_stop_hands_its_work_back(fresh: Running) -> None:
    fresh.start()
    job_id = submit(fresh, attempts=20, request_id="handed-back")
    with fresh.http() as http:
        while http.get(f"/v1/job/{job_id}").json()["n_scored"] < 5:
            time.sleep(0.02)
    started = time.monotonic()
    assert fresh.stop() == 0
    assert time.monotonic() - started < 15
    fresh.start()
    job = fresh.finished(job_id)
    assert (job["status"], job["n_scored"], job["score"]) == ("completed", 120, 1.0)


def test_a_second_start_keeps_the_key_and_adds_nothing(fresh: Running) -> None:
    fresh.start()
    key = fresh.key
    with fresh.http() as http:
        before = http.get("/v1/datasets").json()["items"]
    assert fresh.stop() == 0
    fresh.start()
    assert fresh.key == key
    with fresh.http() as http:
        assert http.get("/v1/datasets").json()["items"] == before


def test_a_second_server_on_the_same_directory_is_told_who_holds_it(fresh: Running, tmp_path: Path) -> None:
    fresh.start()
    other = subprocess.run([*_up(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=False)
    assert other.returncode == 1
    assert "DATA_DIRECTORY_HELD" in other.stdout
    assert str(fresh.process.pid if fresh.process else "") in other.stderr


def _up(data_dir: Path) -> list[str]:
    import sys

    return [sys.executable, "-m", "tollbar", "up", "--json", "--no-demo", "--port", "0", "--data-dir", str(data_dir)]
