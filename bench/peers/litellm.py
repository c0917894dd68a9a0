"""The litellm proxy before the same provider: no database, no budget, a master key; what a plain proxy costs a call."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.peerrun import PeerFailed
from bench.peers.venvs import Venv

KEY: Final = "sk-master-key-of-a-bench"
_START_S: Final = 90.0


@contextmanager
def proxy(venv: Venv, provider: str, folder: Path) -> Generator[str]:
    """Yields the address of a proxy in a process of its own. Raises `PeerFailed`."""
    config = {
        "model_list": [
            {
                "model_name": "gpt-5-mini",
                "litellm_params": {"model": "openai/gpt-5-mini", "api_base": f"{provider}/v1", "api_key": "sk-none"},
            }
        ],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False},
    }
    file = folder / "litellm.json"
    file.write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = [str(venv.folder / "bin" / "litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        _await(process, f"http://127.0.0.1:{port}/health/liveliness", folder / "litellm.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the address is ours
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise PeerFailed(f"litellm did not start: {log.read_text(errors='replace')[-500:]}")
