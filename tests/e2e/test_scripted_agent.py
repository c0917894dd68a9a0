"""The SIMULATED agent of a first start: real sandboxes and verifiers, scripted turns, real prices and caps."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.e2e.test_cap_and_crash import trials_of

SOLVED = {"greeting", "fix-config", "repair-script", "sort-list"}
FIXED = """
schema = "tollbar.script/1"
name = "fixed"
version = 1
priced_as = "openai:gpt-5-mini"
[[case]]
[[case.turn]]
shell = "printf 'Hello, world!\\\\n' > /app/hello.txt"
usage = { input = 2000, cached = 1500, output = 100, reasoning = 40 }
[[case.turn]]
text = "Done."
usage = { input = 2400, cached = 2000, output = 10 }
"""
FIXED_PUSD = 500 * 250_000 + 1500 * 25_000 + 100 * 2_000_000 + 400 * 250_000 + 2000 * 25_000 + 10 * 2_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    data = tmp_path_factory.mktemp("up") / "data"
    (data / "scripts").mkdir(mode=0o700, parents=True)
    (data / "scripts" / "fixed.toml").write_text(FIXED)
    running = Running(data).start()
    yield running
    assert running.stop() == 0, running.log()


def submitted(server: Running, **members: Any) -> dict[str, Any]:
    with server.http() as http:
        answer = http.post("/v1/job", json={"profile_name": "tollbar/scripted", "dataset": "demo/mini@1", **members})
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()


@pytest.mark.requirement("G-GW-GL37")
def test_the_seeded_profile_solves_some_demo_tasks_at_a_real_price_and_says_simulated(server: Running) -> None:
    job = server.finished(submitted(server, max_cost_usd="0.5")["job_id"])
    trials = trials_of(server, job["job_id"])
    assert {trial["task_id"] for trial in trials if trial["reward"] == 1} == SOLVED
    assert all(Decimal(trial["cost_usd"]) >= Decimal("0.001") for trial in trials)
    assert sum(Decimal(trial["cost_usd"]) for trial in trials) == Decimal(job["cost"]["total_usd"])
    assert [job["cost"]["simulated"], *(trial["simulated"] for trial in trials)] == [True] * 7
    with server.http() as http:
        assert Decimal(http.get("/v1/billing/account").json()["spent_today_usd"]) == 0, "no real day is charged"
    listed = server.cli("jobs", "list").stdout
    assert "SIMULATED" in next(line for line in listed.splitlines() if job["job_id"] in line)


@pytest.mark.requirement("EV-RESULT-usage", "G-EVAL-18.23")
def test_a_script_of_ones_own_costs_exactly_what_its_usage_says(server: Running) -> None:
    made = submitted(
        server, dataset="tests/hello-world@1", params={"MODEL": "scripted:fixed"}, max_cost_usd="0.5", attempts=3
    )
    job = server.finished(made["job_id"])
    assert (job["score"], Decimal(job["cost"]["model_usd"])) == (1.0, Decimal(3 * FIXED_PUSD) / 10**12)
    assert job["cost"]["price_snapshot"].startswith("genai-prices/")
    with server.http() as http:
        usage = http.get(f"/v1/job/{job['job_id']}/result").json()["usage"]
    counts = {name: usage[name] for name in ("calls", "input_tokens", "cache_read_tokens", "output_tokens")}
    # Disjoint: 500 and 400 tokens of input that were read from no cache.
    assert counts == {"calls": 6, "input_tokens": 2700, "cache_read_tokens": 10_500, "output_tokens": 330}
    assert (usage["cache_write_tokens"], usage["reasoning_tokens"], usage["unmetered_calls"]) == (0, 120, 0)


@pytest.mark.requirement("EV-CAP-bounds", "G-GW-GL30")
def test_one_cap_bounds_models_and_sandboxes_together(server: Running) -> None:
    made = submitted(
        server,
        dataset="tests/hello-world@1",
        runner="envhub/metered@main",
        params={"MODEL": "scripted:fixed"},
        max_cost_usd="1",
        attempts=40,
        max_concurrent=2,
    )
    job = server.finished(made["job_id"])
    cost, trials = job["cost"], trials_of(server, job["job_id"])
    assert (job["status"], job["error"]["code"]) == ("cancelled", "BUDGET_EXCEEDED")
    assert Decimal(cost["model_usd"]) > 0
    assert Decimal(cost["sandbox_usd"]) > 0
    parts = sum(Decimal(cost[name]) for name in ("model_usd", "sandbox_usd", "verifier_usd"))
    assert parts == Decimal(cost["total_usd"]) <= 1
    assert cost["reserved_usd"] == "0"
    assert {(trial["status"], trial["reason"]) for trial in trials} == {
        ("succeeded", None), ("cancelled", "BUDGET_EXCEEDED"),
    }  # fmt: skip
    assert job["n_scored"] == sum(trial["status"] == "succeeded" for trial in trials)


def test_a_dry_run_says_who_serves_the_model_and_what_bounds_its_cost(server: Running) -> None:
    found = submitted(server, max_cost_usd="0.5", attempts=2, dry_run=True)
    (model,) = found["models"]
    assert (model["name"], model["simulated"], model["problem"]) == ("scripted:demo", True, None)
    assert (model["prices"]["input_usd"], model["prices"]["output_usd"]) == ("3", "15")
    assert (found["worst_case_usd"], found["worst_case_total_usd"]) == ("0.5", "0.5")
    assert submitted(server, dry_run=True)["worst_case_usd"] is None, "nothing bounds how often an agent calls"
    shared = submitted(server, max_cost_usd="5", max_cost_per_trial_usd="0.2", dry_run=True)
    assert (shared["worst_case_usd"], shared["worst_case_total_usd"]) == ("0.2", "1.2")
    unserved = submitted(server, params={"MODEL": "openai:gpt-5-mini"}, max_cost_usd="1", dry_run=True)
    assert "There is no provider openai here" in json.dumps(unserved["warnings"])
    small = submitted(server, max_cost_usd="0.005", dry_run=True)
    assert "more than a cap leaves" in json.dumps(small["warnings"])


def test_a_first_start_shows_three_finished_jobs_and_a_second_one_adds_none(fresh: Running) -> None:
    fresh.demo = True
    fresh.start()
    with fresh.http() as http:
        jobs = [fresh.finished(job["job_id"]) for job in http.get("/v1/job").json()["items"]]
    assert {(job["profile"]["name"], job["status"], job["tag"]) for job in jobs} == {
        (f"tollbar/{name}", "completed", "demo") for name in ("oracle", "nop", "scripted")
    }
    assert {job["profile"]["name"]: job["score"] for job in jobs} == {
        "tollbar/oracle": 1.0, "tollbar/nop": 0.0, "tollbar/scripted": pytest.approx(4 / 6, abs=1e-6),
    }  # fmt: skip
    assert fresh.stop() == 0
    fresh.start()
    with fresh.http() as http:
        assert len(http.get("/v1/job").json()["items"]) == 3


PRICE = """
[[price]]
provider = "openai"
match = "exact"
model = "gpt-5-mini"
input_mtok = "{input}"
cache_read_mtok = "{input}"
output_mtok = "{output}"
"""


@pytest.mark.requirement("G-GW-GL35")
def test_a_job_keeps_the_prices_that_it_began_with(fresh: Running) -> None:
    (fresh.data_dir / "scripts").mkdir(mode=0o700, parents=True)
    (fresh.data_dir / "scripts" / "fixed.toml").write_text(FIXED)
    prices = fresh.data_dir / "models.toml"
    prices.write_text(PRICE.format(input="1", output="10"))
    fresh.start()
    asked = {"dataset": "tests/hello-world@1", "params": {"MODEL": "scripted:fixed"}, "max_cost_usd": "50"}
    job_id = submitted(fresh, **asked, attempts=12, max_concurrent=1)["job_id"]
    with fresh.http() as http:
        while http.get(f"/v1/job/{job_id}").json()["n_scored"] < 2:
            time.sleep(0.05)
    assert fresh.stop() == 0
    # The operator's prices are ten times as high from now on.
    prices.write_text(PRICE.format(input="10", output="100"))
    fresh.start()
    job = fresh.finished(job_id)
    later = fresh.finished(submitted(fresh, **asked)["job_id"])
    # 4,400 tokens of input and 110 of output a Trial.
    one = Decimal(4400 * 1 + 110 * 10) / 1_000_000
    assert {Decimal(trial["cost_usd"]) for trial in trials_of(fresh, job_id)} == {one}
    assert Decimal(job["cost"]["model_usd"]) == 12 * one
    assert Decimal(later["cost"]["model_usd"]) == 10 * one
    assert job["cost"]["price_snapshot"] != later["cost"]["price_snapshot"]
