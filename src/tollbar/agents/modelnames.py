"""Names of models as parameters give them: `provider:model`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tollbar.gateway.dialects import Dialect

_FORM: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}:[^\s\x00-\x1f\x7f]{1,200}", re.ASCII)
_DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect.RESPONSES,
    "anthropic": Dialect.MESSAGES,
    "google": Dialect.GEMINI,
}


def model_problem(agent: str, parameter: str, value: object) -> str | None:
    """Returns what is wrong with a parameter that must name a model; None: nothing."""
    if value is None:
        return f"the agent {agent} needs {parameter}, a provider and a model, such as anthropic:claude-sonnet-4-5"
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        return f"{parameter} must be a provider and a model, such as anthropic:claude-sonnet-4-5"
    return None


def dialect_of(kind: str) -> Dialect:
    """Returns in which dialect a provider of a kind (or a model of it by name) is asked: chat unless it has its own."""
    return _DIALECTS.get(kind.partition(":")[0], Dialect.CHAT)
