"""A task that lists hosts, on a whole server: its solution goes by the proxy, and the Trial says what it asked for."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import Running
from tests.e2e.tasks import run_folder, toml, write_task

LISTED = '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["localhost"]'
SOLVE = """#!/bin/sh
python3 - > /app/said.txt <<'PYTHON'
import http.client, os, socket
from urllib.parse import urlsplit

proxy = urlsplit(os.environ["HTTP_PROXY"])
for url in ("http://localhost/", "http://evil.example/", "http://10.0.0.1/", "http://localhost:9/"):
    link = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=20)
    link.request("GET", url)
    answer = link.getresponse()
    print(url, answer.status, answer.read().decode().strip())
try:
    socket.create_connection(("10.0.0.1", 80), 5)
except OSError as error:
    print("alone:", error.strerror)
PYTHON
"""
TEST = """#!/bin/sh
[ -z "$HTTP_PROXY$http_proxy" ] && echo 1 > /logs/verifier/reward.txt
cat /app/said.txt
"""
SAID = """http://localhost/ 403 tollbar: private
http://evil.example/ 403 tollbar: not_listed
http://10.0.0.1/ 403 tollbar: address
http://localhost:9/ 403 tollbar: port
alone: Network is unreachable
"""


def test_a_listed_host_of_the_server_itself_is_closed_and_so_is_every_other(server: Running, tmp_path: Path) -> None:
    text = toml(top='artifacts = ["/app/said.txt"]').replace("[agent]", LISTED)
    write_task(tmp_path, "net", {"task.toml": text, "solution/solve.sh": SOLVE, "tests/test.sh": TEST})
    ended = run_folder(server, tmp_path)
    trial = ended.trials["net"]

    assert (trial["status"], trial["reward"]) == ("succeeded", 1.0), trial["message"]
    assert trial["sandbox_forms"]["agent"] == "held"
    assert ended.content("net", "app/said.txt").decode() == SAID
    log = ended.content("net", "agent/network.txt").decode()
    asked = [line.split(" ", 1)[1] for line in log.splitlines()]
    assert asked == ["localhost private", "evil.example not_listed", "10.0.0.1 address", "localhost port"]
    with server.http() as http:
        lines = http.get(f"/v1/trials/{trial['trial_id']}/logs").json()["items"]
    warnings = [line["content"] for line in lines if line["level"] == "warning"]
    assert "the task's network is closed for evil.example to the agent (not_listed, 1x)" in warnings
    assert len(warnings) == 4
