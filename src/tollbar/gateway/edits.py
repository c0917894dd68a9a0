"""The few edits of a request: its output limit, its usage report, its service tier. Nothing else is ever changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.fields import limit_names
from tollbar.gateway.traits import Kind, Traits


def edit(dialect: Dialect, body: Mapping[str, Any], raw: bytes, limit: int, traits: Traits) -> bytes:
    """Returns the bytes to send: `raw` itself where nothing had to change, else the document encoded again.

    `limit` is the output limit in tokens that was reserved for. Text keeps its ASCII escapes, so that lone surrogates
    survive.
    """
    edited = _limited(dialect, body, limit, traits)
    if dialect is Dialect.CHAT and body.get("stream") is True:
        options = body.get("stream_options")
        given = options if isinstance(options, dict) else {}
        if given.get("include_usage") is not True:
            edited["stream_options"] = given | {"include_usage": True}
    if traits.kind is Kind.OPENAI and body.get("service_tier") in {None, "auto"}:
        edited["service_tier"] = "default"
    if traits.kind is Kind.ANTHROPIC and traits.priority_commitment:
        edited["service_tier"] = "standard_only"
    if edited == body:
        return raw
    return json.dumps(edited, separators=(",", ":"), allow_nan=False).encode("ascii")


def _limited(dialect: Dialect, body: Mapping[str, Any], limit: int, traits: Traits) -> dict[str, Any]:
    """Returns the body with its output limit: in the members that the client used, else in the usual one."""
    if dialect is Dialect.GEMINI:
        config = body.get("generationConfig")
        held = dict(config) if isinstance(config, dict) else {}
        return dict(body) | {"generationConfig": held | _limits(dialect, held, limit, traits)}
    return dict(body) | _limits(dialect, body, limit, traits)


def _limits(dialect: Dialect, held: Mapping[str, Any], limit: int, traits: Traits) -> dict[str, Any]:
    names = limit_names(dialect)
    usual = traits.output_limit_field if dialect is Dialect.CHAT else names[0]
    used = {name: held[name] for name in names if held.get(name) is not None}
    lowered = {name: min(value, limit) if _is_count(value) else value for name, value in used.items()}
    # a server that obeys only max_tokens must be given it, whatever its client wrote
    if not used or (usual == "max_tokens" and usual not in used):
        lowered[usual] = limit
    return lowered


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
