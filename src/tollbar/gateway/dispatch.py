"""From a client's request to a call under way: its body read once, its demands bounded, its provider asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx2

from tollbar.budget import service as budget
from tollbar.gateway import asks, bodies, edits, fields
from tollbar.gateway.asks import Ask
from tollbar.gateway.dialects import Dialect, Route
from tollbar.gateway.errors import Code, ProviderNotFound, Refused, ScriptNotFound, UnsupportedProvider
from tollbar.gateway.headers import outgoing
from tollbar.gateway.keys import Key
from tollbar.gateway.metering import Asked, Metering, Sending
from tollbar.gateway.providers import Provider, Providers
from tollbar.gateway.relay import Ended, Head, Outgoing, Relay, Relays, upstream_client
from tollbar.gateway.scripted import Facts, Script, Scripted, answer, count
from tollbar.gateway.scripted.transport import QUESTION, Question, ScriptedTransport
from tollbar.gateway.scripts import Scripts
from tollbar.gateway.taps import BlindTap, Tap, tap_for
from tollbar.kit.cleanup import to_the_end

_LARGE_BYTES: Final = 256 << 10
"""Of a body that is read in a thread: the loop has other calls to serve."""
_Way = tuple[str | None, str | None]
"""Proxy and certificates: providers that share both share a client."""


@dataclass(frozen=True)
class Request:
    """A client's request with its key; `query` is without the key, headers have lower-case names, `raw` is as sent."""

    route: Route
    key: Key
    path: str
    query: str
    headers: Mapping[str, str]
    raw: bytes


SecretOf = Callable[[Provider, str], Awaitable[str | None]]
"""Returns the secret of a provider for a workspace; None: it has none."""


@dataclass(frozen=True)
class _Read:
    """A request that was read: `raw` is its decoded body."""

    request: Request
    raw: bytes
    body: dict[str, Any]
    asked: Asked
    script: Script | None


