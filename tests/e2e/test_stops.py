"""Stops: by a person, by the cap, by SIGTERM. What runs ends at once with all its processes; nothing starts later."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.e2e.machine import HIDING, gone_within, living, new_mark
from tests.e2e.tasks import results, toml, write_task

SHELL = "#!/bin/sh\n"


def pushed(server: Running, root: Path, name: str) -> str:
    server.cli("datasets", "push", str(root), "--name", name, "--version", "1")
    return f"{name}@1"


def submit(server: Running, **body: Any) -> str:
    with server.http() as http:
        answer = http.post("/v1/job", json={"max_cost_usd": 1, **body})
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]


def status_of(server: Running, job_id: str) -> dict[str, Any]:
    with server.http() as http:
        return http.get(f"/v1/job/{job_id}").json()


def until(server: Running, job_id: str, state: str, count: int, within_s: float = 30) -> dict[str, Any]:
    """Returns the Job as soon as that many of its Trials are in that state."""
    deadline = time.monotonic() + within_s
    while (job := status_of(server, job_id))["trial_counts"][state] < count:
        assert time.monotonic() < deadline, (job["trial_counts"], server.log())
        time.sleep(0.05)
    return job


def listed(server: Running, job_id: str) -> list[dict[str, Any]]:
    """Returns every Trial of a Job as the list shows it."""
    found: list[dict[str, Any]] = []
    query = {"job_id": job_id, "limit": "100"}
    with server.http() as http:
        while True:
            page = http.get("/v1/trials", params=query).json()
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]


@pytest.mark.requirement("EV-STOP-running", "G-ENG-17.stop_thousand", "G-ENG-17.cancel_tree")
@pytest.mark.timeout(300)
def test_a_stop_ends_eight_running_trials_with_all_their_processes_and_a_thousand_waiting_ones_never_start(
    fresh: Running, tmp_path: Path
) -> None:
    mark = new_mark()
    for number in range(11):
        script = f"{SHELL}{HIDING.format(mark=mark)}sleep {mark}\n"
        write_task(tmp_path / "set", f"t{number}", {"solution/solve.sh": script, "task.toml": toml(agent_s=600)})
    fresh.environment["TOLLBAR_SLOTS"] = "8"
    fresh.start()
    job_id = submit(fresh, dataset=pushed(fresh, tmp_path / "set", "bad/endless"), attempts=92)
    until(fresh, job_id, "running", 8)
    while len(living(mark)) < 8 * 5:
        time.sleep(0.05)
    stopped = time.monotonic()
    with fresh.http() as http:
        answer = http.post(f"/v1/job/{job_id}/stop").json()
    assert answer["trial_counts"]["pending"] == 0, "what waits is cancelled at once"
    assert answer["trial_counts"]["cancelled"] >= 1004
    assert gone_within(mark, 5 - (time.monotonic() - stopped))
    job = fresh.finished(job_id, within_s=10)
    assert time.monotonic() - stopped < 10
    assert (job["status"], job["error"], job["trial_counts"]["cancelled"]) == ("cancelled", None, 11 * 92)
    trials = listed(fresh, job_id)
    begun = [trial for trial in trials if trial["started_at"] is not None]
    assert len(begun) == 8
    assert (len(trials), {trial["reason"] for trial in trials}) == (11 * 92, {"CANCELLED"})
    assert living(mark) == []
    assert [trial["try_no"] for trial in begun] == [1] * 8


@pytest.mark.requirement("EV-CAP-no_new", "EV-CAP-cancels", "EV-CAP-exceeded", "G-EVAL-18.26")
@pytest.mark.timeout(300)
def test_at_the_cap_running_trials_are_cancelled_waiting_ones_never_start_and_scored_ones_stay(
    fresh: Running, tmp_path: Path
) -> None:
    """A slice for `d-wide` (4 CPUs, 11 s) never fits beside what `a-long` has used and the short ones have cost."""
    mark = new_mark()
    memory = "memory_mb = 256\ncpus = "
    long = {"solution/solve.sh": f"{SHELL}echo begun\nsleep {mark}\n"}
    write_task(tmp_path / "set", "a-long", {**long, "task.toml": toml(agent_s=20, environment=f"{memory}1")})
    for name in ("b-short", "c-short"):
        write_task(tmp_path / "set", name, {"task.toml": toml(agent_s=1, verifier_s=1, environment=f"{memory}1")})
    write_task(tmp_path / "set", "d-wide", {"task.toml": toml(agent_s=6, environment=f"{memory}4")})
    for number in range(6):
        write_task(tmp_path / "set", f"e-{number}", {"task.toml": toml(agent_s=6, environment=f"{memory}4")})
    fresh.environment["TOLLBAR_SLOTS"] = "3"
    fresh.start()
    dataset = pushed(fresh, tmp_path / "set", "bad/capped")
    job_id = submit(fresh, dataset=dataset, runner="envhub/metered@main", max_cost_usd="0.5")
    job = fresh.finished(job_id, within_s=30)
    assert (job["status"], job["error"]["code"], job["budget"]["state"]) == (
        "cancelled",
        "BUDGET_EXCEEDED",
        "exceeded",
    )
    assert gone_within(mark, 5)
    trials = {trial["task"]["task_id"]: trial for trial in results(fresh, job_id)}
    assert {trials[name]["reward"] for name in ("b-short", "c-short")} == {1.0}
    assert (job["score"], job["n_scored"], job["n_total"]) == (1.0, 2, 10)
    for name in set(trials) - {"b-short", "c-short"}:
        trial = trials[name]
        assert (trial["status"], trial["reward"], trial["reason"]) == ("cancelled", None, "BUDGET_EXCEEDED"), name
    assert trials["a-long"]["started_at"] is not None
    assert Decimal(trials["a-long"]["cost"]["total_usd"]) > 0, "what ran is paid"
    assert all(trials[f"e-{number}"]["cost"]["total_usd"] == "0" for number in range(6))
    assert Decimal(job["budget"]["spent_usd"]) <= Decimal("0.5")
    logs = [item["name"] for item in trials["a-long"]["artifacts"]["items"] if item["kind"] == "log"]
    assert logs == ["agent/oracle.txt"], "the log of what was cancelled is kept"


@pytest.mark.requirement("G-ENG-17.sigterm")
@pytest.mark.timeout(300)
def test_sigterm_four_times_in_a_row_loses_nothing_and_the_last_start_finishes(fresh: Running, tmp_path: Path) -> None:
    mark = new_mark()
    for number in range(8):
        script = f"{SHELL}(trap '' TERM; setsid sleep {mark} &)\nsleep 4\n"
        write_task(tmp_path / "set", f"t{number}", {"solution/solve.sh": script})
    fresh.start()
    job_id = submit(fresh, dataset=pushed(fresh, tmp_path / "set", "bad/slow"), request_id="handed back")
    for _ in range(4):
        until(fresh, job_id, "running", 4)
        while not living(mark):
            time.sleep(0.02)
        started = time.monotonic()
        assert fresh.stop() == 0
        assert time.monotonic() - started < 10
        assert living(mark) == []
        fresh.start()
    job = fresh.finished(job_id, within_s=60)
    assert (job["status"], job["n_scored"], job["score"]) == ("completed", 8, 1.0)
    trials = results(fresh, job_id)
    assert {trial["reason"] for trial in trials} == {None}, "a hand-back is no loss"
    assert max(trial["try_no"] for trial in trials) == 5
