"""Inspect AI on the same task with its local sandbox, which isolates nothing: the cost of the runner alone."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.bare import TASK
from bench.peers.peerrun import PeerFailed, PeerRun, timed
from bench.peers.venvs import Venv


@dataclass(frozen=True)
class Inspect:
    """Inspect AI with a folder for its logs."""

    venv: Venv
    folder: Path

    def run(self, agent: str, k: int, n: int) -> PeerRun:
        """Runs one evaluation of `k` samples, `n` at a time. Raises `PeerFailed`."""
        task = Path(__file__).with_name("loaded") / "inspect_task.py"
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-") as name:
            words = [
                *(str(self.venv.folder / "bin" / "inspect"), "eval", f"{task}@hello", "--model", "mockllm/model"),
                *("-T", f"k={k}", "-T", f"agent={agent}", "--max-samples", str(n), "--max-sandboxes", str(n)),
                *("--max-subprocesses", str(n), "--log-dir", f"{name}/logs", "--log-format", "json"),
                *("--display", "none", "--no-fail-on-error"),
            ]
            wall_s, cpu_s = timed(words, {"BENCH_TASK": str(TASK)}, Path(name))
            _check(Path(name) / "logs", agent, k)
            return PeerRun(wall_s, cpu_s)


def _check(logs: Path, agent: str, k: int) -> None:
    """Raises `PeerFailed` for wrong or missing scores."""
    files = list(logs.glob("*.json"))
    found = json.loads(files[0].read_text()) if len(files) == 1 else {"status": "no log"}
    if found["status"] != "success":
        raise PeerFailed(f"Inspect AI: {found['status']}")
    results = found["results"]
    value = results["scores"][0]["metrics"]["mean"]["value"]
    if results["completed_samples"] != k or value != (1.0 if agent == "oracle" else 0.0):
        raise PeerFailed(f"Inspect AI: {results['completed_samples']} of {k} samples, mean {value}")
