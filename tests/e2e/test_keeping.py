"""The sandbox of a Trial that did not pass is kept when its Job asks for it, and a person looks into it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.e2e.test_stops import listed, status_of, submit, until


def finished(server: Running, profile: str, keep_s: int, *, kept: bool) -> dict[str, Any]:
    """Runs the one task of a small dataset and returns its Trial, once its sandbox is kept if it will be."""
    job_id = submit(server, dataset="tests/hello-world@1", profile_name=profile, execution={"keep_failed_sec": keep_s})
    until(server, job_id, "succeeded", 1)
    assert status_of(server, job_id)["final"]
    [trial] = listed(server, job_id)
    deadline = time.monotonic() + 20
    with server.http() as http:
        # The result stands first; what becomes of the sandbox is decided behind it.
        while (found := http.get(f"/v1/trials/{trial['trial_id']}/result").json())["kept"] is None and kept:
            assert time.monotonic() < deadline, server.log()
            time.sleep(0.05)
    return found


def shell(server: Running, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tollbar", "trials", "shell", *words, "--data-dir", str(server.data_dir)],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "TERM": "dumb"},
    )


def test_a_failed_trials_sandbox_is_entered_and_what_a_person_does_there_stays(server: Running) -> None:
    trial = finished(server, "tollbar/nop", 3600, kept=True)
    trial_id = trial["trial_id"]
    assert (trial["pass"], trial["kept"]["host"]) == (False, os.uname().nodename)

    first = shell(server, trial_id, typed="pwd; echo mine > note; exit 3\n")
    second = shell(server, trial_id, typed="cat note; exit\n")

    assert first.returncode == 3, first.stderr
    assert "/app" in first.stdout
    assert "mine\n" in second.stdout.replace("\r", "")
    assert trial_id in shell(server).stdout
    with server.http() as http:
        assert http.get(f"/v1/trials/{trial_id}/result").json()["reward"] == trial["reward"]


def test_a_kept_sandbox_outlives_its_server(server: Running) -> None:
    trial = finished(server, "tollbar/nop", 3600, kept=True)
    server.kill()
    server.start()

    again = shell(server, trial["trial_id"], typed="echo still $((40 + 2)) here; exit\n")

    assert "still 42 here" in again.stdout, again.stderr


@pytest.mark.parametrize(("profile", "keep_s"), [("tollbar/oracle", 3600), ("tollbar/nop", 0)])
def test_nothing_is_kept_that_passed_or_that_nobody_asked_for(server: Running, profile: str, keep_s: int) -> None:
    trial = finished(server, profile, keep_s, kept=False)

    refused = shell(server, trial["trial_id"])

    assert trial["kept"] is None
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is not kept" in refused.stderr
    assert trial["trial_id"] not in shell(server).stdout


@pytest.mark.parametrize("keep", [-1, "1h", True, 10**9])
def test_a_time_that_cannot_be_kept_is_refused(server: Running, keep: Any) -> None:
    with server.http() as http:
        answer = http.post(
            "/v1/job",
            json={"dataset": "tests/hello-world@1", "max_cost_usd": 1, "execution": {"keep_failed_sec": keep}},
        )

    assert answer.status_code == 422
    assert "keep_failed_sec" in answer.text
