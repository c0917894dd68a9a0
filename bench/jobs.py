"""Jobs as a client sees them: submitted over HTTP, waited for, their Trials counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import httpx2

TASK: Final = "tests/hello-world@1"
MAX_ATTEMPTS: Final = 100
_POLL_S: Final = 0.5
"""A client's pause; ends are read from the server's own times, so it costs no precision."""
_PATIENCE_S: Final = 300.0


class JobWrong(Exception):
    """A Job did not end as this task must: the figures would be of something else."""


@dataclass(frozen=True)
class Done:
    """Finished Jobs; `wall_s` runs from the first submission to the last Trial's end."""

    jobs: tuple[dict[str, Any], ...]
    wall_s: float


def submit(http: httpx2.Client, agent: str, attempts: int, dataset: str = TASK) -> dict[str, Any]:
    """Submits one Job of that many attempts and returns it as the server answers."""
    body = {"type": "agent", "dataset": dataset, "attempts": attempts, "profile_name": f"tollbar/{agent}"}
    answer = http.post("/v1/job", json=body)
    if answer.status_code != httpx2.codes.ACCEPTED:
        raise JobWrong(answer.text)
    return answer.json()


def status(http: httpx2.Client, job_id: str) -> dict[str, Any]:
    """Returns a Job as it stands."""
    answer = http.get(f"/v1/job/{job_id}")
    answer.raise_for_status()
    return answer.json()


def run(http: httpx2.Client, agent: str, k: int, dataset: str = TASK) -> Done:
    """Runs `k` attempts at a task of one dataset, in Jobs of at most 100, and returns when the last one has ended."""
    parts = [min(MAX_ATTEMPTS, k - start) for start in range(0, k, MAX_ATTEMPTS)]
    return wait(http, [submit(http, agent, attempts, dataset)["job_id"] for attempts in parts], agent)


def wait(http: httpx2.Client, ids: Sequence[str], agent: str, *, poll_s: float = _POLL_S) -> Done:
    """Waits for Jobs of one agent. Raises `JobWrong` unless every Trial has the reward that this agent earns."""
    jobs = tuple(_ended(http, job_id, poll_s) for job_id in ids)
    for job in jobs:
        counts = job["trial_counts"]
        if counts["succeeded"] != counts["total"] or job["score"] != (1.0 if agent == "oracle" else 0.0):
            raise JobWrong(f"{job['job_id']}: {counts}, score {job['score']}, {job['error']}")
    first = min(_moment(job["created_at"]) for job in jobs)
    last = max(_moment(job["finished_at"]) for job in jobs)
    return Done(jobs, (last - first).total_seconds())


def forms(http: httpx2.Client, job_id: str) -> str:
    """Returns in which forms the sandboxes of a Job's Trials were held, by one of them."""
    listed = http.get("/v1/trials", params={"job_id": job_id, "limit": 1}).json()["items"]
    answer = http.get(f"/v1/trials/{listed[0]['trial_id']}/result")
    answer.raise_for_status()
    return "+".join(sorted(set(answer.json()["sandbox_forms"].values())))


def _ended(http: httpx2.Client, job_id: str, poll_s: float) -> dict[str, Any]:
    deadline = time.perf_counter() + _PATIENCE_S
    while True:
        job = status(http, job_id)
        if job["final"]:
            return job
        if time.perf_counter() > deadline:
            raise JobWrong(f"{job_id} has not ended after {_PATIENCE_S:g} s: {job['trial_counts']}")
        time.sleep(poll_s)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
