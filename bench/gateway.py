"""What the gateway costs a call: beside the same call to the same provider, and beside the ledger alone."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from bench import calls, standin
from bench.figures import Figures, say
from bench.gateway_process import AT_ONCE
from bench.peers import litellm
from bench.peers.venvs import Venv

_COUNT: Final = 200
_SECONDS: Final = 4.0


@dataclass(frozen=True)
class Running:
    """A gateway in a process of its own."""

    url: str
    key: str
    words: IO[str]
    answers: IO[str]

    def bare(self, seconds: float) -> float:
        """Returns how many pairs of reserve and settle a second its process does."""
        self.words.write(f"bare {seconds}\n")
        self.words.flush()
        return float(json.loads(self.answers.readline())["per_second"])


def run(figures: Figures, rounds: int, *, peer: Venv | None = None) -> None:
    """Measures rounds of: direct calls, calls through the gateway (and through litellm's proxy), the ledger alone."""
    with ExitStack() as stack:
        provider = stack.enter_context(standin.running())
        running = stack.enter_context(gateway(provider))
        systems = [("direct", provider, running.key), ("tollbar", running.url, running.key)]
        if peer is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tollbar-bench-")))
            systems.append(("litellm", stack.enter_context(litellm.proxy(peer, provider, folder)), litellm.KEY))
        for number in range(rounds):
            say(f"gateway, round {number + 1} of {rounds}")
            for system, url, key in systems:
                note(figures, system, url, key)
            figures.add("ledger alone", "calls a second, 64 at once", "", running.bare(_SECONDS))
    whole = figures.median("tollbar", "calls a second, 64 at once")
    bare = figures.median("ledger alone", "calls a second, 64 at once")
    if whole and bare:
        figures.add("tollbar", "calls a second as a part of the ledger's alone", "", whole / bare)


def note(figures: Figures, system: str, url: str, key: str) -> None:
    """Notes how long calls in a row take, and how many a second go through 64 connections."""
    seconds = calls.run(url, key, count=_COUNT).seconds
    quantiles = statistics.quantiles(seconds, n=20)
    figures.add(system, "a call, p50", "ms", quantiles[9] * 1000)
    figures.add(system, "a call, p95", "ms", quantiles[18] * 1000)
    flood = calls.run(url, key, connections=AT_ONCE, seconds=_SECONDS)
    figures.add(system, "calls a second, 64 at once", "", flood.per_second)


@contextmanager
def gateway(provider: str) -> Generator[Running]:
    """Yields a gateway before a provider, with an embedded database of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.gateway_process", provider],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        facts = json.loads(process.stdout.readline())
        yield Running(facts["url"], facts["key"], process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
