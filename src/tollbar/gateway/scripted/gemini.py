"""Gemini's generateContent, as a provider writes it. It reports no cache writes: they are part of the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tollbar.gateway.scripted.reply import Counts, Piece, Reply
from tollbar.gateway.scripted.script import Stop

_REASONS: Final = {Stop.END: "STOP", Stop.LENGTH: "MAX_TOKENS", Stop.REFUSAL: "SAFETY", Stop.TOOL: "STOP"}


def _usage(counts: Counts) -> dict[str, Any]:
    usage = {
        "promptTokenCount": counts.input,
        "candidatesTokenCount": counts.output - counts.reasoning,
        "totalTokenCount": counts.input + counts.output,
        "cachedContentTokenCount": counts.cached,
        "thoughtsTokenCount": counts.reasoning,
    }
    return {name: count for name, count in usage.items() if count or name in {"promptTokenCount", "totalTokenCount"}}


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [{"functionCall": {"name": called.offer.name, "args": dict(called.args)}} for called in reply.calls]


def _answer(reply: Reply, candidates: Sequence[Mapping[str, Any]], *, over: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"candidates": candidates}
    if over and reply.usage is not None:
        answer["usageMetadata"] = _usage(reply.usage)
    return answer | {"modelVersion": reply.model, "responseId": reply.name("resp")}


def _candidate(index: int, parts: Sequence[Mapping[str, Any]], reason: str | None = None) -> dict[str, Any]:
    held: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": index}
    return held | ({"finishReason": reason} if reason is not None else {})


def document(reply: Reply) -> dict[str, Any]:
    """Returns the plain answer."""
    texts = [{"text": reply.text}] if reply.text or not reply.calls else []
    parts = [*texts, *_calls(reply)]
    reason = _REASONS[reply.stop]
    return _answer(reply, [_candidate(index, parts, reason) for index in range(reply.candidates)], over=True)


def events(reply: Reply) -> Iterator[Piece]:
    """Yields the chunks of the streamed answer; the last of each candidate says why it ended, with the usage."""
    for index in range(reply.candidates):
        for piece in reply.pieces(reply.text):
            yield Piece(_answer(reply, [_candidate(index, [{"text": piece}])], over=False))
        last = _candidate(index, _calls(reply) or [{"text": ""}], _REASONS[reply.stop])
        yield Piece(_answer(reply, [last], over=True), terminal=True)
