"""A tollbar server in a process of its own, on a data directory that is new or used before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from bench import machine

_STOP_S: Final = 60.0
_LOG_TAIL: Final = 4000


class ServerFailed(Exception):
    """The server did not start, or did not end as it should; says what it logged last."""


@dataclass(frozen=True)
class Server:
    """A running server: its first line, how long that took, and a client with its key."""

    process: subprocess.Popen[bytes]
    facts: dict[str, Any]
    ready_s: float
    ready_cpu_s: float
    """CPU time until then, of server and database."""
    http: httpx2.Client

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def server(folder: Path, *, slots: int) -> Generator[Server]:
    """Yields a server with its data below `folder`, and stops it as a person would."""
    words = [sys.executable, "-m", "tollbar", "up", "--json", "--no-browser", "--no-demo", "--port", "0"]
    settings = {"TOLLBAR_SLOTS": str(slots), "TOLLBAR_REQUESTS_PER_MINUTE": "1000000"}
    log = folder / "server.log"
    with log.open("ab") as output:
        spent, started = machine.children_cpu_s(), time.perf_counter()
        process = subprocess.Popen(
            [*words, "--data-dir", str(folder / "data")],
            stdout=subprocess.PIPE,
            stderr=output,
            env={**_environment(), **settings},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ready_s = time.perf_counter() - started
        facts = json.loads(line or "{}")
        if "api_key" not in facts:
            raise ServerFailed(f"{facts} {tail(log)}")
        headers = {"Authorization": f"Bearer {facts['api_key']}"}
        with httpx2.Client(base_url=facts["url"], headers=headers, timeout=60, trust_env=False) as http:
            yield Server(process, facts, ready_s, machine.tree_cpu(process.pid).total_s - spent, http)
    finally:
        process.stdout.close()
        _stop(process, log)


def _environment() -> dict[str, str]:
    """Returns our environment without settings of tollbar: what the shell has set must not change a figure."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOLLBAR_")}


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = None
    if code != 0 and sys.exception() is None:
        raise ServerFailed(f"it ended with {code}\n{tail(log)}")


def tail(log: Path) -> str:
    """Returns the end of a log."""
    return log.read_text(errors="replace")[-_LOG_TAIL:]
