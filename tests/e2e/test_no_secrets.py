"""Canaries in a provider's key, a secret of the vault and a Trial's key: in nothing that is kept, told or listed."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from tests import realagents
from tests.e2e.conftest import Running
from tests.e2e.test_cap_and_crash import trials_of
from tests.standin_provider import StandIn, stand_in
from tollbar.agents import software
from tollbar.db.datadir import read_server_facts

KEY = "sk-canary-of-the-environment-3b1f9a7c"
VAULTED = "sk-canary-of-the-vault-55e0d1c2"
SCRIPT = """
schema = "tollbar.script/1"
name = "t"
version = 1
priced_as = "openai:gpt-5-mini"
[[case]]
[[case.turn]]
text = "I print what I have."
shell = '''env; printf %s "$OPENAI_API_KEY" | rev > /logs/agent/reversed; printf %s "$OPENAI_API_KEY" | base64 -w0
{ env; printf %s "$OPENAI_API_KEY" | base64 -w0; printf %s "$OPENAI_API_KEY"; } > /app/hello.txt'''
usage = { input = 3000, cached = 0, output = 60 }
[[case.turn]]
finish = true
"""
MODELS = """
[[provider]]
id = "openai"
kind = "openai"
base_url = "{url}"
secret = "env:CANARY"
[[provider]]
id = "vaulted"
kind = "openai-compatible"
base_url = "{url}"
secret = "PROVIDER_KEY"
price_provider = "openai"
"""


@pytest.fixture
def provider() -> Iterator[StandIn]:
    with stand_in(KEY) as provider:
        yield provider


class Processes:
    """Looks at every command line of this machine until it is left."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    self.seen.add(path.read_bytes())


def forms(secret: str) -> list[bytes]:
    """Returns a secret as it is, and as base64."""
    return [secret.encode(), base64.b64encode(secret.encode()).rstrip(b"=")]


def files_with(folder: Path, needles: list[bytes]) -> list[str]:
    """Returns every file below a folder that holds one of the texts; the database's own are among them."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += [str(path) for needle in needles if needle in data]
    return found


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL25", "G-TEAM-S2", "G-TEAM-S3", "G-TEAM-S4")
def test_no_key_stands_in_anything_that_is_kept_told_or_listed(tmp_path: Path, provider: StandIn) -> None:
    realagents.require("mini-swe-agent")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / software.FOLDER).symlink_to(realagents.folder())
    (data / "models.toml").write_text(MODELS.format(url=provider.url))
    server = Running(data, environment={"CANARY": KEY}).start()
    try:
        subprocess.run(
            [sys.executable, "-m", "tollbar", "vault", "set", "PROVIDER_KEY", "--data-dir", str(data)],
            input=VAULTED, text=True, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        provider.plays(SCRIPT, "mini-swe-agent")
        with Processes() as processes:
            jobs = [run(server, model) for model in ("openai:gpt-5-mini", "vaulted:gpt-5-mini")]
        assert [job["status"] for job in jobs] == ["completed", "failed"], "the stand-in knows one key only"
        told, virtual = everything(server, jobs)
        sent = {one.headers.get("authorization", "") for one in provider.calls}
        assert {f"Bearer {KEY}", f"Bearer {VAULTED}"} <= sent, "the canaries were in use"
        checkpoint(server)
    finally:
        server.stop()
    needles = [form for secret in (KEY, VAULTED, virtual) for form in forms(secret)]
    assert [needle for needle in needles if needle in told] == []
    assert [line for line in processes.seen if any(needle in line for needle in needles)] == []
    assert files_with(data, needles) == []
    assert [needle for needle in needles if needle in (tmp_path / "server.log").read_bytes()] == []
    assert b"[redacted:virtual key]" in told, "it was there, and was overwritten"


def run(server: Running, model: str) -> dict[str, Any]:
    with server.http() as http:
        body = {
            "dataset": "tests/hello-world@1",
            "profile_name": "tollbar/mini-swe-agent",
            "params": {"MODEL": model, "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": 1},
            "max_cost_usd": "1",
        }
        answer = http.post("/v1/job", json=body)
        assert answer.status_code == 202, answer.text
        return server.finished(answer.json()["job_id"])


def everything(server: Running, jobs: list[dict[str, Any]]) -> tuple[bytes, str]:
    """Returns what the interfaces tell of the Jobs, artifacts included, and the key that the agent saw."""
    parts = [json.dumps(jobs).encode()]
    virtual = ""
    with server.http() as http:
        for job in jobs:
            base = f"/v1/job/{job['job_id']}"
            parts += [http.get(base + path).content for path in ("", "/result", "/events", "/logs")]
            for trial in trials_of(server, job["job_id"]):
                base = f"/v1/trials/{trial['trial_id']}"
                parts += [http.get(base).content, http.get(f"{base}/result").content, http.get(f"{base}/logs").content]
                for item in http.get(f"{base}/artifacts?limit=100").json()["items"]:
                    content = http.get(f"{base}/artifacts/{item['artifact_id']}/content").content
                    parts.append(content)
                    if item["name"].endswith("reversed"):
                        virtual = content.decode()[::-1]
    assert virtual.startswith("tbv_")
    return b"\n".join(parts), virtual


def checkpoint(server: Running) -> None:
    """Makes the database write everything to its files."""
    facts = read_server_facts(server.data_dir)
    assert facts is not None
    with psycopg.connect(facts["database_url"].replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
