"""One call under way: read from the provider to its end, whether its client stays or not, so that it keeps its bill.

Reading is a task of its own. A client that is there slows it down; one that went away does not end it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import httpx2

from tollbar.gateway.taps import BlindTap, Tap
from tollbar.gateway.usage import Reported

CONNECT_S: Final = 10.0
WRITE_S: Final = 60.0
BETWEEN_BYTES_S: Final = 300.0
WHOLE_CALL_S: Final = 900.0
IDLE_CONNECTION_S: Final = 5.0
"""A request on a connection that the provider has just closed is a reset after sending, and costs its worst case."""
QUEUE_CHUNKS: Final = 64

_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_REFUSALS: Final = frozenset({500, 503, 529})
"""Of the statuses from 500 on these are the provider's own: it did not run the model."""
_INTERMEDIARY: Final = frozenset({408, 499})


class Outcome(StrEnum):
    """How a call ended; `billed` outcomes without a usage cost the worst case."""

    OK = "ok"
    CONNECT_ERROR = "connect_error"
    RESET = "reset"
    TIMEOUT = "timeout"
    HTTP_ERROR = "http_error"
    HTTP_GATEWAY = "http_gateway"
    STREAM_ERROR = "stream_error"
    DRAIN_CUT = "drain_cut"

    @property
    def billed(self) -> bool:
        return self not in {Outcome.CONNECT_ERROR, Outcome.HTTP_ERROR}


@dataclass(frozen=True)
class Outgoing:
    """A request to a provider, complete."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    client: httpx2.AsyncClient | None = None
    """The client of its provider; None: that of the relays."""
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For the client's transport."""


@dataclass(frozen=True)
class Head:
    """The beginning of the provider's answer."""

    status: int
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Ended:
    """What is known of a call at its end; `reported` is its final usage, None when it was not seen."""

    outcome: Outcome
    head: Head | None
    reported: Reported | None
    client_gone: bool
    first_byte_s: float | None


class Unreachable(Exception):
    """No answer began; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


TapOf = Callable[[Head], Tap]
Settle = Callable[[Ended], Awaitable[None]]
"""Called exactly once for each call, after its last byte; the client's end of the answer waits for it."""


def upstream_client(*, proxy: str | None = None, ca_file: str | None = None) -> httpx2.AsyncClient:
    """Returns a client for providers: no environment, no redirects, the limits of this file.

    Raises `OSError` for certificates that cannot be read.
    """
    return httpx2.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        proxy=proxy,
        verify=True if ca_file is None else ssl.create_default_context(cafile=ca_file),
        timeout=httpx2.Timeout(connect=CONNECT_S, write=WRITE_S, pool=CONNECT_S, read=BETWEEN_BYTES_S),
        limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_CONNECTION_S),
    )


@dataclass
class Drains:
    """How many calls may go on without a client, and for how long each. They buy accuracy, never safety."""

    most: int = 64
    longest_s: float = 120.0
    _now: int = field(default=0, init=False)

    def begin(self) -> bool:
        """Says whether one more may go on; each True needs an `end`."""
        if self._now >= self.most:
            return False
        self._now += 1
        return True

    def end(self) -> None:
        self._now -= 1


@dataclass
class Relays:
    """The calls of one process: started here, and waited for when it stops."""

    client: httpx2.AsyncClient
    drains: Drains = field(default_factory=Drains)
    whole_call_s: float = WHOLE_CALL_S

    def __post_init__(self) -> None:
        self._running: set[Relay] = set()

    def start(self, outgoing: Outgoing, tap_of: TapOf, settle: Settle) -> Relay:
        """Sends a request; from here on `settle` will be called."""
        relay = Relay(self, outgoing, tap_of, settle)
        self._running.add(relay)
        relay.task.add_done_callback(lambda _: self._running.discard(relay))
        return relay

    async def close(self, grace_s: float) -> None:
        """Waits up to `grace_s` for what runs, then cuts it; every call is settled when this returns."""
        tasks = [relay.task for relay in self._running]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for relay in list(self._running):
            relay.cut()
        await asyncio.gather(*tasks, return_exceptions=True)


