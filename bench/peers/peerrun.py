"""One run of a peer's program, from its start to its end, with everything that it started."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import machine

_PATIENCE_S: Final = 300.0
_TAIL: Final = 2000


class PeerFailed(Exception):
    """The peer's program failed, or its rewards are not what this agent earns."""


@dataclass(frozen=True)
class PeerRun:
    """What the whole program took, from its start to its end."""

    wall_s: float
    cpu_s: float


def timed(words: Sequence[str], env: Mapping[str, str], folder: Path) -> tuple[float, float]:
    """Runs a program to its end and returns (wall seconds, CPU seconds of its whole tree). Raises `PeerFailed`."""
    machine.reap(())
    before, started = machine.children_cpu_s(), time.perf_counter()
    log = folder / "peer.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **env},
            start_new_session=True,
        )
        try:
            code = process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    wall_s = time.perf_counter() - started
    machine.reap(())
    if code != 0:
        raise PeerFailed(f"{words[0]} ended with {code}: {log.read_text(errors='replace')[-_TAIL:]}")
    return wall_s, machine.children_cpu_s() - before
