"""mini-swe-agent: run by its own command line, on the sandbox's interpreter, with the gateway as its only way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents import atif, coding
from tollbar.agents.adapter import AgentOutput, AgentPlan, AgentReport, AgentTask, ModelUse
from tollbar.agents.atif import Turn
from tollbar.agents.software import inside
from tollbar.gateway.dialects import Dialect

PACKAGE: Final = "mini-swe-agent"
_PROGRAM: Final = inside(PACKAGE, "bin/mini")
_TRAJECTORY: Final = "/logs/agent/mini-swe-agent.traj.json"
_ATTEMPTS: Final = "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"
_DEFAULT_ATTEMPTS: Final = 5
_CHECKS: Final[Mapping[str, coding.Check]] = {
    "MODEL": coding.is_model,
    _ATTEMPTS: coding.is_count(1, 100),
    "AGENT_VERSION": coding.is_version,
}
_ENV: Final = {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a price list at its start
}


@dataclass(frozen=True)
class MiniSweAgent:
    """Runs `mini` without questions and without its own cost limit: the ledger is the cap."""

    name: str = "mini-swe-agent"
    parameters: frozenset[str] = frozenset(_CHECKS)
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        found = coding.problem(self.name, _CHECKS, params)
        return found or coding.provider_problem(
            self.name, params, ("MODEL",), "chat completions or Anthropic's messages", {"google"}
        )

    def models(self, params: Mapping[str, Any]) -> tuple[ModelUse, ...]:
        return (ModelUse(params["MODEL"], _dialect(params)),)

    def software(self, params: Mapping[str, Any]) -> str:
        return coding.software(PACKAGE, params)

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        gateway = coding.access(task)
        wire = gateway.models[params["MODEL"]].wire
        if _dialect(params) is Dialect.MESSAGES:
            model = f"anthropic/{wire}"
            env = {"ANTHROPIC_API_KEY": gateway.key, "ANTHROPIC_API_BASE": gateway.base_url}
        else:
            model, base = f"openai/{wire}", f"{gateway.base_url}/v1"
            env = {"OPENAI_API_KEY": gateway.key, "OPENAI_API_BASE": base, "OPENAI_BASE_URL": base}
        attempts = params.get(_ATTEMPTS)
        env |= {**_ENV, _ATTEMPTS: str(_DEFAULT_ATTEMPTS if attempts is None else attempts)}
        options = ("-y", "--exit-immediately", "-l", "0", "-o", _TRAJECTORY)
        argv = (_PROGRAM, "-m", model, f"--task={coding.instruction(task)}", *options)
        return AgentPlan(
            argv=coding.at_home("MSWEA_GLOBAL_CONFIG_DIR", PACKAGE, argv),
            env=env,
            log="mini-swe-agent.txt",
            setup=((_PROGRAM, "--which-python"),),
            software=self.software(params),
            reads=(_TRAJECTORY,),
        )

    def report(self, left: AgentOutput) -> AgentReport:
        document = atif.mapping(atif.parsed(left.files.get(_TRAJECTORY, b"")))
        info = atif.mapping(document.get("info"))
        version = (left.software or "").partition("@")[2] or atif.text(info.get("mini_version")) or None
        turns: list[Turn] = []
        for message in atif.items(document.get("messages")):
            _message(turns, message)
        stats = atif.mapping(info.get("model_stats"))
        claims = _claims(turns, stats) if document else {}
        model = atif.text(atif.mapping(atif.mapping(info.get("config")).get("model")).get("model_name")) or None
        return AgentReport(
            version=version,
            claims=claims or None,
            trajectory=atif.trajectory(PACKAGE, version, turns, claims=claims, model=model),
        )


def _dialect(params: Mapping[str, Any]) -> Dialect:
    return Dialect.MESSAGES if str(params["MODEL"]).startswith("anthropic:") else Dialect.CHAT


def _message(turns: list[Turn], message: Mapping[str, Any]) -> None:
    extra = atif.mapping(message.get("extra"))
    said = atif.text(message.get("content"))
    match message.get("role"):
        case "system" | "user" as source:
            turns.append(Turn(source, said, timestamp=atif.moment(extra.get("timestamp"))))
        case "assistant":
            turns.append(_answer(message, extra))
        case "tool":
            call = atif.text(message.get("tool_call_id"))
            owner = next((turn for turn in reversed(turns) if any(call == own[0] for own in turn.calls)), None)
            if owner is not None:
                owner.results.append((call, said))
        case _:
            pass


def _answer(message: Mapping[str, Any], extra: Mapping[str, Any]) -> Turn:
    turn = Turn(message=atif.text(message.get("content")), reasoning=atif.text(message.get("reasoning_content")))
    turn.timestamp = atif.moment(extra.get("timestamp"))
    for call in atif.items(message.get("tool_calls")):
        function = atif.mapping(call.get("function"))
        arguments = atif.mapping(atif.parsed(atif.text(function.get("arguments")).encode("utf-8", "replace")))
        turn.calls.append((atif.text(call.get("id")), atif.text(function.get("name")), arguments))
    response = atif.mapping(extra.get("response"))
    usage = atif.mapping(response.get("usage"))
    turn.model = atif.text(response.get("model")) or None
    if usage:
        cached = atif.number(atif.mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
        prompt, completion = atif.number(usage.get("prompt_tokens")), atif.number(usage.get("completion_tokens"))
        turn.metrics = atif.metrics(prompt, cached, completion, atif.amount(extra.get("cost")))
    return turn


def _claims(turns: list[Turn], stats: Mapping[str, Any]) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(turn.metrics.get(name, 0) for turn in turns)

    found = {
        "turns": atif.number(stats.get("api_calls")),
        "input_tokens": total("prompt_tokens"),
        "cached_input_tokens": total("cached_tokens"),
        "output_tokens": total("completion_tokens"),
        "cost_usd": atif.amount(stats.get("instance_cost")),
    }
    return {name: value for name, value in found.items() if value is not None}
