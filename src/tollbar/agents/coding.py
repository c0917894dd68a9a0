"""What the adapters of coding agents share: their parameters, the instruction on a command line, where they live."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from tollbar.agents.adapter import AgentTask, GatewayAccess
from tollbar.agents.errors import AgentSetupFailed

MAX_INSTRUCTION_BYTES: Final = 120_000
"""One argument of a process holds at most 128 KiB."""
_MODEL: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*:[^\s\x00-\x1f\x7f]{1,200}", re.ASCII)
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}", re.ASCII)

# An agent's own settings start empty, wherever the image's user lives, and those in the image do not count; the image's
# home stays, because its tools may be there.
_AT_HOME: Final = (
    'name=$1 home="${HOME:-/root}/.tollbar/$2" && shift 2 && mkdir -p "$home" && export "$name=$home" && exec "$@"'
)

Check = Callable[[object], str | None]
"""Returns what a value of a parameter must be, when it is not."""


def is_model(value: object) -> str | None:
    """The model that the gateway calls, by its provider."""
    fits = isinstance(value, str) and _MODEL.fullmatch(value) is not None
    return None if fits else "a model as PROVIDER:MODEL, such as openai:gpt-5-mini"


def is_count(least: int, most: int) -> Check:
    """Returns the check of a whole number, which may be written as text."""

    def check(value: object) -> str | None:
        fits = not isinstance(value, bool) and isinstance(value, int | str) and str(value).isdecimal()
        return None if fits and least <= int(str(value)) <= most else f"a whole number from {least} to {most}"

    return check


def is_word(known: Collection[str]) -> Check:
    """Returns the check of one of some words."""

    def check(value: object) -> str | None:
        return None if value in known else f"one of {', '.join(sorted(known))}"

    return check


def is_version(value: object) -> str | None:
    """A version of the software that is installed where the worker runs."""
    return None if isinstance(value, str) and _VERSION.fullmatch(value) else "a version, as in: tollbar agents list"


def problem(agent: str, checks: Mapping[str, Check], params: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with parameters: no model, or a value that its check refuses."""
    if params.get("MODEL") is None:
        return f"the agent {agent} needs the parameter MODEL, a model as PROVIDER:MODEL"
    for name, check in checks.items():
        if params.get(name) is not None and (must := check(params[name])) is not None:
            return f"the parameter {name} must be {must}"
    return None


def provider_problem(
    agent: str, params: Mapping[str, Any], names: Collection[str], speaks: str, without: Collection[str]
) -> str | None:
    """Returns what is wrong with a model whose provider is known not to speak the agent's dialect."""
    for name in names:
        provider = str(params.get(name) or "").partition(":")[0]
        if provider in without:
            return f"the agent {agent} speaks {speaks}, and the provider {provider} of {name} does not"
    return None


def software(package: str, params: Mapping[str, Any]) -> str:
    """Returns the software that a Job needs: the version that it names, or the newest that was installed."""
    version = params.get("AGENT_VERSION")
    return f"{package}@{version}" if version is not None else package


def instruction(task: AgentTask) -> str:
    """Returns the instruction as one argument; raises `AgentSetupFailed` when no process could be given it."""
    text = task.instruction or ""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_INSTRUCTION_BYTES or "\0" in text:
        raise AgentSetupFailed("install", f"The instruction is longer than {MAX_INSTRUCTION_BYTES} bytes.")
    return text


def access(task: AgentTask) -> GatewayAccess:
    """Returns how the agent reaches its models."""
    assert task.gateway is not None, "an agent with models is given a gateway"
    return task.gateway


def at_home(variable: str, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a command that runs `argv` with the variable set to a folder of its own in the home of the sandbox."""
    return ("/bin/sh", "-c", _AT_HOME, "sh", variable, name, *argv)


def environment(params: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Returns the parameters of these names as variables, those that are set."""
    return {name: str(params[name]) for name in sorted(names) if params.get(name) is not None}
