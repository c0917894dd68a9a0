"""Real coding agents, from npm and PyPI, in sandboxes without network: the gateway is their only way to a provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from tests import realagents
from tests.e2e.conftest import Running
from tests.e2e.test_cap_and_crash import trials_of
from tests.standin_provider import StandIn, stand_in
from tollbar.agents import software

KEY = "sk-stand-in-provider-key-0123456789"
HEAD = """
schema = "tollbar.script/1"
name = "t"
version = 1
[[side]]
text = "ok"
usage = { input = 100, output = 10 }
[[case]]
"""
TURNS = """
[[case.turn]]
text = "I write the file."
shell = "printf 'Hello, world!\\\\n' > /app/hello.txt"
usage = { input = 3000, cached = 1000, output = 60 }
[[case.turn]]
finish = true
usage = { input = 3200, cached = 3000, output = 20 }
"""


class Agent(NamedTuple):
    """An agent, its model, and USD per million tokens: input, cache read, output (of the provider's public list)."""

    name: str
    model: str
    prices: tuple[str, str, str]

    def usd(self, *usages: tuple[int, int, int]) -> Decimal:
        """Returns the cost of calls, each with its input (cache included), what of it was cached, and its output."""
        per_input, per_cached, per_output = map(Decimal, self.prices)
        return (
            sum(
                (
                    (given - cached) * per_input + cached * per_cached + output * per_output
                    for given, cached, output in usages
                ),
                Decimal(0),
            )
            / 1_000_000
        )


AGENTS = [
    Agent("claude-code", "anthropic:claude-sonnet-4-5", ("3", "0.30", "15")),
    Agent("codex", "openai:gpt-5-mini", ("0.25", "0.025", "2")),
    Agent("mini-swe-agent", "openai:gpt-5-mini", ("0.25", "0.025", "2")),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[StandIn]:
    with stand_in(KEY) as provider:
        yield provider


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: StandIn) -> Iterator[Running]:
    """A server whose providers are the stand-in, on a machine that has the agents."""
    data = tmp_path_factory.mktemp("up") / "data"
    data.mkdir(mode=0o700)
    (data / software.FOLDER).symlink_to(realagents.folder())
    records = [("anthropic", "anthropic"), ("openai", "openai"), ("acme", "openai-compatible")]
    (data / "models.toml").write_text(
        "".join(
            f'[[provider]]\nid = "{name}"\nkind = "{kind}"\nbase_url = "{provider.url}"\nsecret = "env:STAND_IN_KEY"\n'
            for name, kind in records
        )
    )
    running = Running(data, environment={"STAND_IN_KEY": KEY}).start()
    yield running
    assert running.stop() == 0, running.log()


def script(agent: Agent) -> str:
    return f'priced_as = "{agent.model}"' + HEAD + TURNS


def run(server: Running, agent: Agent, **members: Any) -> dict[str, Any]:
    with server.http() as http:
        body = {
            "dataset": "tests/hello-world@1",
            "profile_name": f"tollbar/{agent.name}",
            "params": {"MODEL": agent.model},
            **members,
        }
        answer = http.post("/v1/job", json=body)
        assert answer.status_code == 202, answer.text
        return server.finished(answer.json()["job_id"])


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL23", "G-GW-GL18")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_real_agent_solves_a_task_and_the_ledger_is_the_hand_computed_cost(
    server: Running, provider: StandIn, agent: Agent
) -> None:
    realagents.require(agent.name)
    provider.plays(script(agent), agent.name)
    job = run(server, agent, max_cost_usd="5")
    (trial,) = trials_of(server, job["job_id"])
    assert (job["status"], job["score"]) == ("completed", 1.0), (job, trial)
    main = agent.usd((3000, 1000, 60), (3200, 3000, 20))
    sides = len(provider.calls) - 2
    assert Decimal(job["cost"]["model_usd"]) == main + sides * agent.usd((100, 0, 10))
    assert Decimal(job["cost"]["total_usd"]) == Decimal(job["cost"]["model_usd"])
    assert (job["cost"]["reserved_usd"], job["cost"]["simulated"]) == ("0", False)
    assert all(KEY in one.headers.get("x-api-key", "") + one.headers.get("authorization", "") for one in provider.calls)
    assert not any("tbv_" in json.dumps(dict(one.headers)) + one.body.decode() for one in provider.asked)


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL40")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_with_a_cap_below_one_call_the_job_ends_before_the_provider_is_asked(
    server: Running, provider: StandIn, agent: Agent
) -> None:
    realagents.require(agent.name)
    provider.plays(script(agent), agent.name)
    job = run(server, agent, max_cost_usd="0.0001")
    (trial,) = trials_of(server, job["job_id"])
    assert (job["status"], job["error"]["code"], job["cost"]["total_usd"]) == ("cancelled", "BUDGET_EXCEEDED", "0")
    assert (trial["status"], trial["reason"]) == ("cancelled", "BUDGET_EXCEEDED")
    assert provider.calls == []


@pytest.mark.slow
def test_a_job_that_reaches_its_cap_keeps_what_was_finished(server: Running, provider: StandIn) -> None:
    agent = AGENTS[2]
    realagents.require(agent.name)
    provider.plays(script(agent), agent.name)
    one = agent.usd((3000, 1000, 60), (3200, 3000, 20))
    # A call's bound is far above its cost, so the cap is that of one Trial's bound and a little of the next one's.
    job = run(server, agent, max_cost_usd="0.0045", attempts=9, max_concurrent=1)
    ended = trials_of(server, job["job_id"])
    scored = [trial for trial in ended if trial["status"] == "succeeded"]
    assert (job["status"], job["error"]["code"]) == ("cancelled", "BUDGET_EXCEEDED")
    assert 0 < len(scored) < 9
    assert job["n_scored"] == len(scored)
    assert {trial["status"] for trial in ended} == {"succeeded", "cancelled"}
    assert len(scored) * one <= Decimal(job["cost"]["total_usd"]) <= Decimal("0.0045")
    assert job["cost"]["reserved_usd"] == "0"


@pytest.mark.slow
@pytest.mark.requirement("G-GW-GL32", "EV-CAP-unmetered")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_model_without_a_price_ends_a_capped_job_before_any_trial(
    server: Running, provider: StandIn, agent: Agent
) -> None:
    realagents.require(agent.name)
    provider.plays(script(agent), agent.name)
    job = run(server, agent, params={"MODEL": f"{agent.model.partition(':')[0]}:unheard-of-1"}, max_cost_usd="5")
    assert (job["status"], job["error"]["code"], job["n_scored"]) == ("cancelled", "BUDGET_UNMETERED", 0)
    with server.http() as http:
        told = [event["type"] for event in http.get(f"/v1/job/{job['job_id']}/events?limit=100").json()["items"]]
    assert "trial.started" not in told
    assert [trial["reason"] for trial in trials_of(server, job["job_id"])] == ["BUDGET_UNMETERED"]
    assert provider.asked == []
