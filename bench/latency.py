"""How long a client waits for a submission and for a status over HTTP, while the server rests and while it works."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import httpx2

from bench import jobs, machine
from bench.figures import Figures
from bench.server import Server

_PERCENTILES: Final = {"p50": 50, "p95": 95}
PAUSE_S: Final = 0.02
"""Between two requests beside a running Job: a client that asks without pause would be what is measured."""
_SHORT_S: Final = 0.1
_ATTEMPTS_A_REQUEST: Final = 3
"""So that the Jobs beside which is asked outlast the questions."""


def round_of(figures: Figures, running: Server, *, requests: int) -> None:
    """Takes one round of both states, that many requests of each kind, half as many idle submissions."""
    http = running.http
    finished = jobs.run(http, "oracle", 1).jobs[0]["job_id"]
    _status_cpu(figures, running, finished, requests)
    note(figures, "status", "idle", times(lambda: jobs.status(http, finished), requests))
    submitted: list[str] = []
    note(figures, "submit", "idle", [_idle_submit(http) for _ in range(requests // 2)])
    attempts = min(jobs.MAX_ATTEMPTS, _ATTEMPTS_A_REQUEST * requests)
    busy = [jobs.submit(http, "oracle", attempts)["job_id"] for _ in range(2)]
    note(figures, "status", "busy", times(lambda: jobs.status(http, busy[0]), requests, PAUSE_S))
    note(
        figures,
        "submit",
        "busy",
        times(lambda: submitted.append(jobs.submit(http, "oracle", 1)["job_id"]), requests, PAUSE_S),
    )
    jobs.wait(http, [*busy, *submitted], "oracle")


def _idle_submit(http: httpx2.Client) -> float:
    """Returns the seconds of one submission to a server at rest, which rests again afterwards."""
    started = time.perf_counter()
    job_id = jobs.submit(http, "oracle", 1)["job_id"]
    passed_s = time.perf_counter() - started
    jobs.wait(http, [job_id], "oracle", poll_s=_SHORT_S)
    return passed_s


def _status_cpu(figures: Figures, running: Server, job_id: str, requests: int) -> None:
    before = machine.tree_cpu(running.pid)
    for _ in range(requests):
        jobs.status(running.http, job_id)
    used = machine.tree_cpu(running.pid) - before
    figures.add("tollbar", "CPU a status request", "ms", used.total_s / requests * 1000)


def times(call: Callable[[], object], count: int, pause_s: float = 0.0) -> list[float]:
    """Returns the seconds of each of so many calls, with a pause after each."""
    found: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
        time.sleep(pause_s)
    return found


def note(figures: Figures, request: str, state: str, seconds: list[float]) -> None:
    """Notes the percentiles of one kind of request."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    for name, percent in _PERCENTILES.items():
        figures.add("tollbar", "latency", "ms", cuts[percent - 1] * 1000, request=request, server=state, at=name)
