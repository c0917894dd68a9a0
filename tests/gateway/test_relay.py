"""A call is read to its end and settled once, however its client, its provider or this process behave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.relay import Drains, Ended, Head, Outcome, Outgoing, Relays, Unreachable, upstream_client
from tollbar.gateway.taps import BlindTap, Tap, tap_for

USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
TEXT = {"model": "m", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
FINISHED = {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
ONLY_USAGE = {"model": "m", "choices": [], "usage": USAGE}
PLAIN = {"model": "m", "choices": [{"index": 0, "finish_reason": "stop"}], "usage": USAGE}

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def head(status: int = 200, kind: str = "text/event-stream") -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode()


@asynccontextmanager
async def provider(speak: Speak) -> AsyncIterator[str]:
    """Serves one connection after the other with raw bytes; yields the origin."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await speak(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def saying(*parts: bytes, reset: bool = False) -> Speak:
    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if reset:
            writer.transport.abort()

    return speak


class Book:
    """Remembers how calls ended."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []

    async def settle(self, ended: Ended) -> None:
        self.ended.append(ended)

    @property
    def only(self) -> Ended:
        [ended] = self.ended
        return ended


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
async def relays() -> AsyncIterator[Relays]:
    async with upstream_client() as client:
        made = Relays(client)
        yield made
        await made.close(0)


def out(origin: str) -> Outgoing:
    return Outgoing("POST", f"{origin}/v1/chat/completions", {"content-type": "application/json"}, b"{}")


def tap(*, streamed: bool = True, hide_usage: bool = False) -> Callable[[Head], Tap]:
    def made(beginning: Head) -> Tap:
        if beginning.status != 200:
            return BlindTap()
        return tap_for(Dialect.CHAT, streamed=streamed, candidates=1, hide_usage=hide_usage)

    return made


async def read(relay) -> bytes:
    await relay.head()
    return b"".join([chunk async for chunk in relay.body()])


async def test_a_streamed_answer_passes_byte_for_byte_and_its_usage_is_seen(relays, book):
    said = [event(TEXT), b": a comment\n\n", event(FINISHED), event(ONLY_USAGE), b"data: [DONE]\n\n"]
    async with provider(saying(head(), *said)) as origin:
        passed = await read(relays.start(out(origin), tap(), book.settle))

    assert passed == b"".join(said)
    assert book.only.outcome is Outcome.OK
    assert book.only.reported.document["usage"] == USAGE
    assert (book.only.head.status, book.only.client_gone) == (200, False)


async def test_the_usage_that_a_client_did_not_ask_for_is_hidden_from_it_alone(relays, book):
    said = [event(TEXT), event(FINISHED), event(ONLY_USAGE), b"data: [DONE]\n\n"]
    async with provider(saying(head(), b"".join(said)[:40], b"".join(said)[40:])) as origin:
        passed = await read(relays.start(out(origin), tap(hide_usage=True), book.settle))

    assert passed == said[0] + said[1] + said[3]
    assert book.only.reported.document["usage"] == USAGE


async def test_a_plain_answer_is_read_at_its_end(relays, book):
    body = json.dumps(PLAIN).encode()
    async with provider(saying(head(kind="application/json"), body[:9], body[9:])) as origin:
        assert await read(relays.start(out(origin), tap(streamed=False), book.settle)) == body

    assert book.only.reported.document["usage"] == USAGE


async def test_a_call_that_never_reached_the_provider_is_told_apart(relays, book):
    with pytest.raises(Unreachable) as caught:
        await relays.start(out("http://127.0.0.1:9"), tap(), book.settle).head()

    assert caught.value.outcome is book.only.outcome is Outcome.CONNECT_ERROR
    assert not book.only.outcome.billed


async def test_a_connection_that_is_reset_before_an_answer_may_have_been_billed(relays, book):
    async with provider(saying(reset=True)) as origin:
        with pytest.raises(Unreachable):
            await relays.start(out(origin), tap(), book.settle).head()

    assert book.only.outcome is Outcome.RESET
    assert book.only.outcome.billed


async def test_an_answer_that_breaks_off_breaks_off_for_the_client_and_has_no_usage(relays, book):
    async with provider(saying(head().replace(b"connection: close", b"content-length: 9999"), event(TEXT))) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        await relay.head()
        with pytest.raises(Unreachable):
            async for _ in relay.body():
                pass

    assert (book.only.outcome, book.only.reported) == (Outcome.RESET, None)


async def test_an_answer_that_breaks_off_behind_its_usage_costs_what_it_says(relays, book):
    beginning = head().replace(b"connection: close", b"content-length: 9999")
    async with provider(saying(beginning, event(FINISHED), event(ONLY_USAGE), reset=True)) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        await relay.head()
        with pytest.raises(Unreachable):
            async for _ in relay.body():
                pass

    assert book.only.outcome is Outcome.OK
    assert book.only.reported.document["usage"] == USAGE


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (400, Outcome.HTTP_ERROR),
        (401, Outcome.HTTP_ERROR),
        (429, Outcome.HTTP_ERROR),
        (500, Outcome.HTTP_ERROR),
        (503, Outcome.HTTP_ERROR),
        (529, Outcome.HTTP_ERROR),
        (302, Outcome.HTTP_GATEWAY),
        (408, Outcome.HTTP_GATEWAY),
        (499, Outcome.HTTP_GATEWAY),
        (502, Outcome.HTTP_GATEWAY),
        (504, Outcome.HTTP_GATEWAY),
        (520, Outcome.HTTP_GATEWAY),
    ],
)
async def test_an_answer_without_success_passes_and_only_an_intermediarys_is_billed(relays, book, status, outcome):
    beginning = head(status).replace(b"connection", b"location: http://127.0.0.1:9/\r\nretry-after: 7\r\nconnection")
    async with provider(saying(beginning, b'{"error": "no"}')) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        beginning = await relay.head()
        passed = await read(relay)

    assert (beginning.status, passed) == (status, b'{"error": "no"}')
    assert ("retry-after", "7") in beginning.headers
    assert (book.only.outcome, book.only.reported) == (outcome, None)
    assert outcome.billed == (outcome is Outcome.HTTP_GATEWAY)


async def test_an_error_within_a_stream_passes_and_is_billed(relays, book):
    said = [event(TEXT), event({"error": {"message": "overloaded"}})]
    async with provider(saying(head(), *said)) as origin:
        assert await read(relays.start(out(origin), tap(), book.settle)) == b"".join(said)

    assert (book.only.outcome, book.only.reported) == (Outcome.STREAM_ERROR, None)


async def test_a_client_that_leaves_is_billed_for_the_whole_answer(relays, book):
    goes_on = asyncio.Event()

    async def speak(_reader, writer):
        writer.write(head() + event(TEXT))
        await writer.drain()
        await goes_on.wait()
        writer.write(event(FINISHED) + event(ONLY_USAGE))
        await writer.drain()

    async with provider(speak) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        await relay.head()
        await anext(relay.body())
        relay.leave()
        goes_on.set()
        await relay.task

    assert (book.only.outcome, book.only.client_gone) == (Outcome.OK, True)
    assert book.only.reported.document["usage"] == USAGE


async def test_a_client_that_leaves_does_not_leave_the_reader_waiting_for_it(relays, book):
    async def speak(_reader, writer):
        writer.write(head())
        for _ in range(2000):
            writer.write(event({"choices": [], "padding": "x" * 10_000}))
            await writer.drain()
        writer.write(event(FINISHED) + event(ONLY_USAGE))
        await writer.drain()

    async with provider(speak) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        await relay.head()
        while not relay._chunks.full():  # noqa: ASYNC110 - what is waited for is the state under test
            await asyncio.sleep(0)
        assert not relay.task.done()
        relay.leave()
        await relay.task

    assert book.only.outcome is Outcome.OK


async def test_more_clients_than_may_leave_are_cut_and_settled(relays, book):
    relays.drains = Drains(most=1)

    async def speak(_reader, writer):
        writer.write(head() + event(TEXT))
        await writer.drain()
        await asyncio.Event().wait()

    async with provider(speak) as origin:
        calls = [relays.start(out(origin), tap(), book.settle) for _ in range(3)]
        for relay in calls:
            await relay.head()
            relay.leave()
        await asyncio.gather(*(relay.task for relay in calls[1:]))
        assert [ended.outcome for ended in book.ended] == [Outcome.DRAIN_CUT, Outcome.DRAIN_CUT]
        assert not calls[0].task.done()
        await relays.close(0)

    assert [ended.outcome for ended in book.ended] == [Outcome.DRAIN_CUT] * 3
    assert all(ended.client_gone and ended.outcome.billed for ended in book.ended)


async def test_a_call_without_a_client_ends_after_its_time(relays, book):
    relays.drains = Drains(longest_s=0.05)

    async def speak(_reader, writer):
        writer.write(head() + event(FINISHED) + event(ONLY_USAGE))
        await writer.drain()
        await asyncio.Event().wait()

    async with provider(speak) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        await relay.head()
        await anext(relay.body())
        relay.leave()
        await relay.task

    assert book.only.outcome is Outcome.OK, "its usage had been seen"


async def test_a_provider_that_stalls_is_given_up(book):
    async def speak(_reader, writer):
        writer.write(head() + event(TEXT))
        await writer.drain()
        await asyncio.Event().wait()

    async with provider(speak) as origin, httpx2.AsyncClient(timeout=0.1, trust_env=False) as client:
        relay = Relays(client).start(out(origin), tap(), book.settle)
        await relay.head()
        with pytest.raises(Unreachable):
            async for _ in relay.body():
                pass
    assert book.only.outcome is Outcome.TIMEOUT


async def test_a_call_that_trickles_for_too_long_is_given_up(relays, book):
    relays.whole_call_s = 0.2

    async def speak(_reader, writer):
        writer.write(head())
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with provider(speak) as origin:
        relay = relays.start(out(origin), tap(), book.settle)
        with pytest.raises(Unreachable):
            await read(relay)
    assert book.only.outcome is Outcome.TIMEOUT


async def test_stopping_waits_for_calls_that_are_nearly_done_and_settles_the_rest(relays, book):
    async def quick(_reader, writer):
        await asyncio.sleep(0.05)
        writer.write(head() + event(FINISHED) + event(ONLY_USAGE))
        await writer.drain()

    async def slow(_reader, writer):
        writer.write(head() + event(TEXT))
        await writer.drain()
        await asyncio.Event().wait()

    async with provider(quick) as first, provider(slow) as second:
        relays.start(out(first), tap(), book.settle)
        relays.start(out(second), tap(), book.settle)
        await relays.close(0.5)

    assert sorted(ended.outcome for ended in book.ended) == [Outcome.DRAIN_CUT, Outcome.OK]


async def test_a_settlement_is_not_cut_short(relays):
    begun, goes_on, ends = asyncio.Event(), asyncio.Event(), []

    async def settle(ended: Ended) -> None:
        begun.set()
        await goes_on.wait()
        ends.append(ended.outcome)

    async with provider(saying(head(), event(FINISHED), event(ONLY_USAGE))) as origin:
        relay = relays.start(out(origin), tap(), settle)
        await begun.wait()
        relay.cut()
        goes_on.set()
        await relay.task

    assert ends == [Outcome.OK]
