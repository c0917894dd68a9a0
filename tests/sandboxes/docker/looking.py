"""How tests look at an engine and at this machine from outside."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

IMAGE = "tollbar/busybox:test"


def docker(*words: str) -> str:
    """Returns what the program `docker` printed."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True, timeout=60).stdout


def containers(provider_root: Path) -> list[str]:
    """Returns the names of all containers of a data directory, running or not."""
    installation = (provider_root / "installation").read_text()
    listed = docker("ps", "--all", "--filter", f"label=tollbar.installation={installation}", "--format", "{{.Names}}")
    return listed.split()


def inspect(container: str) -> dict:
    return json.loads(docker("inspect", container))[0]


async def gone(pattern: str) -> bool:
    """Says whether no process of this machine has that text on its command line."""
    for _ in range(100):
        found = await asyncio.to_thread(
            subprocess.run, ["pgrep", "-f", pattern], capture_output=True, text=True, check=False
        )
        if not found.stdout.strip():
            return True
        await asyncio.sleep(0.05)
    return False
