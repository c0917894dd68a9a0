"""Adapters of coding agents: the command line and variables of each, what it refuses, and what it reads afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.agents import atif_reader

from tollbar.agents.adapter import AgentOutput, AgentTask, GatewayAccess, ModelUse, ServedModel
from tollbar.agents.errors import AgentSetupFailed
from tollbar.agents.registry import ADAPTERS
from tollbar.gateway.dialects import Dialect

KEY = "tbv_secret"
CLAUDE, HAIKU, GPT = "anthropic:claude-sonnet-4-5", "anthropic:claude-haiku-4-5", "openai:gpt-5-mini"
CODING = pytest.mark.parametrize(
    ("agent", "model"), [("claude-code", CLAUDE), ("codex", GPT), ("mini-swe-agent", GPT), ("mini-swe-agent", CLAUDE)]
)


def task(agent: str, params: dict[str, Any], instruction: str = "Do it.") -> AgentTask:
    served = {use.name: ServedModel(use.name.partition(":")[2], "") for use in ADAPTERS[agent].models(params)}
    return AgentTask(instruction, False, {}, "/app", GatewayAccess("http://127.0.0.1:8787", KEY, served))


def after(words: tuple[str, ...], word: str) -> str:
    return words[words.index(word) + 1]


def lines(*events: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in events)


# --- command lines


def test_claude_code_runs_without_questions_offline_and_with_its_side_models_routed() -> None:
    params = {"MODEL": CLAUDE, "ANTHROPIC_DEFAULT_HAIKU_MODEL": HAIKU, "MAX_THINKING_TOKENS": 4096}
    adapter = ADAPTERS["claude-code"]
    assert adapter.models(params) == (
        ModelUse(CLAUDE, Dialect.MESSAGES),
        ModelUse(HAIKU, Dialect.MESSAGES, side=True),
    )
    plan = adapter.plan(task("claude-code", params), params)
    assert plan.argv is not None
    words = plan.argv[plan.argv.index("/opt/tollbar/agents/claude-code/bin/claude") :]
    assert words == (
        "/opt/tollbar/agents/claude-code/bin/claude",
        *("-p", "--model", "claude-sonnet-4-5", "--permission-mode", "bypassPermissions"),
        *("--output-format", "stream-json", "--verbose", "--disallowedTools", "WebSearch,WebFetch", "--", "Do it."),
    )
    assert plan.env == {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:8787",
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude-haiku-4-5",
        "CLAUDE_CODE_SUBAGENT_MODEL": "claude-sonnet-4-5",
        "MAX_THINKING_TOKENS": "4096",
    }


def test_codex_gets_the_gateway_as_a_provider_and_keeps_its_retries() -> None:
    params = {"MODEL": GPT, "MODEL_REASONING_EFFORT": "low"}
    adapter = ADAPTERS["codex"]
    assert adapter.models(params) == (ModelUse(GPT, Dialect.RESPONSES),)
    plan = adapter.plan(task("codex", params), params)
    assert plan.argv is not None
    words = plan.argv[plan.argv.index("/opt/tollbar/agents/codex/bin/codex") :]
    provider = 'name="trial",base_url="http://127.0.0.1:8787/v1",env_key="TRIAL_KEY",wire_api="responses"'
    settings = {after(words[at:], "-c") for at, word in enumerate(words) if word == "-c"}
    assert settings == {
        'model_provider="trial"',
        f"model_providers.trial={{{provider}}}",
        "analytics.enabled=false",
        "check_for_update_on_startup=false",
        'web_search="disabled"',
        'model_reasoning_effort="low"',
    }
    assert (words[1], after(words, "-m"), words[-2:]) == ("exec", "gpt-5-mini", ("--", "Do it."))
    flags = {"--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "--ephemeral"}
    assert flags | {"--ignore-user-config"} <= set(words)
    assert plan.env == {"TRIAL_KEY": KEY}


@pytest.mark.parametrize(
    ("model", "name", "dialect", "variables"),
    [
        (
            GPT,
            "openai/gpt-5-mini",
            Dialect.CHAT,
            {
                "OPENAI_API_KEY": KEY,
                "OPENAI_API_BASE": "http://127.0.0.1:8787/v1",
                "OPENAI_BASE_URL": "http://127.0.0.1:8787/v1",
            },
        ),
        (
            CLAUDE,
            "anthropic/claude-sonnet-4-5",
            Dialect.MESSAGES,
            {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_API_BASE": "http://127.0.0.1:8787"},
        ),
    ],
    ids=["chat", "messages"],
)
def test_mini_swe_agent_speaks_the_providers_dialect_without_a_cost_limit_of_its_own(
    model: str, name: str, dialect: Dialect, variables: dict[str, str]
) -> None:
    params = {"MODEL": model}
    adapter = ADAPTERS["mini-swe-agent"]
    assert adapter.models(params) == (ModelUse(model, dialect),)
    plan = adapter.plan(task("mini-swe-agent", params), params)
    assert plan.argv is not None
    assert (after(plan.argv, "-m"), after(plan.argv, "-l")) == (name, "0")
    assert {"--task=Do it.", "-y", "--exit-immediately"} <= set(plan.argv)
    assert plan.env == variables | {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "5",
    }


def test_how_often_mini_swe_agent_tries_again_is_a_parameter() -> None:
    params = {"MODEL": GPT, "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1"}
    plan = ADAPTERS["mini-swe-agent"].plan(task("mini-swe-agent", params), params)
    assert plan.env["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] == "1"


@CODING
def test_the_key_is_in_no_argument_and_the_instruction_is_one_whatever_it_begins_with(agent: str, model: str) -> None:
    params = {"MODEL": model}
    text = '--help "quoted" $HOME `x`\n- second'
    plan = ADAPTERS[agent].plan(task(agent, params, text), params)
    assert plan.argv is not None
    assert not [word for word in plan.argv if KEY in word]
    assert plan.argv[-1] == text or f"--task={text}" in plan.argv


@CODING
def test_an_instruction_that_no_process_could_be_given_is_a_failed_set_up(agent: str, model: str) -> None:
    params = {"MODEL": model}
    for text in ("x" * 120_001, "a\0b"):
        with pytest.raises(AgentSetupFailed):
            ADAPTERS[agent].plan(task(agent, params, text), params)


@CODING
def test_the_software_is_the_newest_or_the_version_that_a_job_names(agent: str, model: str) -> None:
    adapter = ADAPTERS[agent]
    params = {"MODEL": model}
    assert adapter.software(params) == agent
    pinned = {**params, "AGENT_VERSION": "1.2.3"}
    assert adapter.plan(task(agent, pinned), pinned).software == adapter.software(pinned) == f"{agent}@1.2.3"


# --- what is refused


@CODING
@pytest.mark.parametrize(
    "wrong",
    [
        {"MODEL": None},
        {"MODEL": "gpt-5-mini"},
        {"MODEL": "openai:a b"},
        {"MODEL": 5},
        {"AGENT_VERSION": "../../x"},
        {"AGENT_VERSION": 2},
    ],
    ids=str,
)
def test_a_parameter_that_cannot_be_is_named(agent: str, model: str, wrong: dict[str, Any]) -> None:
    assert ADAPTERS[agent].problem({"MODEL": model}) is None
    problem = ADAPTERS[agent].problem({"MODEL": model} | wrong)
    assert problem is not None
    assert next(iter(wrong)) in problem


@pytest.mark.parametrize(
    ("agent", "params", "named"),
    [
        ("claude-code", {"MODEL": GPT}, "openai"),
        ("claude-code", {"MODEL": CLAUDE, "CLAUDE_CODE_SUBAGENT_MODEL": GPT}, "CLAUDE_CODE_SUBAGENT_MODEL"),
        ("claude-code", {"MODEL": CLAUDE, "MAX_THINKING_TOKENS": -1}, "MAX_THINKING_TOKENS"),
        ("claude-code", {"MODEL": CLAUDE, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": True}, "CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
        ("codex", {"MODEL": CLAUDE}, "anthropic"),
        ("codex", {"MODEL": GPT, "MODEL_REASONING_EFFORT": 'low"'}, "MODEL_REASONING_EFFORT"),
        ("mini-swe-agent", {"MODEL": "google:gemini-2.5-pro"}, "google"),
        ("mini-swe-agent", {"MODEL": GPT, "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": 0}, "ATTEMPT"),
    ],
)
def test_a_model_in_another_dialect_and_a_wrong_number_are_refused(
    agent: str, params: dict[str, Any], named: str
) -> None:
    problem = ADAPTERS[agent].problem(params)
    assert problem is not None
    assert named in problem


# --- what they left

CLAUDE_LOG = lines(
    {
        "type": "system",
        "subtype": "init",
        "session_id": "s-1",
        "model": "claude-sonnet-4-5",
        "claude_code_version": "2.1.197",
    },
    {
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I look."}],
            "usage": {"input_tokens": 100, "cache_creation_input_tokens": 500, "cache_read_input_tokens": 400},
        },
        "parent_tool_use_id": None,
    },
    {
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}],
        },
        "parent_tool_use_id": None,
    },
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a b"}]},
        "parent_tool_use_id": None,
    },
    {
        "type": "assistant",
        "message": {"id": "msg_9", "content": [{"type": "text", "text": "of a sub-agent"}]},
        "parent_tool_use_id": "t1",
    },
    {
        "type": "result",
        "num_turns": 2,
        "total_cost_usd": 0.00609,
        "usage": {
            "input_tokens": 200,
            "cache_creation_input_tokens": 1000,
            "cache_read_input_tokens": 800,
            "output_tokens": 100,
        },
    },
)
CODEX_LOG = b"Reading additional input from stdin...\n" + lines(
    {"type": "thread.started", "thread_id": "th-1"},
    {"type": "item.completed", "item": {"id": "i0", "type": "error", "message": "Model metadata not found."}},
    {"type": "item.completed", "item": {"id": "i1", "type": "reasoning", "text": "Hm."}},
    {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": "I look."}},
    {"type": "item.started", "item": {"id": "i3", "type": "command_execution", "command": "ls"}},
    {
        "type": "item.completed",
        "item": {"id": "i3", "type": "command_execution", "command": "ls", "aggregated_output": "a\n", "exit_code": 0},
    },
    {"type": "item.completed", "item": {"id": "i4", "type": "agent_message", "text": "Done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 2000, "cached_input_tokens": 800, "output_tokens": 100}},
)
MINI_FILE = {
    "info": {
        "model_stats": {"instance_cost": 0.00026, "api_calls": 1},
        "mini_version": "2.4.6",
        "config": {"model": {"model_name": "openai/gpt-5-mini"}},
    },
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Do it."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
            "extra": {
                "cost": 0.00026,
                "timestamp": 1796116176.5,
                "response": {
                    "model": "gpt-5-mini",
                    "usage": {
                        "prompt_tokens": 1000,
                        "completion_tokens": 50,
                        "prompt_tokens_details": {"cached_tokens": 400},
                    },
                },
            },
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a b"},
        {"role": "exit", "content": ""},
    ],
}
MINI_PATH = "/logs/agent/mini-swe-agent.traj.json"


def test_claude_codes_events_become_steps_with_its_own_count_beside_them() -> None:
    left = AgentOutput(0, CLAUDE_LOG, instruction="Do it.", software="claude-code@2.1.200")
    report = ADAPTERS["claude-code"].report(left)
    assert report.version == "2.1.200", "what was installed, not what a process in the sandbox says"
    assert report.claims == {
        "turns": 2,
        "input_tokens": 2000,
        "cached_input_tokens": 800,
        "output_tokens": 100,
        "cost_usd": "0.00609",
    }
    user, answer = atif_reader.read(report.trajectory)
    assert (user["source"], user["message"]) == ("user", "Do it.")
    assert (answer["message"], answer["reasoning_content"]) == ("I look.", "Hm.")
    assert answer["tool_calls"] == [{"tool_call_id": "t1", "function_name": "Bash", "arguments": {"command": "ls"}}]
    assert answer["observation"] == {"results": [{"source_call_id": "t1", "content": "a b"}]}
    assert answer["metrics"] == {"prompt_tokens": 1000, "cached_tokens": 400}
    assert report.trajectory is not None
    assert "sub-agents" in report.trajectory["notes"]


def test_codexs_events_become_steps_and_a_warning_is_none() -> None:
    report = ADAPTERS["codex"].report(AgentOutput(0, CODEX_LOG, instruction="Do it.", software="codex@0.171.0"))
    assert (report.version, report.claims) == (
        "0.171.0",
        {"input_tokens": 2000, "cached_input_tokens": 800, "output_tokens": 100},
    )
    _, first, second = atif_reader.read(report.trajectory)
    assert (first["reasoning_content"], first["message"], second["message"]) == ("Hm.", "I look.", "Done.")
    assert first["observation"]["results"] == [{"source_call_id": "i3", "content": "a\n[exit code 0]"}]


def test_mini_swe_agents_file_becomes_steps_with_their_times_and_costs() -> None:
    left = AgentOutput(0, b"", {MINI_PATH: json.dumps(MINI_FILE).encode()}, software="mini-swe-agent@2.4.6")
    report = ADAPTERS["mini-swe-agent"].report(left)
    assert report.claims == {
        "turns": 1,
        "input_tokens": 1000,
        "cached_input_tokens": 400,
        "output_tokens": 50,
        "cost_usd": "0.00026",
    }
    system, user, answer = atif_reader.read(report.trajectory)
    assert (system["source"], user["source"]) == ("system", "user")
    assert answer["timestamp"] == "2026-12-01T09:09:36.500000+00:00"
    assert answer["metrics"] == {
        "prompt_tokens": 1000,
        "cached_tokens": 400,
        "completion_tokens": 50,
        "cost_usd": 0.00026,
    }
    assert answer["observation"]["results"] == [{"source_call_id": "c1", "content": "a b"}]


HOSTILE: list[object] = [
    None,
    True,
    -1,
    1e400,
    float("nan"),
    2**80,
    "\ud800",
    [],
    {},
    [None],
    {"content": 5},
    {"usage": []},
    [{"type": "text", "text": 3}],
]


def _variants(value: Any, wrong: object) -> list[Any]:
    """Returns the value with each of its parts, one after the other, replaced."""
    if isinstance(value, dict):
        parts = list(value.items())
        return [wrong] + [{**value, key: other} for key, part in parts for other in _variants(part, wrong)]
    if isinstance(value, list):
        numbered = list(enumerate(value))
        return [wrong] + [
            [*value[:at], other, *value[at + 1 :]] for at, part in numbered for other in _variants(part, wrong)
        ]
    return [wrong]


@pytest.mark.parametrize("wrong", HOSTILE, ids=repr)
@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_events_with_any_part_replaced_still_give_a_readable_trajectory(agent: str, wrong: object) -> None:
    log = CLAUDE_LOG if agent == "claude-code" else CODEX_LOG
    events = [json.loads(line) for line in log.splitlines() if line.startswith(b"{")]
    for at, event in enumerate(events):
        for other in _variants(event, wrong):
            changed = lines(*events[:at], other, *events[at + 1 :])
            report = ADAPTERS[agent].report(AgentOutput(1, changed, instruction="Do it."))
            atif_reader.read(report.trajectory)
            json.dumps(report.claims, allow_nan=False)


@pytest.mark.parametrize("wrong", HOSTILE, ids=repr)
def test_a_file_with_any_part_replaced_still_gives_a_readable_trajectory(wrong: object) -> None:
    for other in _variants(MINI_FILE, wrong):
        report = ADAPTERS["mini-swe-agent"].report(AgentOutput(1, b"", {MINI_PATH: json.dumps(other).encode()}))
        if report.trajectory is not None:
            atif_reader.read(report.trajectory)
        json.dumps(report.claims, allow_nan=False)


@CODING
def test_an_agent_that_left_nothing_or_noise_is_no_error(agent: str, model: str) -> None:
    for log in (b"", b"\xff\xfe{\n{}\n{" + b"[" * 100_000, b'{"type": "assistant"}\n{"type": "item.completed"}'):
        left = AgentOutput(None, log, {MINI_PATH: log}, software=f"{agent}@1.0")
        report = ADAPTERS[agent].report(replace(left, instruction="Do it."))
        assert report.version == "1.0"
        if report.trajectory is not None:
            atif_reader.read(report.trajectory)
