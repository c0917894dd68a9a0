"""What a model's provider does to a Job: each reason and outcome through real Trials with a planted fault."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.e2e.test_cap_and_crash import trials_of

FAULT = """
schema = "tollbar.script/1"
name = "fault"
version = 1
priced_as = "openai:gpt-5-mini"
[[case]]
[[case.turn]]
text = "Hm."
{words}
"""
FAULTS = {
    "401": ("fault = { status = 401 }", "auth", 1),
    "403": ("fault = { status = 403 }", "auth", 1),
    "404": ("fault = { status = 404 }", "not_found", 1),
    "400": ("fault = { status = 400 }", "bad_request", 1),
    "429": ("fault = { status = 429 }", "rate_limited", 3),
    "529": ("fault = { status = 529 }", "overloaded", 3),
    "500": ("fault = { status = 500 }", "server_error", 3),
    "reset": ("fault = { reset_after_bytes = 20 }", "connection", 3),
}
"""By name: the words of a script, the detail that the Trial shows, and its tries."""
ENDS = {"length": "context_overflow", "refusal": "refused"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data = tmp_path_factory.mktemp("up") / "data"
    scripts = data / "scripts"
    scripts.mkdir(mode=0o700, parents=True)
    for name, (words, *_) in FAULTS.items():
        (scripts / f"f{name}.toml").write_text(FAULT.format(words=words))
    for name in ENDS:
        (scripts / f"{name}.toml").write_text(FAULT.format(words=f'stop = "{name}"'))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (data / "models.toml").write_text(
        f'[[provider]]\nid = "gone"\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        'price_provider = "openai"\n'
    )
    running = Running(data).start()
    yield running
    assert running.stop() == 0, running.log()


def submitted(server: Running, model: str) -> str:
    with server.http() as http:
        body = {
            "dataset": "tests/hello-world@1",
            "profile_name": "tollbar/scripted",
            "params": {"MODEL": model},
            "max_cost_usd": "5",
        }
        answer = http.post("/v1/job", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]


def outcome(server: Running, job_id: str) -> dict[str, Any]:
    server.finished(job_id)
    (trial,) = trials_of(server, job_id)
    with server.http() as http:
        return http.get(f"/v1/trials/{trial['trial_id']}/result").json()


@pytest.mark.slow
@pytest.mark.requirement("G-EVAL-21.4")
def test_a_provider_that_fails_is_the_reason_of_a_trial_that_got_no_reward(server: Running) -> None:
    models = {name: f"scripted:f{name}" for name in FAULTS}
    jobs = {name: submitted(server, model) for name, model in {**models, "gone": "gone:gpt-5-mini"}.items()}
    jobs["nobody"] = submitted(server, "nobody:gpt-5-mini")
    expected = {name: (detail, tries) for name, (_, detail, tries) in FAULTS.items()}
    expected |= {"gone": ("connection", 3), "nobody": ("not_found", 1)}
    found = {name: outcome(server, job_id) for name, job_id in jobs.items()}
    assert {(trial["status"], trial["reason"], trial["reward"]) for trial in found.values()} == {
        ("failed", "MODEL_UNAVAILABLE", None)
    }
    assert {name: (trial["reason_detail"], trial["try_no"]) for name, trial in found.items()} == expected
    assert all(trial["message"] for trial in found.values())


@pytest.mark.requirement("G-EVAL-21.4")
@pytest.mark.parametrize("end", ENDS)
def test_an_agent_whose_model_stops_it_is_graded_and_says_so(server: Running, end: str) -> None:
    trial = outcome(server, submitted(server, f"scripted:{end}"))
    assert (trial["status"], trial["agent_outcome"], trial["reward"]) == ("succeeded", ENDS[end], 0.0)
