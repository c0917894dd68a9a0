"""OpenAI chat completions, as a provider writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tollbar.gateway.scripted.offers import Called, Form
from tollbar.gateway.scripted.reply import Counts, Piece, Reply, compact
from tollbar.gateway.scripted.script import Stop

_REASONS: Final = {
    Stop.END: "stop",
    Stop.LENGTH: "length",
    Stop.REFUSAL: "content_filter",
    Stop.TOOL: "tool_calls",
}


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": counts.cache_write},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def _call(reply: Reply, index: int, called: Called) -> dict[str, Any]:
    head = {"id": reply.name("call_", index)}
    if called.offer.form is Form.FREE_TEXT:
        text = str(called.args.get("input", compact(called.args)))
        return head | {"type": "custom", "custom": {"name": called.offer.name, "input": text}}
    return head | {"type": "function", "function": {"name": called.offer.name, "arguments": compact(called.args)}}


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": reply.name("chatcmpl-"), "object": kind, "created": reply.created, "model": reply.model}


def document(reply: Reply) -> dict[str, Any]:
    """Returns the plain answer."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [_call(reply, index, called) for index, called in enumerate(reply.calls)]
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": _REASONS[reply.stop]}
        for index in range(reply.candidates)
    ]
    answer = _head(reply, "chat.completion") | {"choices": choices, "service_tier": "default"}
    return answer | ({"usage": _usage(reply.usage)} if reply.usage is not None else {})


def events(reply: Reply) -> Iterator[Piece]:
    """Yields the events of the streamed answer; usage is in a last one, if the request asked for it."""
    head = _head(reply, "chat.completion.chunk") | {"service_tier": "default"}
    if reply.reports_usage:
        head["usage"] = None

    def chunk(index: int, delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}]}

    for index in range(reply.candidates):
        yield Piece(chunk(index, {"role": "assistant", "content": "", "refusal": None}))
        for piece in reply.pieces(reply.text):
            yield Piece(chunk(index, {"content": piece}))
        for place, called in enumerate(reply.calls):
            yield Piece(chunk(index, {"tool_calls": [{"index": place} | _call(reply, place, called)]}))
        yield Piece(chunk(index, {}, _REASONS[reply.stop]), terminal=True)
    if reply.reports_usage and reply.usage is not None:
        yield Piece(head | {"choices": [], "usage": _usage(reply.usage)}, terminal=True)
    yield Piece("[DONE]", terminal=True)
