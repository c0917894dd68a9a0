"""What stands between a provider's answer and its client: every byte passes, and the usage is read on the way."""

from __future__ import annotations

from typing import Final, Protocol

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.sse import Event, Reader
from tollbar.gateway.usage import Extractor, Reported, usage_only

MAX_PLAIN_BYTES: Final = 32 << 20
"""Of a plain answer that is read for its usage; a larger one passes, and costs its worst case."""


class Tap(Protocol):
    """Reads one answer. `feed` and `finish` return what goes to the client."""

    def feed(self, chunk: bytes) -> bytes: ...

    def finish(self) -> bytes: ...

    def reported(self) -> Reported | None:
        """Returns the final usage as far as it was seen, also of an answer that broke off behind it."""
        ...

    @property
    def failed(self) -> bool:
        """Says whether the answer carries an error."""
        ...


class StreamTap:
    """A stream of events. `hide_usage`: the client did not ask for the event that holds nothing but usage."""

    def __init__(self, extractor: Extractor, *, hide_usage: bool) -> None:
        self._extractor = extractor
        self._hide = hide_usage
        self._reader = Reader()

    def feed(self, chunk: bytes) -> bytes:
        events = self._reader.feed(chunk)
        for event in events:
            self._extractor.feed(event.data)
        return self._shown(events) if self._hide else chunk

    def finish(self) -> bytes:
        rest = self._reader.rest
        events = self._reader.finish()
        for event in events:
            self._extractor.feed(event.data)
        if not self._hide:
            return b""
        return self._shown(events) if events else rest

    def reported(self) -> Reported | None:
        return None if self._reader.overflowed else self._extractor.final()

    @property
    def failed(self) -> bool:
        return self._extractor.failed

    def _shown(self, events: list[Event]) -> bytes:
        shown = b"".join(event.raw for event in events if not usage_only(event.data))
        if self._reader.overflowed:
            # Unreadable from here on: it passes as it is.
            shown += self._reader.rest
            self._hide = False
        return shown


class PlainTap:
    """A whole body; its usage is read at its end."""

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor
        self._body = bytearray()
        self._too_large = False

    def feed(self, chunk: bytes) -> bytes:
        if not self._too_large:
            self._body += chunk
            self._too_large = len(self._body) > MAX_PLAIN_BYTES
            if self._too_large:
                self._body.clear()
        return chunk

    def finish(self) -> bytes:
        if not self._too_large:
            self._extractor.feed(bytes(self._body))
            self._body.clear()
        return b""

    def reported(self) -> Reported | None:
        return None if self._too_large else self._extractor.final()

    @property
    def failed(self) -> bool:
        return self._extractor.failed


class BlindTap:
    """An answer without usage: a refusal of the provider, or a free call. Nothing of it is read."""

    failed = False

    def feed(self, chunk: bytes) -> bytes:
        return chunk

    def finish(self) -> bytes:
        return b""

    def reported(self) -> Reported | None:
        return None


def tap_for(dialect: Dialect, *, streamed: bool, candidates: int, hide_usage: bool) -> Tap:
    """Returns the tap of a successful answer."""
    extractor = Extractor(dialect, streamed=streamed, candidates=candidates)
    return StreamTap(extractor, hide_usage=hide_usage) if streamed else PlainTap(extractor)
