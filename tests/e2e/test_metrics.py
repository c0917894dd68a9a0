"""`/metrics` as a Prometheus reads it: behind a token of its own, and equal to what happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import Running
from tests.e2e.test_stops import status_of, submit

TOKEN = "metrics-token-of-a-test-0001"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose metrics may be read, after one Job of each outcome."""
    running = Running(tmp_path_factory.mktemp("up") / "data", environment={"TOLLBAR_METRICS_TOKEN": TOKEN}).start()
    for profile in ("tollbar/oracle", "tollbar/nop"):
        job_id = submit(running, dataset="demo/mini@1", profile_name=profile, runner="envhub/metered@main")
        running.finished(job_id)
    yield running
    assert running.stop() == 0, running.log()


def scraped(server: Running, token: str | None = TOKEN) -> httpx2.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx2.get(f"{server.url}/metrics", headers=headers, trust_env=False)


def test_the_figures_are_those_of_the_jobs(counted: Running) -> None:
    answer = scraped(counted)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    with counted.http() as http:
        jobs = [status_of(counted, item["job_id"]) for item in http.get("/v1/job").json()["items"]]

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert samples["tollbar_jobs", "completed"] == 2
    assert (samples["tollbar_trials_ended", "succeeded"], samples["tollbar_trials_ended", "failed"]) == (12, 0)
    assert samples["tollbar_workers", "live"] == 1
    assert samples["tollbar_worker_slots", "bwrap"] == 4
    spent = sum(float(job["budget"]["spent_usd"]) for job in jobs)
    assert spent > 0
    assert samples["tollbar_money_usd", "spent"] == pytest.approx(spent)
    assert (samples["tollbar_money_usd", "reserved"], samples["tollbar_money_usd", "overrun"]) == (0, 0)
    posts = {key: value for key, value in samples.items() if key[:2] == ("tollbar_http_request_seconds_count", "POST")}
    assert posts == {("tollbar_http_request_seconds_count", "POST", "/job", "202"): 2}
    assert not any("job_0" in "".join(map(str, key)) for key in samples), "no series of an id"


@pytest.mark.parametrize("token", [None, "wrong"])
def test_nobody_else_reads_them(counted: Running, token: str | None) -> None:
    answer = scraped(counted, token)

    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
    assert TOKEN not in answer.text


def test_a_servers_own_key_does_not_read_them(counted: Running) -> None:
    assert scraped(counted, counted.key).status_code == 401


def test_without_a_token_there_are_none(server: Running) -> None:
    assert scraped(server).status_code == 404


def test_the_token_is_in_no_log(counted: Running) -> None:
    assert TOKEN not in (Path(counted.data_dir).parent / "server.log").read_text()
