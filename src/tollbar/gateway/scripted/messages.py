"""Anthropic messages, as a provider writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tollbar.gateway.scripted.reply import Counts, Piece, Reply, compact
from tollbar.gateway.scripted.script import Stop

_REASONS: Final = {
    Stop.END: "end_turn",
    Stop.LENGTH: "max_tokens",
    Stop.REFUSAL: "refusal",
    Stop.TOOL: "tool_use",
}


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.input - counts.cached - counts.cache_write,
        "cache_creation_input_tokens": counts.cache_write,
        "cache_read_input_tokens": counts.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counts.cache_write - counts.cache_write_1h,
            "ephemeral_1h_input_tokens": counts.cache_write_1h,
        },
        "output_tokens": counts.output,
        "service_tier": "standard",
    }


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    texts: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text or not reply.calls else []
    return texts + [
        {"type": "tool_use", "id": reply.name("toolu_", index), "name": called.offer.name, "input": dict(called.args)}
        for index, called in enumerate(reply.calls)
    ]


def document(reply: Reply) -> dict[str, Any]:
    """Returns the plain answer."""
    answer: dict[str, Any] = {
        "id": reply.name("msg_"),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": _blocks(reply),
        "stop_reason": _REASONS[reply.stop],
        "stop_sequence": None,
    }
    return answer | ({"usage": _usage(reply.usage)} if reply.usage is not None else {})


def events(reply: Reply) -> Iterator[Piece]:
    """Yields the events of the streamed answer; its start has the input's usage, its last delta all of it."""
    for kind, members in _steps(reply):
        yield Piece({"type": kind} | members, kind, kind in {"message_delta", "message_stop"})


def _steps(reply: Reply) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = document(reply)
    begun = whole | {"content": [], "stop_reason": None}
    if "usage" in whole:
        begun["usage"] = whole["usage"] | {"output_tokens": min(1, whole["usage"]["output_tokens"])}
    yield "message_start", {"message": begun}
    yield "ping", {}
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            yield "content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}}
            for piece in reply.pieces(block["text"]):
                yield "content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": piece}}
        else:
            yield "content_block_start", {"index": index, "content_block": block | {"input": {}}}
            for piece in reply.pieces(compact(block["input"])):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    end: dict[str, Any] = {"delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None}}
    yield "message_delta", end | ({"usage": whole["usage"]} if "usage" in whole else {})
    yield "message_stop", {}
