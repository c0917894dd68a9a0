"""`tollbar limits set` as whoever owns the data directory uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def tollbar(database_url: str, tmp_path: Path):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tollbar", "limits", *words],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TOLLBAR_DATABASE_URL": database_url}
            | {"TOLLBAR_DATA_DIR": str(tmp_path / "data")},
        )

    return run


def test_limits_are_set_one_by_one_and_taken_away(tollbar):
    first = tollbar("set", "--per-day", "20")
    assert (first.returncode, first.stdout) == (0, "daily cap: 20 USD\ndefault job cap: no limit\n"), first.stderr
    second = tollbar("set", "--default-cap", "0.50", "--json")
    assert json.loads(second.stdout) == {"daily_cap_usd": "20", "default_job_cap_usd": "0.5"}
    last = tollbar("set", "--per-day", "none", "--json")
    assert json.loads(last.stdout) == {"daily_cap_usd": None, "default_job_cap_usd": "0.5"}


@pytest.mark.parametrize("words", [("--per-day", "much"), ("--per-day", "-1"), ("--default-cap", "0"), ()])
def test_what_is_no_amount_is_refused(tollbar, words):
    refused = tollbar("set", *words, "--json")
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["code"] in {"INVALID_AMOUNT", "INVALID_REQUEST"}


def test_the_noun_shows_both_of_its_verbs(tollbar):
    said = tollbar("--help").stdout
    assert "show" in said
    assert "set" in said
