"""The command line against a stand-in server: in this process, and as a command of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.standin import KEY, StandIn, running

from tollbar.cli.main import run

LIMIT_S = 30


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with running() as standin:
        yield standin


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home: no configuration, no local server, no variable of ours; the working folder is in it."""
    for name in [name for name in os.environ if name.startswith("TOLLBAR_")]:
        monkeypatch.delenv(name)
    for name in ("CI", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture
def signed_in(home: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in, and variables that lead to it."""
    monkeypatch.setenv("TOLLBAR_URL", server.url)
    monkeypatch.setenv("TOLLBAR_API_KEY", KEY)
    return server


@pytest.fixture
def tollbar(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command in this process; nothing it writes to is a terminal."""

    def call(*argv: str) -> Ended:
        capsys.readouterr()
        code = run(argv)
        out, err = capsys.readouterr()
        return Ended(int(code), out, err)

    return call


@pytest.fixture
def command(home: Path) -> Callable[..., Ended]:
    """Runs `tollbar` as a command of its own, with pipes."""

    def call(*argv: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "tollbar", *argv], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call
