"""OpenAI responses, as a provider writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tollbar.gateway.scripted.offers import Called, Form
from tollbar.gateway.scripted.reply import Counts, Piece, Reply, compact
from tollbar.gateway.scripted.script import Stop


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.input,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": counts.cache_write},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.input + counts.output,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(reply: Reply) -> dict[str, Any]:
    return {
        "id": reply.name("msg_"),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [_part(reply.text)],
    }


def _call(reply: Reply, index: int, called: Called) -> dict[str, Any]:
    head: dict[str, Any] = {"id": reply.name("fc_", index), "call_id": reply.name("call_", index)}
    if called.offer.form is Form.LOCAL_SHELL:
        action = {"type": "exec", "command": called.args["command"], "env": {}}
        return head | {"type": "local_shell_call", "action": action, "status": "completed"}
    if called.offer.namespace is not None:
        head["namespace"] = called.offer.namespace
    if called.offer.form is Form.FREE_TEXT:
        text = str(called.args.get("input", compact(called.args)))
        return head | {"type": "custom_tool_call", "name": called.offer.name, "input": text}
    arguments = compact(called.args)
    return head | {
        "type": "function_call",
        "name": called.offer.name,
        "arguments": arguments,
        "status": "completed",
    }


def _items(reply: Reply) -> list[dict[str, Any]]:
    """Returns the answer's items; without a call there is always a message."""
    messages = [_message(reply)] if reply.text or not reply.calls else []
    return messages + [_call(reply, index, called) for index, called in enumerate(reply.calls)]


def document(reply: Reply) -> dict[str, Any]:
    """Returns the plain answer."""
    reasons = {Stop.LENGTH: "max_output_tokens", Stop.REFUSAL: "content_filter"}
    reason = reasons.get(reply.stop)
    return {
        "id": reply.name("resp_"),
        "object": "response",
        "created_at": reply.created,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": reply.model,
        "output": _items(reply),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(reply.usage) if reply.usage is not None else None,
        "user": None,
    }


def events(reply: Reply) -> Iterator[Piece]:
    """Yields the events of the streamed answer; the last one has all of it."""
    for number, (kind, members) in enumerate(_steps(reply)):
        over = kind in {"response.completed", "response.incomplete"}
        yield Piece({"type": kind, "sequence_number": number} | members, kind, over)


def _steps(reply: Reply) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = document(reply)
    begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(whole["output"]):
        yield "response.output_item.added", {"output_index": index, "item": _begun(item)}
        yield from _content(reply, index, item)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{whole['status']}", {"response": whole}


def _begun(item: Mapping[str, Any]) -> dict[str, Any]:
    empty = {"content": [], "arguments": "", "input": ""}
    return {name: empty.get(name, value) for name, value in item.items()} | {"status": "in_progress"}


def _content(reply: Reply, index: int, item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    where: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        where["content_index"] = 0
        yield "response.content_part.added", where | {"part": _part("")}
        for piece in reply.pieces(reply.text):
            yield "response.output_text.delta", where | {"delta": piece, "logprobs": []}
        yield "response.output_text.done", where | {"text": reply.text, "logprobs": []}
        yield "response.content_part.done", where | {"part": _part(reply.text)}
    elif item["type"] == "function_call":
        for piece in reply.pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", where | {"delta": piece}
        yield "response.function_call_arguments.done", where | {"arguments": item["arguments"], "name": item["name"]}
    elif item["type"] == "custom_tool_call":
        yield "response.custom_tool_call_input.delta", where | {"delta": item["input"]}
        yield "response.custom_tool_call_input.done", where | {"input": item["input"]}
