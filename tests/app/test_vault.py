"""`tollbar vault` as whoever owns the data directory uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

VALUE = "canary-77ab-of-a-provider"


@pytest.fixture
def tollbar(database_url: str, tmp_path: Path):
    def run(*words: str, typed: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tollbar", *words],
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TOLLBAR_DATABASE_URL": database_url}
            | {"TOLLBAR_DATA_DIR": str(tmp_path / "data"), **env},
        )

    return run


def test_a_secret_is_written_listed_by_name_and_removed(tollbar):
    written = tollbar("vault", "set", "OPENAI_API_KEY", "--host", "api.openai.com", typed=f"{VALUE}\n")
    listed = tollbar("vault", "list", "--json")
    removed = tollbar("vault", "remove", "OPENAI_API_KEY")
    gone = tollbar("vault", "remove", "OPENAI_API_KEY")

    assert (written.returncode, written.stdout) == (0, "OPENAI_API_KEY: version 1 is written\n"), written.stderr
    [item] = json.loads(listed.stdout)["items"]
    assert (item["name"], item["version"], item["hosts"]) == ("OPENAI_API_KEY", 1, ["api.openai.com"])
    assert removed.returncode == 0
    assert (gone.returncode, gone.stdout) == (3, "")
    assert all(VALUE not in done.stdout + done.stderr for done in (written, listed, removed, gone))


def test_a_value_that_cannot_be_redacted_is_refused_and_not_repeated(tollbar):
    refused = tollbar("vault", "set", "SHORT", "--json", typed="swordfi\n")

    assert refused.returncode == 2
    assert json.loads(refused.stdout)["code"] == "INVALID_SECRET"
    assert "swordfi" not in refused.stdout + refused.stderr


def test_another_vault_key_is_told_so(tollbar):
    other = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
    assert tollbar("vault", "set", "NAME", typed=VALUE).returncode == 0

    refused = tollbar("vault", "list", TOLLBAR_VAULT_KEY=other)

    assert refused.returncode == 1
    assert "does not fit" in refused.stderr
    assert "TOLLBAR_VAULT_KEY" in refused.stderr
    assert other not in refused.stderr
