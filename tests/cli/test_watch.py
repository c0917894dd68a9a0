"""Waiting for a Job: each change once, the exit code of the Job, and leaving stops nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from tests.cli import examples
from tests.cli.conftest import LIMIT_S, Ended
from tests.cli.standin import Answer, Asked, StandIn

ROUTE = f"GET /v1/job/{examples.JOB_ID}"
WATCH = ("jobs", "watch", examples.JOB_ID)


def test_each_change_is_one_line_on_stderr_and_the_job_is_the_data(
    tollbar: Callable[..., Ended], signed_in: StandIn
) -> None:
    running = examples.job()
    signed_in.on(ROUTE, running, running, examples.job(phase="scoring"), examples.completed())
    ended = tollbar(*WATCH)
    assert ended.code == 0
    lines = ended.err.splitlines()
    assert [line.split(",")[0].split(" ", 1)[1] for line in lines] == ["running", "running (scoring)", "completed"]
    assert all("scored)" in line and "0.18 of 5.00 USD" in line for line in lines)
    assert "status\tcompleted" in ended.out
    assert tollbar(*WATCH, "--quiet").err == ""


def test_with_json_each_change_is_a_line_and_the_last_one_is_the_job(
    tollbar: Callable[..., Ended], signed_in: StandIn
) -> None:
    signed_in.on(ROUTE, examples.job(), examples.job(phase="scoring"), examples.completed())
    ended = tollbar(*WATCH, "--json")
    *changes, last = ended.lines
    assert last == examples.completed()
    assert [(line["type"], line["phase"]) for line in changes] == [
        ("job", "running"),
        ("job", "scoring"),
        ("job", "done"),
    ]
    for line in changes:
        assert line["at"].endswith("Z")
        assert {"score", "intervals", "n_scored", "n_total"} <= set(line)


def test_a_submission_can_wait(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on("POST /v1/job", Answer(202, examples.job()))
    signed_in.on(ROUTE, examples.completed())
    line = ("jobs", "submit", "demo/mini@1", "--max-cost", "1", "--watch")
    assert tollbar(*line).code == 0
    ended = tollbar(*line, "--fail-under", "0.6", "--min-coverage", "0.9", "--json")
    assert ended.code == 6
    assert ended.lines[-1] == examples.completed()
    assert "BELOW_FAIL_UNDER" in ended.err


@pytest.mark.parametrize(
    ("job", "options", "code"),
    [
        (examples.completed(), [], 0),
        (examples.completed(), ["--fail-under", "0.5", "--min-coverage", "0.9"], 0),
        (examples.completed(), ["--fail-under", "0.51", "--min-coverage", "0.9"], 6),
        (examples.completed(), ["--fail-under", "0.1"], 1),
        (examples.completed(), ["--min-coverage", "0.95"], 1),
        (examples.completed(), ["--min-coverage", "0.9"], 0),
        ({**examples.completed(), "n_scored": 12}, ["--fail-under", "0.5"], 0),
        ({**examples.completed(), "n_scored": 12}, ["--fail-under", "0.500001"], 6),
        (examples.capped(), ["--fail-under", "0.1"], 7),
        (examples.failed(), ["--fail-under", "0.1"], 1),
        (examples.stopped(), [], 1),
    ],
)
def test_the_exit_code_is_that_of_the_job_and_of_the_bar(
    tollbar: Callable[..., Ended], signed_in: StandIn, job: dict[str, object], options: list[str], code: int
) -> None:
    signed_in.on(ROUTE, job)
    signed_in.on(f"{ROUTE}/result", examples.result(job))
    assert tollbar(*WATCH, *options).code == code
    assert tollbar("jobs", "result", examples.JOB_ID, *options).code == code
    as_json = tollbar("jobs", "result", examples.JOB_ID, *options, "--json")
    assert (as_json.code, as_json.json) == (code, examples.result(job)), "one document, whatever the verdict"


def test_too_little_coverage_says_why(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on(f"{ROUTE}/result", examples.result())
    ended = tollbar("jobs", "result", examples.JOB_ID, "--fail-under", "0.1")
    assert "11 of 12" in ended.err
    assert "1 x VERIFIER_TIMEOUT" in ended.err


@pytest.mark.parametrize(
    ("job", "lines"),
    [
        (examples.capped(), ["by its cap (BUDGET_EXCEEDED)", "cap 5.00 USD, spent 0.18 USD, reserved 0.62 USD"]),
        (examples.failed(), ["the Job failed (NO_TRIAL_SCORED)", "No Trial has a reward."]),
        (examples.stopped(), ["the Job was stopped (CANCELLED)"]),
    ],
)
def test_a_job_that_did_not_complete_is_told_as_an_error(
    tollbar: Callable[..., Ended], signed_in: StandIn, job: dict[str, object], lines: list[str]
) -> None:
    signed_in.on(ROUTE, job)
    ended = tollbar(*WATCH)
    assert all(line in ended.err for line in lines)
    assert ended.err.splitlines()[-1] == f"  see its Trials: tollbar jobs result {examples.JOB_ID}"
    assert tollbar(*WATCH, "--json").lines[-1] == job


def test_a_job_that_runs_is_not_judged(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on(f"{ROUTE}/result", examples.result(examples.job()))
    assert tollbar("jobs", "result", examples.JOB_ID).code == 0
    ended = tollbar("jobs", "result", examples.JOB_ID, "--fail-under", "0.1")
    assert ended.code == 1
    assert f"tollbar jobs watch {examples.JOB_ID} --fail-under 0.1" in ended.err


def test_all_trials_of_a_result_are_one_document(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    first, second = examples.result(), examples.result()
    first["trials"]["next_cursor"] = "c1"
    signed_in.on(f"{ROUTE}/result", first, first, second)
    ended = tollbar("jobs", "result", examples.JOB_ID, "--all", "--json")
    assert len(ended.json["trials"]["items"]) == 4
    assert ended.json["trials"]["next_cursor"] is None
    assert ended.json["score"] == 0.5


def test_a_server_that_stays_away_ends_the_watch_and_says_how_to_come_back(
    tollbar: Callable[..., Ended], signed_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Answer(503, {"code": "SERVICE_UNAVAILABLE", "message": "Stopping."}, {"Retry-After": "0"})
    signed_in.on(ROUTE, examples.job(), gone)
    ended = tollbar(*WATCH)
    assert ended.code == 1
    assert "asking again in" in ended.err
    assert "goes on" in ended.err
    assert f"tollbar jobs watch {examples.JOB_ID}" in ended.err


def test_ctrl_c_detaches_and_stops_nothing(signed_in: StandIn) -> None:
    asked = threading.Event()
    signed_in.on(ROUTE, examples.job(poll_after_s=30))
    answer = signed_in.answer

    def watched(request: Asked) -> Answer:
        asked.set()
        return answer(request)

    signed_in.answer = watched
    command = [sys.executable, "-m", "tollbar", *WATCH, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert asked.wait(LIMIT_S)
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert first["status"] == "running"
    assert out == ""
    assert f"{examples.JOB_ID} goes on" in err
    assert f"tollbar jobs stop {examples.JOB_ID}" in err
    assert "Traceback" not in err
    assert {one.method for one in signed_in.asked} == {"GET"}


def test_a_stop_is_sent_once_and_shows_the_job(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    route = f"POST /v1/job/{examples.JOB_ID}/stop"
    signed_in.on(route, examples.job(status="stopping", phase="stopping"))
    ended = tollbar("jobs", "stop", examples.JOB_ID)
    assert ended.code == 0
    assert "status\tstopping" in ended.out
    assert len(signed_in.to(route)) == 1
