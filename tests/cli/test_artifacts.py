"""`artifacts get`: verified, whole or not at all, and never outside the folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import examples
from tests.cli.conftest import LIMIT_S, Ended
from tests.cli.standin import Answer, StandIn

LIST = f"GET /v1/trials/{examples.TRIAL_ID}/artifacts"
GET = ("artifacts", "get", examples.TRIAL_ID)
ID: str = examples.artifact()["artifact_id"]


@pytest.fixture
def holding(signed_in: StandIn) -> StandIn:
    """A Trial with one artifact that is there and one that is missing."""
    signed_in.on(LIST, examples.artifacts())
    signed_in.on(f"{LIST}/{ID}/content", Answer(200, examples.LOG))
    return signed_in


@pytest.mark.parametrize("named", [ID, "agent/log.txt"])
def test_one_artifact_is_got_by_id_or_name(
    tollbar: Callable[..., Ended], holding: StandIn, home: Path, named: str
) -> None:
    ended = tollbar(*GET, named)
    assert ended.code == 0
    assert ended.out.split("\t")[0] == "log.txt"
    assert (home / "work" / "log.txt").read_bytes() == examples.LOG
    again = tollbar(*GET, named)
    assert again.code == 2
    assert "--force" in again.err
    assert tollbar(*GET, named, "--force", "-o", "log.txt").code == 0
    as_json = tollbar(*GET, named, "-o", "new/other.txt", "--json")
    assert as_json.json["items"] == [{**examples.artifact(), "path": "new/other.txt"}]


def test_what_is_missing_is_listed_and_makes_the_exit_code_1(
    tollbar: Callable[..., Ended], holding: StandIn, home: Path
) -> None:
    ended = tollbar(*GET, "--all", "-o", "out")
    assert ended.code == 1
    assert "missing: report.json: missing" in ended.err
    assert (home / "work" / "out" / "agent" / "log.txt").read_bytes() == examples.LOG
    as_json = tollbar(*GET, "--all", "--json", "--force")
    assert [item["path"] for item in as_json.json["items"]] == [f"{examples.TRIAL_ID}/agent/log.txt"]
    assert [item["name"] for item in as_json.json["missing"]] == ["report.json"]


def test_all_without_anything_missing_exits_0(tollbar: Callable[..., Ended], holding: StandIn) -> None:
    holding.on(LIST, examples.page(examples.artifact(), next_cursor="c1"), examples.page())
    assert tollbar(*GET, "--all").code == 0


def test_a_damaged_download_is_not_kept_and_the_others_are(
    tollbar: Callable[..., Ended], holding: StandIn, home: Path
) -> None:
    other: dict[str, Any] = examples.artifact(artifact_id="art_2", name="b.txt")
    holding.on(LIST, examples.page(examples.artifact(), other))
    holding.on(f"{LIST}/{ID}/content", Answer(200, b"something else"))
    holding.on(f"{LIST}/art_2/content", Answer(200, examples.LOG))
    ended = tollbar(*GET, "--all", "-o", "out")
    assert ended.code == 1
    assert "missing: agent/log.txt" in ended.err
    assert [path.name for path in (home / "work" / "out").rglob("*.txt")] == ["b.txt"]


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", "a//x", "./x", "a\\x", "C:x", "a/\x1b[2J", "a\nb", "", "a/", "\u202ex"],
)
def test_one_unsafe_name_keeps_everything_from_being_written(
    tollbar: Callable[..., Ended], holding: StandIn, home: Path, name: str
) -> None:
    holding.on(LIST, examples.page(examples.artifact(), examples.artifact(artifact_id="art_2", name=name)))
    ended = tollbar(*GET, "--all", "-o", "out")
    assert ended.code == 1
    assert "unsafe name" in ended.err
    assert not {"\x1b", "\u202e"} & set(ended.err)
    assert list((home / "work").iterdir()) == []
    assert not (home / "x").exists()


def test_raw_bytes_go_to_a_pipe(holding: StandIn, home: Path) -> None:
    raw = b"\x1b[2J\x00\xff raw"
    holding.on(LIST, examples.page(examples.artifact(size=len(raw), sha256=None)))
    holding.on(f"{LIST}/{ID}/content", Answer(200, raw))
    command = [sys.executable, "-m", "tollbar", *GET, ID, "-o", "-"]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, raw, b"")


def test_options_that_do_not_go_together_are_refused(tollbar: Callable[..., Ended], holding: StandIn) -> None:
    for line in ([], [ID, "-o", "--force"], [ID, "--all"], ["--all", "-o", "-"], [ID, "-o", "-", "--json"]):
        assert tollbar(*GET, *line).code == 2
    assert tollbar(*GET, ID, "-o", ".").code == 2


def test_an_artifact_that_is_not_there_exits_3_or_1(tollbar: Callable[..., Ended], holding: StandIn) -> None:
    assert tollbar(*GET, "nothing").code == 3
    assert tollbar(*GET, "report.json").code == 1
