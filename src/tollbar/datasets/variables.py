"""Variables in a task's environment tables: `${NAME}` and `${NAME:-default}`, resolved only from values handed in.

Never from the environment of the server or worker: a task could otherwise read their secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_WHOLE: Final = re.compile(rf"\$\{{({_NAME})(?::-(.*))?\}}", re.DOTALL)
_EMBEDDED: Final = re.compile(rf"\$\{{({_NAME})(?::-([^}}]*))?\}}")
_CREDENTIAL: Final = re.compile(rf"\s*(?:[A-Za-z]+\s+)?\$\{{{_NAME}\}}(?:[\s:-]*\$\{{{_NAME}\}})*\s*")
_SENSITIVE: Final = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)
_COOKIES: Final = frozenset({"cookie", "set-cookie"})


@dataclass(frozen=True)
class Reference:
    """A value that stands for a variable; `default` None means that the variable must exist."""

    name: str
    default: str | None


@dataclass(frozen=True)
class Resolved:
    """An environment without references; `missing` names variables that nobody gave, sorted."""

    env: dict[str, str]
    missing: tuple[str, ...]


def reference(value: str) -> Reference | None:
    """Returns the reference that a value is; text around it makes the value a literal (None)."""
    match = _WHOLE.fullmatch(value)
    return None if match is None else Reference(match[1], match[2])


def resolve(env: Mapping[str, str], values: Mapping[str, str]) -> Resolved:
    """Returns `env` with every reference replaced from `values` (a Job's parameters, granted secrets)."""
    found: dict[str, str] = {}
    missing: set[str] = set()
    for name, value in env.items():
        variable = reference(value)
        if variable is None:
            found[name] = value
        elif variable.name in values:
            found[name] = values[variable.name]
        elif variable.default is not None:
            found[name] = variable.default
        else:
            missing.add(variable.name)
    return Resolved(found, tuple(sorted(missing)))


def needed(*environments: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of variables without a default that these environments refer to, sorted."""
    names: set[str] = set()
    for env in environments:
        for value in env.values():
            variable = reference(value)
            if variable is not None and variable.default is None:
                names.add(variable.name)
    return tuple(sorted(names))


def header_problem(name: str, value: str) -> str | None:
    """Returns what is wrong with an HTTP header of an MCP server, or None; never repeats the value."""
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        return "is not a header name"
    if "\r" in value or "\n" in value:
        return "must not contain a line end"
    if "${" in _EMBEDDED.sub("", value):
        return "holds a reference that is neither ${NAME} nor ${NAME:-default}"
    sensitive = name.lower() in _COOKIES or _SENSITIVE.search(name) is not None
    defaults = [match for match in _EMBEDDED.finditer(value) if match[2]]
    literal = sensitive and value.strip() != "" and _CREDENTIAL.fullmatch(value) is None
    if literal or any(sensitive or _SENSITIVE.search(match[1]) for match in defaults):
        return "carries a credential: write it as ${NAME} without a default, optionally after a scheme word"
    return None
