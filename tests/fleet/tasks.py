"""Datasets and Jobs of the tests of several machines, and what must hold of every Job afterwards."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Running
from tests.e2e.tasks import results, write_task
from tests.fleet.processes import Fleet

SHELL = "#!/bin/sh\n"


def push(server: Running, root: Path, name: str, **solutions: str) -> str:
    """Publishes a dataset of one task for each solution (a shell script) and returns its reference."""
    for task, script in solutions.items():
        write_task(root / name, task, {"solution/solve.sh": f"{SHELL}{script}\n"})
    server.cli("datasets", "push", str(root / name), "--name", f"bad/{name}", "--version", "1")
    return f"bad/{name}@1"


def submit(server: Running, dataset: str, **body: Any) -> str:
    """Submits a Job on the runner that costs, so that lost money would show."""
    asked = {"dataset": dataset, "runner": "envhub/metered@main", "max_cost_usd": 500, **body}
    with server.http() as http:
        answer = http.post("/v1/job", json=asked)
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]


def states(fleet: Fleet, job_id: str, owner: str | None = None) -> list[str]:
    """Returns the states of a Job's Trials, or of those that a worker has."""
    return [
        row[0]
        for row in fleet.rows(
            "SELECT state FROM trial WHERE job_id = %s AND (%s::text IS NULL OR owner = %s)", job_id, owner, owner
        )
    ]


def check_whole(fleet: Fleet, server: Running, job_id: str, total: int) -> list[dict[str, Any]]:
    """Asserts that every Trial ended once with its reward and that no money is left over; returns the results."""
    job = server.finished(job_id, within_s=90)
    assert (job["status"], job["score"], job["n_scored"], job["n_total"]) == ("completed", 1.0, total, total)
    trials = results(server, job_id)
    assert len({trial["trial_id"] for trial in trials}) == len(trials) == total
    assert len({(trial["task"]["task_id"], trial["attempt"]) for trial in trials}) == total
    # The sums that a status reads count each Trial once.
    assert fleet.rows("SELECT sum(n_succeeded), sum(reward_sum) FROM job_task WHERE job_id = %s", job_id) == [
        (total, float(total))
    ]
    assert job["budget"]["reserved_usd"] == "0"
    assert sum(Decimal(trial["cost"]["total_usd"]) for trial in trials) == Decimal(job["budget"]["spent_usd"])
    assert fleet.rows("SELECT count(*) FROM trial WHERE state NOT IN ('succeeded', 'failed', 'cancelled')") == [(0,)]
    return trials
