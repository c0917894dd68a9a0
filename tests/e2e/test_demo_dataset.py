"""`demo/mini@1`, twenty attempts, four at a time: oracle 1.0 and nop 0.0 through every interface."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from tests.e2e.conftest import Running

AGENTS = {"tollbar/oracle": 1.0, "tollbar/nop": 0.0}
ATTEMPTS = 20
TASKS = 6


def judge(job: dict[str, Any], score: float) -> None:
    assert (job["status"], job["phase"], job["final"], job["error"]) == ("completed", "done", True, None)
    assert (job["score"], job["pass"]) == (score, score)
    assert (job["n_scored"], job["n_total"]) == (TASKS * ATTEMPTS, TASKS * ATTEMPTS)
    assert job["pass@k"]["1"] == job["pass^k"][str(ATTEMPTS)] == score
    # Wilson, 6 of 6 and 0 of 6: every attempt of a task agrees, so the tasks are the observations.
    interval = [0.609666, 1.0] if score else [0.0, 0.390334]
    assert job["intervals"]["score"] == job["intervals"]["pass"] == interval
    assert job["budget"]["reserved_usd"] == "0"


@pytest.mark.requirement("G-EVAL-18.21")
@pytest.mark.parametrize(("profile", "score"), AGENTS.items())
def test_over_http(server: Running, profile: str, score: float) -> None:
    body = {"dataset": "demo/mini@1", "profile_name": profile, "attempts": ATTEMPTS, "max_cost_usd": 1}
    with server.http() as http:
        answer = http.post("/v1/job", json={**body, "request_id": f"http-{profile}"})
        assert answer.status_code == 202
        judge(server.finished(answer.json()["job_id"]), score)


@pytest.mark.parametrize(("profile", "score"), AGENTS.items())
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_mcp_in_both_protocol_eras(server: Running, profile: str, score: float, mode: str) -> None:
    headers = {"Authorization": f"Bearer {server.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(f"{server.url}/v1/mcp", http_client=http), mode=mode) as client,
    ):
        arguments = {
            "dataset": "demo/mini@1",
            "profile_name": profile,
            "attempts": ATTEMPTS if mode == "auto" else 1,
            "request_id": f"mcp-{mode}-{profile}",
            "max_cost_usd": 1,
        }
        submitted = await client.call_tool("envloop_job_submit", arguments)
        job = submitted.structured_content
        assert job is not None
        assert json.loads(submitted.content[0].text) == job
        server.finished(job["job_id"])
        done = await client.call_tool("envloop_job_result", {"job_id": job["job_id"], "trials_limit": 100})
        if mode == "auto":
            judge(done.structured_content, score)
        trial = done.structured_content["trials"]["items"][0]
        one = (await client.call_tool("envloop_trial_result", {"trial_id": trial["trial_id"]})).structured_content
        assert (one["status"], one["reward"]) == ("succeeded", score)
        assert one["artifacts"]["items"]


@pytest.mark.parametrize(("profile", "score"), AGENTS.items())
def test_over_the_command_line(server: Running, profile: str, score: float) -> None:
    words = ["jobs", "submit", "demo/mini@1", "--profile", profile, "-k", str(ATTEMPTS), "--max-cost", "1", "--json"]
    done = server.cli(*words, "--watch")
    judge(json.loads(done.stdout.splitlines()[-1]), score)


def test_never_more_trials_run_at_once_than_there_are_slots(server: Running) -> None:
    with server.http() as http:
        body = {"dataset": "demo/mini@1", "attempts": 10, "request_id": "slots", "max_cost_usd": 1}
        job_id = http.post("/v1/job", json=body).json()["job_id"]
        most = 0
        while True:
            job = http.get(f"/v1/job/{job_id}").json()
            counts = job["trial_counts"]
            most = max(most, counts["starting"] + counts["running"] + counts["verifying"])
            assert sum(counts[state] for state in counts if state not in {"total", "scored"}) == counts["total"]
            if job["final"]:
                break
    assert 1 <= most <= 4


def test_structured_rewards_and_evidence_stand_on_each_trial(server: Running) -> None:
    with server.http() as http:
        source = {"name": "demo/mini", "version": "1", "task_id": "order-report"}
        body = {"dataset": source, "request_id": "structured", "max_cost_usd": 1}
        job = server.finished(http.post("/v1/job", json=body).json()["job_id"])
        items = http.get(f"/v1/job/{job['job_id']}/result").json()["trials"]["items"]
        trial = http.get(f"/v1/trials/{items[0]['trial_id']}/result").json()
        assert trial["structured_result"]["dimensions"]
        assert trial["verifier"]["mode"] == "separate"
        assert trial["verifier"]["sealed_sha256"] == trial["sealed_sha256"]
        assert trial["sandbox_forms"] == {"agent": "one_shot", "verifier": "one_shot"}
        assert any(item["kind"] == "base" for item in trial["substitutions"])
        names = {item["name"]: item for item in trial["artifacts"]["items"]}
        log = names["verifier/test-stdout.txt"]
        path = f"/v1/trials/{trial['trial_id']}/artifacts/{log['artifact_id']}"
        whole = http.get(f"{path}/content")
        assert (whole.status_code, len(whole.content)) == (200, log["size"])
        assert http.get(f"{path}/window").json()["text"] == whole.text
