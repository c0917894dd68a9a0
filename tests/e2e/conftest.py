"""A real server as a user starts it: `tollbar up` in a process of its own, on a fresh data directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

START_S = 30.0


@dataclass
class Running:
    """A server process and how to reach it."""

    data_dir: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    demo: bool = False
    """With the demo Jobs of a first start."""
    port: int = 0
    process: subprocess.Popen[str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def start(self) -> Running:
        words = [sys.executable, "-m", "tollbar", "up", "--json", "--no-browser", "--port", str(self.port)]
        with (self.data_dir.parent / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*words, "--demo" if self.demo else "--no-demo", "--data-dir", str(self.data_dir), *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "TOLLBAR_REQUESTS_PER_MINUTE": "100000", **self.environment},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log()
        self.facts = json.loads(line)
        return self

    def log(self) -> str:
        return (self.data_dir.parent / "server.log").read_text()[-8000:]

    @property
    def url(self) -> str:
        return self.facts["url"]

    @property
    def key(self) -> str:
        return self.facts["api_key"]

    def http(self, key: str | None = None) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {key or self.key}"}, timeout=30, trust_env=False
        )

    def kill(self) -> None:
        """Ends the server without a word, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> int:
        """Ends the server as a person would; returns its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def cli(self, *words: str, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the command line against this server."""
        done = subprocess.run(
            [sys.executable, "-m", "tollbar", *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=cwd,
            env={**os.environ, "TOLLBAR_URL": self.url, "TOLLBAR_API_KEY": self.key},
        )
        assert not check or done.returncode == 0, (done.returncode, done.stdout, done.stderr, self.log())
        return done

    def finished(self, job_id: str, within_s: float = 120.0) -> dict[str, Any]:
        """Waits until a Job has ended and returns it."""
        deadline = time.monotonic() + within_s
        with self.http() as http:
            while True:
                job = http.get(f"/v1/job/{job_id}").json()
                if job["final"]:
                    return job
                assert time.monotonic() < deadline, (job, self.log())
                time.sleep(0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for the tests of one file."""
    running = Running(tmp_path_factory.mktemp("up") / "data").start()
    yield running
    assert running.stop() == 0, running.log()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Running]:
    """A server of the test's own, not started yet."""
    running = Running(tmp_path / "data")
    yield running
    if running.process is not None and running.process.poll() is None:
        running.stop()
