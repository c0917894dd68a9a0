"""Codex: run by its own command line, in the sandbox, with the gateway as its only provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents import atif, coding
from tollbar.agents.adapter import AgentOutput, AgentPlan, AgentReport, AgentTask, ModelUse
from tollbar.agents.atif import Turn
from tollbar.agents.software import inside
from tollbar.gateway.dialects import Dialect

PACKAGE: Final = "codex"
_PROGRAM: Final = inside(PACKAGE, "bin/codex")
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
_CHECKS: Final[Mapping[str, coding.Check]] = {
    "MODEL": coding.is_model,
    "MODEL_REASONING_EFFORT": coding.is_word(_EFFORTS),
    "AGENT_VERSION": coding.is_version,
}
_KEY: Final = "TRIAL_KEY"


@dataclass(frozen=True)
class Codex:
    """Runs `codex exec` without questions and without its own sandbox; it has one.

    Its retries stay as they are: the gateway answers what must not be tried again by a status that it does not retry.
    """

    name: str = "codex"
    parameters: frozenset[str] = frozenset(_CHECKS)
    uses_solution: bool = False

    def problem(self, params: Mapping[str, Any]) -> str | None:
        found = coding.problem(self.name, _CHECKS, params)
        return found or coding.provider_problem(
            self.name, params, ("MODEL",), "OpenAI's responses", {"anthropic", "google", "mistral"}
        )

    def models(self, params: Mapping[str, Any]) -> tuple[ModelUse, ...]:
        return (ModelUse(params["MODEL"], Dialect.RESPONSES),)

    def software(self, params: Mapping[str, Any]) -> str:
        return coding.software(PACKAGE, params)

    def plan(self, task: AgentTask, params: Mapping[str, Any]) -> AgentPlan:
        gateway = coding.access(task)
        provider = f'{{name="trial",base_url="{gateway.base_url}/v1",env_key="{_KEY}",wire_api="responses"}}'
        settings = [
            'model_provider="trial"',
            f"model_providers.trial={provider}",
            "analytics.enabled=false",
            "check_for_update_on_startup=false",
            'web_search="disabled"',
        ]
        effort = params.get("MODEL_REASONING_EFFORT")
        if effort is not None:
            settings.append(f"model_reasoning_effort={json.dumps(effort)}")
        flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "--ephemeral")
        argv = (_PROGRAM, "exec", *flags, "--ignore-user-config", "-m", gateway.models[params["MODEL"]].wire)
        argv += tuple(word for setting in settings for word in ("-c", setting))
        return AgentPlan(
            argv=coding.at_home("CODEX_HOME", PACKAGE, (*argv, "--", coding.instruction(task))),
            env={_KEY: gateway.key},
            log="codex.txt",
            setup=((_PROGRAM, "--version"),),
            software=self.software(params),
        )

    def report(self, left: AgentOutput) -> AgentReport:
        version = (left.software or "").partition("@")[2] or None
        turns = [Turn("user", left.instruction)] if left.instruction else []
        session: str | None = None
        claims: dict[str, Any] = {}
        for event in atif.lines(left.log):
            match event.get("type"):
                case "thread.started":
                    session = atif.text(event.get("thread_id")) or None
                case "item.completed":
                    _item(turns, atif.mapping(event.get("item")))
                case "turn.completed":
                    claims = _claims(atif.mapping(event.get("usage")))
                case _:
                    pass
        document = atif.trajectory(PACKAGE, version, turns, claims=claims, session_id=session)
        return AgentReport(version=version, claims=claims or None, trajectory=document)


def _item(turns: list[Turn], item: Mapping[str, Any]) -> None:
    """Adds an item: its events do not say which answer of the model it was part of, so a call ends a step's text."""
    kind = atif.text(item.get("type"))
    if kind in {"agent_message", "reasoning"}:
        turn = _open(turns, fresh=True)
        if kind == "reasoning":
            turn.reasoning += atif.text(item.get("text"))
        else:
            turn.message += atif.text(item.get("text"))
        return
    if kind in {"", "error", "todo_list"}:
        return  # a warning on the model's metadata is an `error`, too
    turn = _open(turns, fresh=False)
    call = atif.text(item.get("id")) or f"call_{len(turn.calls)}"
    told = {"id", "type", "aggregated_output", "exit_code", "status"}
    turn.calls.append((call, kind, {name: value for name, value in item.items() if name not in told}))
    turn.results.append((call, _outcome(item)))


def _open(turns: list[Turn], *, fresh: bool) -> Turn:
    """Returns the step that goes on; a `fresh` text does not go on one that has called a tool or said something."""
    last = turns[-1] if turns and turns[-1].source == "agent" else None
    if last is None or (fresh and (last.calls or last.message)):
        last = Turn()
        turns.append(last)
    return last


def _outcome(item: Mapping[str, Any]) -> str:
    output, status = atif.text(item.get("aggregated_output")), item.get("exit_code")
    ended = f"exit code {status}" if isinstance(status, int) else atif.text(item.get("status"))
    return f"{output}[{ended}]" if ended else output


def _claims(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": atif.number(usage.get("input_tokens")),
        "cached_input_tokens": atif.number(usage.get("cached_input_tokens")),
        "output_tokens": atif.number(usage.get("output_tokens")),
    }
