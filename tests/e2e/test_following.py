"""Following the log of a running Job through the death of its server."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.conftest import Running
from tollbar.client import Client, ClientError, Patience

TRIALS = 12


@pytest.mark.requirement("G-HTTP-16.10")
def test_every_record_is_seen_once_though_the_server_is_killed_and_started_again(fresh: Running) -> None:
    fresh.start()
    fresh.port = int(fresh.url.rpartition(":")[2])
    request = {
        "dataset": "tests/hello-world@1", "attempts": TRIALS, "max_concurrent": 2, "max_cost_usd": 1,
        "profile_name": "tollbar/command", "command": "sleep 0.3",
    }  # fmt: skip
    troubles: list[str] = []

    def trouble(error: ClientError, pause_s: float) -> None:
        troubles.append(error.code)
        if len(troubles) == 1:
            fresh.start()

    with Client(fresh.url, fresh.key) as client:
        job_id = client.submit_job(request)[0]["job_id"]
        seen: list[str] = []
        killed = False
        patience = Patience(tries=60, first_pause_s=0.2, longest_pause_s=0.5)
        pages = client.follow_log(
            lambda at: client.job_logs(job_id, cursor=at, limit=3), patience=patience, on_trouble=trouble
        )
        ends: Counter[str | None] = Counter()
        for page in pages:
            for item in page["items"]:
                seen.append(item["id"])
                if item["content"].startswith("succeeded"):
                    ends[item["trial_id"]] += 1
            if ends.total() >= 2 and not killed:
                killed = True
                fresh.kill()
        whole = client.job_logs(job_id, limit=1000)
    assert killed
    assert troubles
    assert seen == [item["id"] for item in whole["items"]]
    assert len(set(seen)) == len(seen)
    assert (len(ends), set(ends.values())) == (TRIALS, {1})