class Relay:
    """One call. Await `head`, then iterate `body`; call `leave` when the client is gone."""

    def __init__(self, relays: Relays, outgoing: Outgoing, tap_of: TapOf, settle: Settle) -> None:
        self._relays = relays
        self._outgoing = outgoing
        self._tap_of = tap_of
        self._settle = settle
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_CHUNKS)
        self._head: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self._seen: Head | None = None
        self._tap: Tap = BlindTap()
        self._started = time.monotonic()
        self._first_byte_s: float | None = None
        self._gone = False
        self._draining = False
        self._ending = False
        self._broken: Outcome | None = None
        self._cutting: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def head_seen(self) -> bool:
        """Says whether an answer began."""
        return self._seen is not None

    async def head(self) -> Head:
        """Returns the beginning of the answer. Raises `Unreachable`; the call is settled then."""
        return await asyncio.shield(self._head)

    async def body(self) -> AsyncGenerator[bytes]:
        """Yields the answer's bytes. Raises `Unreachable` where it broke off: the client's answer must break, too."""
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
        if self._broken is not None:
            raise Unreachable(self._broken)

    def leave(self) -> None:
        """Says that the client is gone: the call runs on to its usage, within the bounds of drains."""
        if self._gone or self.task.done():
            return
        self._gone = True
        while not self._chunks.empty():
            self._chunks.get_nowait()
        if not self._relays.drains.begin():
            self.cut()
            return
        self._draining = True
        self._cutting = asyncio.get_running_loop().call_later(self._relays.drains.longest_s, self.cut)

    def cut(self) -> None:
        """Ends the reading now; the call is settled with what was seen."""
        if not self._ending:
            self.task.cancel()

    async def _run(self) -> None:
        outcome = Outcome.DRAIN_CUT
        try:
            outcome = await self._read()
        except asyncio.CancelledError:
            # Only `cut` cancels: what follows is settled all the same.
            pass
        finally:
            await self._end(outcome)

    async def _read(self) -> Outcome:
        out = self._outgoing
        sending = (out.client or self._relays.client).stream(
            out.method, out.url, headers=dict(out.headers), content=out.body, extensions=dict(out.extensions)
        )
        try:
            async with asyncio.timeout(self._relays.whole_call_s):
                async with sending as answer:
                    head = Head(answer.status_code, tuple(answer.headers.multi_items()))
                    self._seen, self._first_byte_s = head, time.monotonic() - self._started
                    self._tap = self._tap_of(head)
                    if not self._head.done():
                        self._head.set_result(head)
                    async for chunk in answer.aiter_raw():
                        await self._pass_on(self._tap.feed(chunk))
                    await self._pass_on(self._tap.finish())
                return outcome_of(head.status, failed=self._tap.failed and self._tap.reported() is None)
        except _UNSENT:
            return Outcome.CONNECT_ERROR
        except (TimeoutError, httpx2.TimeoutException):
            return Outcome.TIMEOUT
        except httpx2.HTTPError:
            return Outcome.RESET

    async def _pass_on(self, chunk: bytes) -> None:
        if chunk and not self._gone:
            await self._chunks.put(chunk)

    async def _end(self, outcome: Outcome) -> None:
        self._ending = True
        reported = self._tap.reported()
        whole = outcome in {Outcome.OK, Outcome.HTTP_ERROR, Outcome.HTTP_GATEWAY, Outcome.STREAM_ERROR}
        if reported is not None and outcome not in {Outcome.HTTP_ERROR, Outcome.HTTP_GATEWAY}:
            # The final usage decides, not how the connection ended behind it.
            settled = Outcome.OK
        else:
            settled = outcome
        if self._cutting is not None:
            self._cutting.cancel()
        try:
            await self._settle(Ended(settled, self._seen, reported, self._gone, self._first_byte_s))
        finally:
            if self._draining:
                self._relays.drains.end()
            self._broken = None if whole else outcome
            if not self._head.done():
                self._head.set_exception(Unreachable(outcome))
                self._head.exception()  # seen: a client that left asks for it no more
            if not self._gone:
                await self._chunks.put(None)


def outcome_of(status: int, *, failed: bool) -> Outcome:
    """Returns the outcome of an answer that came whole; `failed`: it carries an error and no usage."""
    if 200 <= status < 300:
        return Outcome.STREAM_ERROR if failed else Outcome.OK
    if status in _REFUSALS or (400 <= status < 500 and status not in _INTERMEDIARY):
        return Outcome.HTTP_ERROR
    return Outcome.HTTP_GATEWAY
