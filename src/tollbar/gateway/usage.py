"""The usage of an answer, read from the same events whether it is streamed or plain. Events are never summed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.gateway.dialects import Dialect

_MARKS: Final = {
    Dialect.CHAT: re.compile(rb'"(?:usage"\s*:\s*\{|finish_reason"\s*:\s*"|error"\s*:)'),
    Dialect.RESPONSES: re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"'),
    Dialect.MESSAGES: re.compile(rb'"type"\s*:\s*"(?:message_start|message_delta|error)"'),
    Dialect.GEMINI: re.compile(rb'"(?:usageMetadata|finishReason|blockReason|error)"'),
}
"""Only events with one of these are decoded; in an answer's text their quotes are escaped."""

_TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_MESSAGES_INPUT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True)
class Reported:
    """An answer's final usage as the provider reported it, in the plain answer's form of its dialect."""

    dialect: Dialect
    document: Mapping[str, Any]
    model: str | None
    truncated: bool
    context: Mapping[str, str]


def usage_only(data: bytes) -> bool:
    """Returns whether a chat event holds nothing but usage: the client gets it only if it asked for it."""
    if not _MARKS[Dialect.CHAT].search(data):
        return False
    event = _object(data)
    return event is not None and event.get("choices") == [] and isinstance(event.get("usage"), dict)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _index(choice: Mapping[str, Any], default: int) -> int:
    value = choice.get("index")
    return value if isinstance(value, int) else default


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Extractor:
    """Reads one answer. `feed` takes the data of each event, or the whole body once; `final` says what was seen.

    `candidates` is how many answers were asked for: usage that some servers report on the way is final only when all
    have ended. `failed` tells that the answer carries an error, `broken` that something could not be read.
    """

    def __init__(self, dialect: Dialect, *, streamed: bool, candidates: int = 1) -> None:
        self._dialect = dialect
        self._streamed = streamed
        self._candidates = candidates
        self._finished: set[int] = set()
        self._usage: dict[str, Any] | None = None
        self._ended = False
        self._model: str | None = None
        self._truncated = False
        self._tier: str | None = None
        self.failed = False
        self.broken = False

    def feed(self, data: bytes) -> None:
        """Takes the data of one event, or the body of a plain answer."""
        if self._streamed and not _MARKS[self._dialect].search(data):
            return
        document = _object(data)
        if document is None:
            self.broken = True
            return
        match self._dialect:
            case Dialect.CHAT:
                self._chat(document)
            case Dialect.RESPONSES:
                self._responses(document)
            case Dialect.MESSAGES:
                self._messages(document)
            case Dialect.GEMINI:
                self._gemini(document)

    def final(self) -> Reported | None:
        """Returns the final usage; None when it was not seen, and then the call costs its worst case."""
        if self.broken or not self._ended or self._usage is None:
            return None
        root = "usageMetadata" if self._dialect is Dialect.GEMINI else "usage"
        return Reported(
            self._dialect,
            {("modelVersion" if self._dialect is Dialect.GEMINI else "model"): self._model, root: self._usage},
            self._model,
            self._truncated,
            self._context(self._usage),
        )

    def _context(self, usage: Mapping[str, Any]) -> dict[str, str]:
        """Returns what chooses the price, without the words for the standard price."""
        named = {"service_tier": self._tier or _text(usage.get("service_tier"))}
        if self._dialect is Dialect.MESSAGES:
            named |= {name: _text(usage.get(name)) for name in ("speed", "inference_geo")}
        if self._dialect is Dialect.GEMINI:
            tier = _text(usage.get("serviceTier"))
            named = {"service_tier": tier.lower() if tier is not None else None}
        return {name: value for name, value in named.items() if value is not None and value not in _STANDARD}

    def _chat(self, event: dict[str, Any]) -> None:
        self.failed = self.failed or bool(event.get("error"))
        self._model = _text(event.get("model")) or self._model
        self._tier = _text(event.get("service_tier")) or self._tier
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if (reason := _dict(choice).get("finish_reason")) is not None:
                self._finished.add(_index(_dict(choice), 0))
                self._truncated = self._truncated or reason == "length"
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
            whole = not self._streamed or choices == [] or len(self._finished) >= self._candidates
            self._ended = self._ended or whole

    def _responses(self, event: dict[str, Any]) -> None:
        answer = event
        if self._streamed:
            self.failed = self.failed or event.get("type") in {"error", "response.failed"}
            if event.get("type") not in _TERMINAL:
                return
            answer = _dict(event.get("response"))
        self.failed = self.failed or answer.get("status") == "failed"
        self._model = _text(answer.get("model")) or self._model
        self._tier = _text(answer.get("service_tier")) or self._tier
        reason = _dict(answer.get("incomplete_details")).get("reason")
        self._truncated = answer.get("status") == "incomplete" and reason == "max_output_tokens"
        if isinstance(answer.get("usage"), dict):
            self._usage, self._ended = answer["usage"], True

    def _messages(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        self.failed = self.failed or kind == "error"
        if not self._streamed:
            self._start(event)
            self._stop(event, bool(self._usage))
        elif kind == "message_start":
            self._start(_dict(event.get("message")))
        elif kind == "message_delta":
            self._merge(_dict(event.get("usage")))
            self._stop(_dict(event.get("delta")), ended=False)

    def _start(self, message: dict[str, Any]) -> None:
        self._model = _text(message.get("model")) or self._model
        self._merge(_dict(message.get("usage")))

    def _stop(self, held: dict[str, Any], ended: bool) -> None:
        reason = held.get("stop_reason")
        self._ended = self._ended or ended or reason is not None
        self._truncated = self._truncated or reason == "max_tokens"

    def _merge(self, fresh: dict[str, Any]) -> None:
        """Overwrites with what is not null; cumulative counts that fall are not believed."""
        old = self._usage or {}
        new = old | {name: value for name, value in fresh.items() if value is not None}
        if _sum(new, _MESSAGES_INPUT) < _sum(old, _MESSAGES_INPUT):
            new |= {name: old[name] for name in (*_MESSAGES_INPUT, "cache_creation") if name in old}
        if "output_tokens" in old and _sum(new, ("output_tokens",)) < _sum(old, ("output_tokens",)):
            new["output_tokens"] = old["output_tokens"]
        self._usage = new or None

    def _gemini(self, event: dict[str, Any]) -> None:
        self.failed = self.failed or bool(event.get("error"))
        self._model = _text(event.get("modelVersion")) or self._model
        candidates = event.get("candidates")
        for position, candidate in enumerate(candidates if isinstance(candidates, list) else []):
            if (reason := _dict(candidate).get("finishReason")) is not None:
                self._finished.add(_index(_dict(candidate), position))
                self._truncated = self._truncated or reason == "MAX_TOKENS"
        blocked = _dict(event.get("promptFeedback")).get("blockReason") is not None
        over = blocked or not self._streamed or len(self._finished) >= self._candidates
        if isinstance(event.get("usageMetadata"), dict):
            self._usage = event["usageMetadata"]
            self._ended = self._ended or over


_STANDARD: Final = frozenset({"default", "auto", "standard", "standard_only", "on_demand", "global", "not_available"})
"""What providers call their standard price."""


def _sum(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return sum(value for name in names if isinstance(value := usage.get(name), int))