@dataclass
class Dispatch:
    """What turns requests into calls, in one process."""

    metering: Metering
    providers: Providers
    scripts: Scripts
    relays: Relays
    secret_of: SecretOf
    _clients: dict[_Way, httpx2.AsyncClient] = field(default_factory=dict[_Way, httpx2.AsyncClient], init=False)
    _turns: dict[str, asyncio.Semaphore] = field(default_factory=dict[str, asyncio.Semaphore], init=False)

    def __post_init__(self) -> None:
        clock = self.metering.clock
        self._scripted = httpx2.AsyncClient(transport=ScriptedTransport(lambda: int(clock.now().timestamp())))

    async def generate(self, request: Request) -> Relay:
        """Sends a metered call, its worst case reserved. Raises `Refused`; nothing was sent then."""
        read = await self._read(request)
        await self._check(read)
        give_back = await self._turn(read.asked.provider)
        try:
            sending = await self.metering.reserve(read.asked)
        except BaseException:
            give_back()
            raise
        try:
            return await self._begin(read, sending, give_back)
        except BaseException:
            give_back()
            await to_the_end(self.metering.withdraw(sending))
            raise

    async def count(self, request: Request) -> Relay:
        """Asks the provider's free counter of tokens. Raises `Refused`."""
        read = await self._read(request)
        if read.script is not None:
            out = self._from_script(read, count(request.route.dialect, len(read.raw)), read.raw)
        else:
            out = await self._to_provider(read, read.raw)

        async def nothing(_: Ended) -> None:
            """A free call has no row."""

        return self.relays.start(out, lambda _: BlindTap(), nothing)

    async def close(self, grace_s: float) -> None:
        """Ends every call, and then the connections to providers."""
        await self.relays.close(grace_s)
        for client in (*self._clients.values(), self._scripted):
            await client.aclose()

    async def _read(self, request: Request) -> _Read:
        large = len(request.raw) > _LARGE_BYTES
        raw, body = await asyncio.to_thread(_decoded, request) if large else _decoded(request)
        ask = asks.read(request.route, body, len(raw), beta=request.headers.get("anthropic-beta", ""))
        provider, script = self._provider(request.key, ask.model)
        if ask.dialect not in provider.dialects:
            text = f"the provider {provider.id} does not speak {ask.dialect.value}"
            raise Refused(Code.MODEL_NOT_ALLOWED, text)
        traits = provider.traits if script is None else replace(provider.traits, price_provider=script.provider)
        return _Read(request, raw, body, Asked(request.key, provider, traits, ask), script)

    def _provider(self, key: Key, model: str) -> tuple[Provider, Script | None]:
        """Returns where a key's model is; the key's routes are the only way there."""
        target = key.routes.get(model)
        if target is None:
            raise Refused(Code.MODEL_NOT_ALLOWED, f"the key does not allow the model {model}")
        name, _, script = target.partition(":")
        try:
            provider = self.providers.get(name)
            return provider, self.scripts.get(script) if provider.is_scripted else None
        except (ProviderNotFound, ScriptNotFound, UnsupportedProvider) as error:
            raise Refused(Code.MODEL_NOT_ALLOWED, error.message) from None

    async def _check(self, read: _Read) -> None:
        """Refuses what reaches the network where the subject may not, and what has no bound under a cap."""
        asked, ask = read.asked, read.asked.ask
        problem = None if asked.key.egress else fields.egress(ask.dialect, read.body)
        if problem is not None:
            raise await self._refused(asked, Code.EGRESS_REFUSED, problem)
        problem = _unbounded(read)
        if problem is not None and await self._is_capped(asked):
            raise await self._refused(asked, Code.REQUEST_UNBOUNDED, problem)
        if read.script is not None:
            # Before any money is held: what the script lacks is no call.
            answer(read.script, ask, read.body, facts_of(asked.key), created=0)

    async def _refused(self, asked: Asked, code: Code, problem: str) -> Refused:
        await self.metering.note_refused(asked, code)
        return Refused(code, problem)

    async def _is_capped(self, asked: Asked) -> bool:
        metering = self.metering
        async with metering.database.session() as session:
            return await budget.is_capped(session, asked.key.chain, metering.clock.now().date())

    async def _turn(self, provider: Provider) -> Callable[[], None]:
        """Waits until the provider takes one more call of this process; returns what ends the turn, once."""
        if provider.max_concurrent is None:
            return _nothing
        turns = self._turns.setdefault(provider.id, asyncio.Semaphore(provider.max_concurrent))
        await turns.acquire()
        held = [turns]
        return lambda: held.pop().release() if held else None

    async def _begin(self, read: _Read, sending: Sending, give_back: Callable[[], None]) -> Relay:
        """Marks the call as sent and sends it. A caller that is cancelled leaves it to run to its usage."""
        body = edits.edit(read.asked.ask.dialect, read.body, read.raw, sending.held.limit, read.asked.traits)
        if read.script is not None:
            out = self._from_script(read, _question(read, read.script, body), body)
        else:
            out = await self._to_provider(read, body)
        begun: list[Relay] = []

        async def send() -> None:
            await self.metering.mark_sent(sending)
            begun.append(self.relays.start(out, _tap_of(read.asked.ask), self.metering.settling(sending)))
            begun[0].task.add_done_callback(lambda _: give_back())

        try:
            await to_the_end(send())
        except asyncio.CancelledError:
            for relay in begun:
                relay.leave()
            raise
        return begun[0]

    def _from_script(self, read: _Read, asked: Question | Scripted, body: bytes) -> Outgoing:
        url = read.asked.provider.url(read.request.path)
        return Outgoing("POST", url, {}, body, self._scripted, {QUESTION: asked})

    async def _to_provider(self, read: _Read, body: bytes) -> Outgoing:
        request, provider = read.request, read.asked.provider
        secret = await self.secret_of(provider, request.key.workspace_id)
        headers = outgoing(request.headers, provider.traits.kind, secret, provider.headers)
        return Outgoing("POST", provider.url(request.path, request.query), headers, body, self._client(provider))

    def _client(self, provider: Provider) -> httpx2.AsyncClient:
        way = (provider.proxy, provider.ca_file)
        if way not in self._clients:
            self._clients[way] = upstream_client(proxy=provider.proxy, ca_file=provider.ca_file)
        return self._clients[way]


def facts_of(key: Key) -> Facts:
    """Returns what a script may know of whoever asks: from the key, never from the prompt."""
    known: dict[str, Any] = {name: key.facts.get(name) for name in Facts.__dataclass_fields__}
    known["purpose"] = key.purpose.value
    return Facts(**known)


def _decoded(request: Request) -> tuple[bytes, dict[str, Any]]:
    raw = bodies.decode(request.raw, request.headers.get("content-encoding"))
    return raw, bodies.parse(raw)


def _unbounded(read: _Read) -> str | None:
    """Returns why the request's cost has no bound, naming the field."""
    asked, ask = read.asked, read.asked.ask
    if not read.request.route.metered:
        return "a stream without alt=sse cannot be metered"
    if ask.dialect is Dialect.CHAT and ask.streamed and not asked.provider.stream_usage:
        return f"the provider {asked.provider.id} reports no usage of streams"
    return fields.refused(ask.dialect, read.body, asked.traits.allowed)


def _question(read: _Read, script: Script, body: bytes) -> Question:
    edited = bodies.parse(body)
    return Question(script, asks.read(read.request.route, edited, len(body)), edited, facts_of(read.asked.key))


def _tap_of(ask: Ask) -> Callable[[Head], Tap]:
    hide = ask.dialect is Dialect.CHAT and ask.streamed and not ask.reports_usage

    def tap(head: Head) -> Tap:
        if not 200 <= head.status < 300:
            return BlindTap()
        return tap_for(ask.dialect, streamed=ask.streamed, candidates=ask.candidates, hide_usage=hide)

    return tap


def _nothing() -> None:
    """A provider without a limit has no turns."""
