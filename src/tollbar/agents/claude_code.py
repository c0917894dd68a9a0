"""Claude Code: run by its own command line, in the sandbox, with the gateway as its only way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents import atif, coding
from tollbar.agents.adapter import AgentOutput, AgentPlan, AgentReport, AgentTask, ModelUse
from tollbar.agents.atif import Turn
from tollbar.agents.software import inside
from tollbar.gateway.dialects import Dialect

PACKAGE: Final = "claude-code"
_PROGRAM: Final = inside(PACKAGE, "bin/claude")
_SIDES: Final = ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
_PASSED: Final = ("MAX_THINKING_TOKENS", "CLAUDE_CODE_MAX_OUTPUT_TOKENS")
_CHECKS: Final[Mapping[str, coding.Check]] = {
    "MODEL": coding.is_model,
    **dict.fromkeys(_SIDES, coding.is_model),
    "MAX_THINKING_TOKENS": coding.is_count(0, 1_000_000),
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": coding.is_count(1, 1_000_000),
    "AGENT_VERSION": coding.is_version,
}
_OFFLINE: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "IS_SANDBOX": "1",  # else it refuses to run without questions as uid 0
}


@dataclass(frozen=True)
class ClaudeCode:
    """Runs `claude -p` without questions; what searches the web is switched off, because the gateway refuses it.

    Side models (titles, summaries, sub-agents) are the main one unless parameters name others.
    """

    name: str = "claude-code"
    parameters: frozenset[str] = frozenset(_CHECKS)
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        found = coding.problem(self.name, _CHECKS, params)
        without = {"openai", "google", "mistral"}
        return found or coding.provider_problem(self.name, params, ("MODEL", *_SIDES), "Anthropic's messages", without)

    def models(self, params: Mapping[str, Any]) -> tuple[ModelUse, ...]:
        sides = dict.fromkeys(params[name] for name in _SIDES if params.get(name) not in {None, params["MODEL"]})
        own = ModelUse(params["MODEL"], Dialect.MESSAGES)
        return (own, *(ModelUse(name, Dialect.MESSAGES, side=True) for name in sides))

    def software(self, params: Mapping[str, Any]) -> str:
        return coding.software(PACKAGE, params)

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        gateway = coding.access(task)
        wires = {name: gateway.models[params.get(name) or params["MODEL"]].wire for name in _SIDES}
        env = {
            "ANTHROPIC_BASE_URL": gateway.base_url,
            "ANTHROPIC_API_KEY": gateway.key,
            **_OFFLINE,
            **wires,
            **coding.environment(params, _PASSED),
        }
        model = gateway.models[params["MODEL"]].wire
        options = ("--permission-mode", "bypassPermissions", "--output-format", "stream-json", "--verbose")
        argv = (_PROGRAM, "-p", "--model", model, *options, "--disallowedTools", "WebSearch,WebFetch")
        return AgentPlan(
            argv=coding.at_home("CLAUDE_CONFIG_DIR", PACKAGE, (*argv, "--", coding.instruction(task))),
            env=env,
            log="claude-code.txt",
            setup=((_PROGRAM, "--version"),),
            software=self.software(params),
        )

    def report(self, left: AgentOutput) -> AgentReport:
        return _Reading(left).report()


class _Reading:
    """Reads the events of `--output-format stream-json`, one object a line."""

    def __init__(self, left: AgentOutput) -> None:
        self._left = left
        self._version: str | None = None
        self._session: str | None = None
        self._model: str | None = None
        self._turns = [Turn("user", left.instruction)] if left.instruction else []
        self._by_call: dict[str, Turn] = {}
        self._by_message: dict[str, Turn] = {}
        self._claims: dict[str, Any] = {}
        self._elsewhere = 0

    def report(self) -> AgentReport:
        for event in atif.lines(self._left.log):
            self._take(event)
        version = (self._left.software or "").partition("@")[2] or self._version
        notes = "What sub-agents said is in the log only." if self._elsewhere else None
        document = atif.trajectory(
            PACKAGE, version, self._turns, claims=self._claims, model=self._model, session_id=self._session, notes=notes
        )
        return AgentReport(version=version, claims=self._claims or None, trajectory=document)

    def _take(self, event: Mapping[str, Any]) -> None:
        if event.get("parent_tool_use_id") is not None:
            self._elsewhere += 1
            return
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                self._version = atif.text(event.get("claude_code_version")) or None
                self._session = atif.text(event.get("session_id")) or None
                self._model = atif.text(event.get("model")) or None
            case "assistant":
                self._assistant(atif.mapping(event.get("message")), event)
            case "user":
                for block in atif.items(atif.mapping(event.get("message")).get("content")):
                    self._result(block)
            case "result":
                self._claims = _claims(event)
            case _:
                pass

    def _assistant(self, message: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """One answer comes as one event for each of its blocks, all under its id."""
        key = atif.text(message.get("id"))
        turn = self._by_message.get(key) if key else None
        if turn is None:
            turn = Turn(model=atif.text(message.get("model")) or None, timestamp=atif.moment(event.get("timestamp")))
            self._turns.append(turn)
            self._by_message[key] = turn
        for block in atif.items(message.get("content")):
            match block.get("type"):
                case "text":
                    turn.message += atif.text(block.get("text"))
                case "thinking":
                    turn.reasoning += atif.text(block.get("thinking"))
                case "tool_use":
                    call = atif.text(block.get("id")) or f"call_{len(self._by_call)}"
                    turn.calls.append((call, atif.text(block.get("name")), atif.mapping(block.get("input"))))
                    self._by_call[call] = turn
                case _:
                    pass
        usage = atif.mapping(message.get("usage"))
        if usage:
            # The count of its output is that of the answer's first event, and so none.
            turn.metrics = atif.metrics(_prompt(usage), atif.number(usage.get("cache_read_input_tokens")), None)

    def _result(self, block: Mapping[str, Any]) -> None:
        call = atif.text(block.get("tool_use_id"))
        if block.get("type") == "tool_result" and call in self._by_call:
            content = block.get("content")
            said = "\n".join(atif.text(part.get("text")) for part in atif.items(content))
            self._by_call[call].results.append((call, content if isinstance(content, str) else said))


def _prompt(usage: Mapping[str, Any]) -> int:
    """Returns the input with the cache, of which Anthropic's count of input has nothing."""
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(atif.number(usage.get(part)) for part in parts)


def _claims(event: Mapping[str, Any]) -> dict[str, Any]:
    usage = atif.mapping(event.get("usage"))
    found = {
        "turns": atif.number(event.get("num_turns")),
        "input_tokens": _prompt(usage),
        "cached_input_tokens": atif.number(usage.get("cache_read_input_tokens")),
        "output_tokens": atif.number(usage.get("output_tokens")),
        "cost_usd": atif.amount(event.get("total_cost_usd")),
    }
    return {name: value for name, value in found.items() if value is not None}
