"""On a terminal, in a pipe, in CI: what is drawn where."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli import examples
from tests.cli.conftest import LIMIT_S
from tests.cli.standin import Answer, StandIn

ESC = "\x1b"
COMMAND = [sys.executable, "-m", "tollbar"]


def on_terminal(*argv: str, columns: int = 100, **environ: str) -> tuple[int, str]:
    """Runs a command on a pseudo-terminal of its own; returns exit code and everything that it shows."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environ}
    shown = b""
    with subprocess.Popen([*COMMAND, *argv], stdin=follower, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        try:
            while select.select([leader], [], [], LIMIT_S)[0]:
                try:
                    part = os.read(leader, 65536)
                except OSError:
                    break  # the last process that held the terminal has gone
                if not part:
                    break
                shown += part
        finally:
            os.close(leader)
            if process.poll() is None:
                process.wait(timeout=LIMIT_S)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_a_terminal_gets_a_table_with_titles_and_ages(signed_in: StandIn) -> None:
    signed_in.on("GET /v1/job", examples.page(examples.job()))
    code, shown = on_terminal("jobs", "list", columns=200)
    assert code == 0
    assert f"{ESC}[1mJOB " in shown
    assert " ago" in shown
    assert on_terminal("jobs", "list", NO_COLOR="1", TERM="dumb")[1].count(ESC) == 0


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_a_table_is_cut_to_the_width_and_ids_never(signed_in: StandIn, columns: int) -> None:
    signed_in.on("GET /v1/job", examples.page(examples.job(name="a very long name " * 9)))
    _, shown = on_terminal("jobs", "list", columns=columns, NO_COLOR="1", TERM="dumb")
    row = next(line for line in shown.splitlines() if line.startswith("job_"))
    assert row.split()[0] == examples.JOB_ID
    assert len(row) <= max(columns, len(examples.JOB_ID))
    if columns < 120:
        assert "--output plain" in shown


def test_a_terminal_shows_hostile_text_escaped(signed_in: StandIn) -> None:
    hostile = f"{ESC}]0;owned\x07{ESC}[2J\u202e"
    signed_in.on(f"GET /v1/trials/{examples.TRIAL_ID}/result", examples.trial_result(structured_result={
        "dimensions": {hostile: 1.0}, "composite": 1.0, "details": {"judge": hostile},
    }))  # fmt: skip
    for form in ([], ["--json"]):
        code, shown = on_terminal("trials", "show", examples.TRIAL_ID, *form)
        assert code == 0
        assert not {ESC, "\x07", "\u202e"} & set(shown)
        assert "owned" in shown


def test_progress_is_rewritten_in_place_on_a_terminal_and_a_line_each_in_ci(signed_in: StandIn) -> None:
    route = f"GET /v1/job/{examples.JOB_ID}"
    answers = (examples.job(), examples.job(phase="scoring"), examples.completed())
    signed_in.on(route, *answers)
    _, shown = on_terminal("jobs", "watch", examples.JOB_ID)
    assert shown.count(f"\r{ESC}[K") == 3
    for environ in ({"CI": "true"}, {"TERM": "dumb"}):
        signed_in.on(route, *answers)
        code, shown = on_terminal("jobs", "watch", examples.JOB_ID, **environ)
        assert code == 0
        assert ESC not in shown
        assert len(re.findall(rf"^{examples.JOB_ID} ", shown, re.MULTILINE)) == 3


def test_raw_bytes_are_not_written_to_a_terminal_without_force(signed_in: StandIn) -> None:
    artifact = examples.artifact()
    route = f"GET /v1/trials/{examples.TRIAL_ID}/artifacts"
    signed_in.on(route, examples.artifacts())
    signed_in.on(f"{route}/{artifact['artifact_id']}/content", Answer(200, examples.LOG))
    line = ("artifacts", "get", examples.TRIAL_ID, artifact["artifact_id"], "-o", "-")
    code, shown = on_terminal(*line)
    assert code == 2
    assert "--force" in shown
    assert on_terminal(*line, "--force") == (0, examples.LOG.decode())


def test_json_on_a_terminal_is_still_one_document(signed_in: StandIn) -> None:
    signed_in.on("GET /v1/me", examples.me())
    code, shown = on_terminal("whoami", "--json")
    assert code == 0
    assert shown.startswith("{\n  ")
    assert ESC not in shown


def test_a_reader_that_goes_away_ends_the_command_quietly_by_the_signal(signed_in: StandIn) -> None:
    many = [examples.job(job_id=f"job_{number}") for number in range(2000)]
    signed_in.on("GET /v1/job", examples.page(*many))
    with subprocess.Popen([*COMMAND, "jobs", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"job_"
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(timeout=LIMIT_S) == -13
    assert errors == b""


@pytest.mark.parametrize("argv", [["jobs", "list"], ["jobs", "list", "--json"], ["jobs", "show", "job_none", "--json"]])
def test_stdout_is_data_in_any_surroundings(signed_in: StandIn, home: Path, argv: list[str]) -> None:
    signed_in.on("GET /v1/job", examples.page(examples.job(tag="grün")))
    for environ in ({}, {"CI": "1"}, {"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}):
        env = {**os.environ, **environ}
        done = subprocess.run([*COMMAND, *argv], capture_output=True, env=env, timeout=LIMIT_S, check=False)
        assert done.stdout
        assert b"Traceback" not in done.stderr
        assert b"\x1b" not in done.stdout
