"""What one request asks for, read once from its body: everything that its price depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tollbar.gateway.contents import survey
from tollbar.gateway.dialects import Dialect, Route
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.fields import holder, limit_names
from tollbar.gateway.tools import without_schema

_MOST_TOKENS: Final = 10_000_000
_MOST_CANDIDATES: Final = 1_000
"""Above any model's; the worst case of both together is still a number that the ledger can hold."""

_LONG_CONTEXT: Final = "context-1m"


class CacheWrite(StrEnum):
    """The longest time to live of a cache that the request writes by `cache_control`."""

    FIVE_MINUTES = "5m"
    ONE_HOUR = "1h"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Ask:
    """A request's demands. Tokens are counts, bytes are of the decoded body; None means that the body says nothing."""

    dialect: Dialect
    model: str
    streamed: bool
    reports_usage: bool
    limits: Mapping[str, int]
    candidates: int
    thinking_budget: int | None
    body_bytes: int
    base64_bytes: int
    images: int
    whole_window: bool
    hidden_tools: int
    cache_write: CacheWrite | None
    service_tier: str | None
    speed: str | None
    region: str | None
    long_context: bool

    @property
    def limit(self) -> int | None:
        """Returns the output limit that bounds the answer: the larger one where the client sent two."""
        return max(self.limits.values(), default=None)


def read(route: Route, body: Mapping[str, Any], body_bytes: int, *, beta: str = "") -> Ask:
    """Returns what a request asks; `body_bytes` is its decoded length and `beta` its `anthropic-beta` header.

    Raises `Refused` (`INVALID_REQUEST`) where a member that decides about money has the wrong type.
    """
    dialect = route.dialect
    found = survey(dialect, body)
    held = holder(dialect, body)
    options = body.get("stream_options")
    streamed = route.streamed if route.streamed is not None else _switch(body, "stream")
    candidates = _count(held.get("candidateCount" if dialect is Dialect.GEMINI else "n")) or 1
    if candidates > _MOST_CANDIDATES:
        raise Refused(Code.INVALID_REQUEST, f"the body asks for more than {_MOST_CANDIDATES} answers")
    return Ask(
        dialect=dialect,
        model=route.model or _name(body),
        streamed=streamed,
        reports_usage=isinstance(options, dict) and options.get("include_usage") is True,
        limits={name: held[name] for name in limit_names(dialect) if _count(held.get(name)) is not None},
        candidates=candidates,
        thinking_budget=_thinking(body) if dialect is Dialect.MESSAGES else None,
        body_bytes=body_bytes,
        base64_bytes=found.base64_bytes,
        images=found.images,
        whole_window=found.whole_window,
        hidden_tools=without_schema(dialect, body),
        cache_write=_cache_write(body),
        service_tier=_word(body, "service_tier"),
        speed=_word(body, "speed"),
        region=_word(body, "inference_geo"),
        long_context=_LONG_CONTEXT in beta,
    )


def _invalid(field: str, problem: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, f"the field {field} {problem}")


def _name(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise _invalid("model", "is not the name of a model")
    return model


def _switch(body: Mapping[str, Any], field: str) -> bool:
    value = body.get(field)
    if value is not None and not isinstance(value, bool):
        raise _invalid(field, "is not true or false")
    return bool(value)


def _word(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is not None and not isinstance(value, str):
        raise _invalid(field, "is not a text")
    return value


def _count(value: object) -> int | None:
    """Returns a whole number; anything else is no limit, and `fields.refused` names it under a cap."""
    if isinstance(value, int) and value > _MOST_TOKENS:
        raise Refused(Code.INVALID_REQUEST, f"a limit in the body is above {_MOST_TOKENS} tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _thinking(body: Mapping[str, Any]) -> int | None:
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return None
    return _count(thinking.get("budget_tokens"))


def _cache_write(body: Mapping[str, Any]) -> CacheWrite | None:
    order = [CacheWrite.FIVE_MINUTES, CacheWrite.ONE_HOUR, CacheWrite.UNKNOWN]
    return max(_cache_controls(body), key=order.index, default=None)


def _cache_controls(body: Mapping[str, Any]) -> Iterator[CacheWrite]:
    stack: list[object] = [body]
    while stack:
        match stack.pop():
            case dict() as members:
                if isinstance(control := members.get("cache_control"), dict):
                    yield _lifetime(control.get("ttl"))
                stack.extend(members.values())
            case list() as items:
                stack.extend(items)
            case _:
                continue


def _lifetime(ttl: object) -> CacheWrite:
    if ttl is None or ttl == "5m":
        return CacheWrite.FIVE_MINUTES
    return CacheWrite.ONE_HOUR if ttl == "1h" else CacheWrite.UNKNOWN
