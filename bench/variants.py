"""The task in further shapes, published on a running server: what makes a phase need more than one command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench import jobs
from bench.bare import TASK
from bench.server import Server

PLAIN: Final = "separate verifier"
SHARED: Final = "shared verifier"
HOOK: Final = "collect hook"
WAITING: Final = "waiting agent"
_WAIT_S: Final = 900
_SEPARATE: Final = 'environment_mode = "separate"'
_HOOK: Final = '\n[[verifier.collect]]\ncommand = "true"\n'


def publish(running: Server, shape: str) -> str:
    """Returns the `name@version` of the task in that shape, published if it is not the one that every server has."""
    if shape == PLAIN:
        return jobs.TASK
    name = shape.replace(" ", "-")
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder:
        task = Path(folder) / name
        shutil.copytree(TASK, task)
        text = (task / "task.toml").read_text().replace('"tests/hello-world"', f'"bench/{name}"')
        if shape == SHARED:
            # A verifier that shares the agent's sandbox has no image of its own.
            (task / "tests" / "Dockerfile").unlink()
            text = text.replace(_SEPARATE, _SEPARATE.replace("separate", "shared"))
        elif shape == WAITING:
            (task / "solution" / "solve.sh").write_text(f"#!/bin/sh\nexec sleep {_WAIT_S}\n")
            text = text.replace("[agent]\ntimeout_sec = 30", f"[agent]\ntimeout_sec = {2 * _WAIT_S}")
        else:
            text += _HOOK
        (task / "task.toml").write_text(text)
        _push(running, Path(folder), f"bench/{name}")
    return f"bench/{name}@1"


def _push(running: Server, folder: Path, name: str) -> None:
    words = [sys.executable, "-m", "tollbar", "datasets", "push", str(folder), "--name", name, "--version", "1"]
    env = {**os.environ, "TOLLBAR_URL": running.facts["url"], "TOLLBAR_API_KEY": running.facts["api_key"]}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise jobs.JobWrong(done.stderr)
