"""How fast a large Job becomes work: a row for each Trial, then admission into the engine's queue."""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg

from bench import jobs
from bench.database import connection
from bench.figures import Figures
from bench.server import Server

DATASET: Final = "demo/mini@1"
TASKS: Final = 6
ATTEMPTS: Final = 100
SLOTS: Final = 24
"""A server admits twice its slots and 16 at once, and 64 of one Job: both are the same number here."""
_LOOK_S: Final = 0.002
_PATIENCE_S: Final = 30.0
_COUNTS: Final = "SELECT count(*), count(*) FILTER (WHERE state <> 'pending') FROM trial WHERE job_id = %s"


def round_of(figures: Figures, running: Server) -> None:
    """Submits 6 tasks with 100 attempts each to a server of `SLOTS`, watches rows and admissions, and stops the Job.

    What the server admits at once is timed; what ran until then is cancelled.
    """
    total = TASKS * ATTEMPTS
    admitted = 2 * SLOTS + 16
    with connection(running) as database:
        started = time.perf_counter()
        job_id = jobs.submit(running.http, "oracle", ATTEMPTS, DATASET)["job_id"]
        answered_s = time.perf_counter() - started
        expanded_s = _when(database, job_id, total, 0, started)
        admitted_s = _when(database, job_id, total, admitted, started)
        running.http.post(f"/v1/job/{job_id}/stop").raise_for_status()
    _ended(running, job_id)
    labels = {"trials": total, "slots": SLOTS}
    figures.add("tollbar", "submission answered", "ms", answered_s * 1000, **labels)
    figures.add("tollbar", "Trials written", "trials/s", total / expanded_s, **labels)
    figures.add("tollbar", "Trials admitted", "trials/s", admitted / max(admitted_s - expanded_s, _LOOK_S), **labels)


def _when(database: psycopg.Connection[Any], job_id: str, rows: int, admitted: int, started: float) -> float:
    """Returns the seconds from the submission until that many rows stand and that many of them are admitted."""
    while time.perf_counter() - started < _PATIENCE_S:
        found = database.execute(_COUNTS, (job_id,)).fetchone()
        if found is not None and found[0] >= rows and found[1] >= admitted:
            return time.perf_counter() - started
        time.sleep(_LOOK_S)
    msg = f"{job_id}: not {rows} rows and {admitted} admitted after {_PATIENCE_S:g} s"
    raise jobs.JobWrong(msg)


def _ended(running: Server, job_id: str) -> None:
    started = time.perf_counter()
    while not jobs.status(running.http, job_id)["final"]:
        if time.perf_counter() - started > _PATIENCE_S:
            msg = f"{job_id} was not stopped within {_PATIENCE_S:g} s"
            raise jobs.JobWrong(msg)
        time.sleep(0.1)
