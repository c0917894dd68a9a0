"""A virtual environment for each peer, made once, with the version that the figures are of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import say

ROOT: Final = Path(__file__).resolve().parents[2]
_INSTALL_S: Final = 900
_PYTHONS: Final = ("python3.12", "python3.13")
_ASK_VERSION: Final = "import sys; print(sys.version_info >= (3, 12))"


class PeerMissing(Exception):
    """A peer cannot be had here, and why; the others are still measured."""


@dataclass(frozen=True)
class Venv:
    """Where a peer is installed."""

    folder: Path
    version: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def harbor() -> Venv:
    """Returns Harbor's environment; needs Python 3.12, which `BENCH_PYTHON312` can name. Raises `PeerMissing`."""
    return _venv("harbor", "harbor", "0.26.0", _python312)


def inspect_ai() -> Venv:
    """Returns Inspect AI's environment. Raises `PeerMissing`."""
    return _venv("inspect", "inspect-ai", "0.3.285", lambda: sys.executable)


def litellm() -> Venv:
    """Returns the environment of litellm's proxy. Raises `PeerMissing`."""
    return _venv("litellm", "litellm", "1.108.7", lambda: sys.executable, extra="[proxy]")


def _venv(name: str, package: str, version: str, interpreter: object, *, extra: str = "") -> Venv:
    assert callable(interpreter)
    found = Venv(ROOT / f".venv-{name}", version)
    if found.python.exists() and _installed(found, package) == version:
        return found
    python = interpreter()
    say(f"installing {package} {version} into {found.folder.name}, once ...")
    for words in (
        [python, "-m", "venv", "--clear", str(found.folder)],
        [
            str(found.python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            f"{package}{extra}=={version}",
        ],
    ):
        done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        if done.returncode:
            raise PeerMissing(f"{package}: {done.stderr[-500:].strip()}")
    return found


def _installed(venv: Venv, package: str) -> str | None:
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([str(venv.python), "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _python312() -> str:
    named = os.environ.get("BENCH_PYTHON312")
    for name in [named] if named else _PYTHONS:
        path = shutil.which(name)
        if path is not None and _is_new_enough(path):
            return path
    raise PeerMissing(f"no Python 3.12 or newer ({named or ', '.join(_PYTHONS)}): name one in BENCH_PYTHON312")


def _is_new_enough(python: str) -> bool:
    done = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"
