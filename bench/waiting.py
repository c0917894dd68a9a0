"""Trials that only wait: what each keeps of the worker's memory, and how fast a status is answered meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench import jobs, latency, machine
from bench.figures import Figures
from bench.server import Server

_OF_ONE_JOB: Final = 64
"""Trials of one Job that run at once."""
_PATIENCE_S: Final = 240.0
_LOOK_S: Final = 0.5
_REST_S: Final = 5.0
_KIB: Final = 1 << 10


def round_of(figures: Figures, running: Server, dataset: str, trials: int, *, requests: int) -> None:
    """Takes one round: so many Trials whose agents sleep, all at once; at its end their Jobs are stopped."""
    before_worker, before_rest = _memory(running)
    parts = [min(_OF_ONE_JOB, trials - start) for start in range(0, trials, _OF_ONE_JOB)]
    ids = [jobs.submit(running.http, "oracle", attempts, dataset)["job_id"] for attempts in parts]
    try:
        _all_run(running, ids, trials)
        worker, rest = _memory(running)
        spent, started = machine.tree_cpu(running.pid), time.perf_counter()
        time.sleep(_REST_S)
        rate = (machine.tree_cpu(running.pid) - spent).total_s / (time.perf_counter() - started)
        answers = latency.times(lambda: jobs.status(running.http, ids[0]), requests, latency.PAUSE_S)
    finally:
        for job_id in ids:
            running.http.post(f"/v1/job/{job_id}/stop").raise_for_status()
        _all_ended(running, ids)
    labels = {"trials": trials}
    figures.add(
        "tollbar", "memory of a waiting Trial", "KiB", (worker - before_worker) / trials, part="worker", **labels
    )
    figures.add(
        "tollbar", "memory of a waiting Trial", "KiB", (rest - before_rest) / trials, part="sandboxes", **labels
    )
    figures.add("tollbar", "CPU while all wait", "ms/s", rate * 1000, **labels)
    latency.note(figures, "status", f"{trials} wait", answers)


def _memory(running: Server) -> tuple[float, float]:
    """Returns resident KiB of the worker's own process, and of what else it started but its database."""
    parts = [process for process in machine.tree(running.pid) if not machine.is_postgres(process)]
    own = sum(process.rss_bytes for process in parts if process.pid == running.pid)
    return own / _KIB, (sum(process.rss_bytes for process in parts) - own) / _KIB


def _all_run(running: Server, ids: Sequence[str], trials: int) -> None:
    deadline = time.perf_counter() + _PATIENCE_S
    while True:
        counts = [jobs.status(running.http, job_id)["trial_counts"] for job_id in ids]
        if sum(count["running"] for count in counts) == trials:
            return
        if time.perf_counter() > deadline or any(count["failed"] or count["succeeded"] for count in counts):
            raise jobs.JobWrong(f"not {trials} Trials wait at once: {counts}")
        time.sleep(_LOOK_S)


def _all_ended(running: Server, ids: Sequence[str]) -> None:
    deadline = time.perf_counter() + _PATIENCE_S
    for job_id in ids:
        while not jobs.status(running.http, job_id)["final"]:
            if time.perf_counter() > deadline:
                raise jobs.JobWrong(f"{job_id} was not stopped within {_PATIENCE_S:g} s")
            time.sleep(_LOOK_S)
