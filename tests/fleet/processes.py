"""Servers and workers as an operator starts them: `tollbar serve` and `tollbar worker`, each in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from tests.e2e.conftest import Running

BEAT_S, SELF_KILL_S, DEAD_AFTER_S = 0.2, 2.0, 3.0
"""Quick enough for a test, slow enough for a busy machine."""


@dataclass
class Process:
    """One process of tollbar with a data directory of its own; its log outlives it."""

    words: Sequence[str]
    environment: dict[str, str]
    folder: Path
    process: subprocess.Popen[str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def start(self) -> Process:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tollbar", *self.words, "--json", "--data-dir", str(self.folder / "data")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.environment},
            )
        return self

    def ready(self) -> Process:
        """Waits until it says what it is."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log()
        self.facts = json.loads(line)
        return self

    @property
    def id(self) -> str:
        return self.facts["worker_id"]

    def log(self) -> str:
        return (self.folder / "log").read_text()[-6000:]

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, within_s: float = 30) -> int:
        """Waits for its end and returns the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(within_s)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    @property
    def living(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Fleet:
    """An installation on one database: servers and workers, and what the database says of them."""

    url: str
    root: Path
    environment: dict[str, str]
    processes: list[Process] = field(default_factory=list)

    def migrate(self) -> subprocess.CompletedProcess[str]:
        return self.run("migrate", "--json")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tollbar", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **self.variables()},
        )

    def variables(self, **more: str) -> dict[str, str]:
        return {
            **({"TOLLBAR_DATABASE_URL": self.url} if self.url else {}),
            "TOLLBAR_BEAT_S": str(BEAT_S),
            "TOLLBAR_SELF_KILL_S": str(SELF_KILL_S),
            "TOLLBAR_DEAD_AFTER_S": str(DEAD_AFTER_S),
            "TOLLBAR_REQUESTS_PER_MINUTE": "100000",
            **self.environment,
            **more,
        }

    def process(self, *words: str, folder: Path | None = None, **more: str) -> Process:
        """Starts a process in a folder of its own, or in the one of another process."""
        own = folder or self.root / f"{words[0]}-{len(self.processes)}"
        made = Process(words, self.variables(**more), own)
        self.processes.append(made)
        return made.start()

    def serve(self, **more: str) -> Running:
        """Starts a server and returns how to use it."""
        process = self.process("serve", "--port", "0", **more).ready()
        (process.folder / "server.log").symlink_to("log")
        return Running(process.folder / "data", process=process.process, facts=process.facts)

    def workers(self, *slots: int, **more: str) -> list[Process]:
        """Starts workers side by side, one for each number of slots."""
        started = [self.process("worker", "--slots", str(number), **more) for number in slots]
        return [process.ready() for process in started]

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(plain(self.url), autocommit=True) as connection:
            return connection.execute(query, values or None).fetchall()  # type: ignore[arg-type] # a test's own text

    def stop(self) -> None:
        """Ends what still runs."""
        for process in self.processes:
            if process.living:
                process.send(signal.SIGCONT)
                process.send(signal.SIGTERM)
        for process in self.processes:
            process.ended()


def plain(url: str) -> str:
    """Returns the URL in the form of the driver."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def eventually(condition: Callable[[], Any], within_s: float = 30) -> Any:
    """Returns what the condition returns as soon as it is true; fails when the time is over."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, condition()
        time.sleep(0.05)
    return found
