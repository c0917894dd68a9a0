"""Where `CI` is set a skip is a failure that says why; elsewhere it stays a skip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.source import ROOT

_SUITE = """
import pytest

def test_that_runs():
    pass

@pytest.mark.skipif(True, reason="no moon")
def test_that_is_marked():
    pass

def test_that_gives_up():
    pytest.skip("no wind")

@pytest.mark.xfail(reason="known", strict=True)
def test_that_is_expected_to_fail():
    assert 1 == 2
"""


def _run(folder: Path, suite: str, ci: str) -> tuple[int, str]:
    (folder / "test_planted.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "tests.plugins.strict_skips", str(folder)],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_skips_fail_where_ci_is_set_and_say_why(tmp_path: Path) -> None:
    code, printed = _run(tmp_path, _SUITE, "true")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in printed, "a skip by mark is refused before the test runs"
    assert "skipped where CI is set: no moon" in printed
    assert "skipped where CI is set: no wind" in printed


def test_skips_stay_skips_elsewhere(tmp_path: Path) -> None:
    code, printed = _run(tmp_path, _SUITE, "")
    assert code == pytest.ExitCode.OK
    assert "1 passed, 2 skipped, 1 xfailed" in printed
    assert "no moon" in printed


def test_a_file_that_skips_itself_is_an_error_where_ci_is_set(tmp_path: Path) -> None:
    code, printed = _run(tmp_path, "import pytest\npytest.skip('no sea', allow_module_level=True)\n", "1")
    assert code != pytest.ExitCode.OK
    assert "skipped where CI is set: no sea" in printed
