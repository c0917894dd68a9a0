"""What tests of Docker Jobs see of the engine that DOCKER_HOST names; it must have the image `tollbar/busybox:test`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

IMAGE = "tollbar/busybox:test"
FROM = f"FROM {IMAGE}\nWORKDIR /app\n"


def need_engine() -> None:
    """Skips without an engine for tests."""
    if "DOCKER_HOST" not in os.environ or shutil.which("docker") is None:
        pytest.skip("no Docker engine for tests: eval $(.ci/engine up DIR)")


def docker(*words: str) -> str:
    """Returns what the program `docker` printed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def label(data_dir: Path) -> str:
    return f"label=tollbar.installation={(data_dir / 'docker' / 'installation').read_text()}"


def left(data_dir: Path) -> list[str]:
    """Returns every container, network and volume on the engine that is the data directory's."""
    mine = f"--filter={label(data_dir)}"
    found = docker("ps", "--all", mine, "--format", "container {{.Names}}")
    found += docker("network", "ls", mine, "--format", "network {{.Name}}")
    found += docker("volume", "ls", mine, "--format", "volume {{.Name}}")
    return found.splitlines()


def running(data_dir: Path) -> list[dict[str, Any]]:
    """Returns what the engine says of each running container of the data directory."""
    ids = docker("ps", f"--filter={label(data_dir)}", "--format", "{{.ID}}").split()
    found = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True, check=False, timeout=60)
    return json.loads(found.stdout) if ids else []
