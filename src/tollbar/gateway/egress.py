"""The way out of a sandbox whose task names hosts: a proxy that resolves once, refuses private addresses, and pins.

It speaks `CONNECT host:443` and plain `http://host/` on port 80, nothing else. What ignores the proxy has no network.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final
from urllib.parse import urlsplit

import h11

from tollbar.kit.addresses import is_address, is_public

IDLE_S: Final = 30.0
CONNECT_S: Final = 10.0
MOST_CONNECTIONS: Final = 64
"""Of one sandbox; further ones wait in the backlog."""
_CLOSE_S: Final = 5.0
_AGAIN_S: Final = 0.01
MOST_BYTES: Final = 1 << 30
"""In each direction, for all connections of one sandbox together."""
_CHUNK: Final = 64 << 10
_HELLO_BYTES: Final = 64 << 10
_HELLO_RECORDS: Final = 8
"""How often the beginning of a TLS connection is taken apart: at the end of a record, never for every byte."""
_HANDSHAKE, _RECORD_HEAD = 0x16, 5
_TLS, _PLAIN = 443, 80
_HOP: Final = frozenset({b"proxy-connection", b"proxy-authorization", b"connection", b"keep-alive", b"te", b"upgrade"})

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a name."""
Connect = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class NotAllowed(Exception):
    """A connection is refused; `verdict` is a word for the log, and `host` what was asked for, where that is known."""

    def __init__(self, verdict: str, host: str = "") -> None:
        super().__init__(verdict)
        self.verdict = verdict
        self.host = host


@dataclass(frozen=True)
class Policy:
    """Where a sandbox may go: names, exact or `*.example.com` (one or more labels before it); None: any public host."""

    hosts: tuple[str, ...] | None
    own_addresses: tuple[str, ...] = ()
    """Of this server and its database: closed, also when they are public."""

    def check_name(self, host: str) -> str:
        """Returns the name as it is compared and resolved. Raises `NotAllowed`."""
        if is_address(host):
            raise NotAllowed("address")
        name = plain_name(host)
        if self.hosts is not None and not any(_matches(name, plain_name(pattern)) for pattern in self.hosts):
            raise NotAllowed("not_listed")
        return name

    def check_addresses(self, addresses: Sequence[str]) -> str:
        """Returns the address to connect to; one answer that is not public refuses them all."""
        if not addresses:
            raise NotAllowed("unresolved")
        if not all(is_public(address, self.own_addresses) for address in addresses):
            raise NotAllowed("private")
        return addresses[0]


def plain_name(host: str) -> str:
    """Returns a name in lower case and IDNA. Raises `NotAllowed` for a trailing dot and for what is no name."""
    star, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
    if not name or name.endswith(".") or name != name.strip():
        raise NotAllowed("name")
    try:
        return star + name.lower().encode("idna").decode()
    except UnicodeError:
        raise NotAllowed("name") from None


def _matches(name: str, pattern: str) -> bool:
    return name.endswith(pattern[1:]) and name != pattern[2:] if pattern.startswith("*.") else name == pattern


async def resolve(host: str) -> list[str]:
    """Returns the addresses that the system's resolver has for a name; none when it has no answer."""
    try:
        async with asyncio.timeout(CONNECT_S):
            ask = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
            found = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
    except (OSError, TimeoutError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Returns threads for nothing else: names that nobody answers for must not hold up the rest of the process."""
    return ThreadPoolExecutor(8, "resolve")


async def connect(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection to an address that was checked."""
    async with asyncio.timeout(CONNECT_S):
        return await asyncio.open_connection(address, port)


def is_of_this_machine(address: str) -> bool:
    """Says whether an address is one of this machine's own, also when it is public: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _nobody(_host: str, _sent: int, _received: int) -> None:
    """Nobody wants to know."""


@dataclass
class EgressProxy:
    """The proxy of one sandbox; `serve` takes each connection that its listener accepted."""

    policy: Policy
    log: Callable[[str, str], None]
    """`(host, verdict)` of every connection and refusal; never a path."""
    closed: Callable[[str, int, int], None] = _nobody
    """`(host, sent, received)` of every connection that was open, in bytes, at its end."""
    is_own: Callable[[str], bool] = is_of_this_machine
    resolve: Resolve = resolve
    connect: Connect = connect
    idle_s: float = IDLE_S
    most_bytes: int = MOST_BYTES
    _out: int = field(default=0, init=False)
    _in: int = field(default=0, init=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles one connection to its end; never raises for what its two sides do."""
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, h11.ProtocolError):
                await _Connection(self, reader, writer).run()
        finally:
            await _close(writer)

    async def pinned(self, host: str) -> tuple[str, str]:
        """Returns the name and the address that a connection to `host` goes to. Raises `NotAllowed`."""
        name = self.policy.check_name(host)
        address = self.policy.check_addresses(addresses := await self.resolve(name))
        if any(map(self.is_own, addresses)):
            raise NotAllowed("private")
        return name, address

    def count(self, sent: int, received: int) -> None:
        """Counts bytes. Raises `NotAllowed` above the limit of either direction."""
        self._out += sent
        self._in += received
        if max(self._out, self._in) > self.most_bytes:
            raise NotAllowed("volume")


class _Connection:
    """One connection of a client."""

    def __init__(self, proxy: EgressProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._client = h11.Connection(h11.SERVER)
        self._sent = self._received = 0
        self._is_open = False

    async def run(self) -> None:
        request = await self._event()
        if not isinstance(request, h11.Request):
            return
        host = ""
        try:
            tunnel, host, port, target = _destination(request)
            name, address = await self._proxy.pinned(host)
            host = name
            if tunnel:
                await self._tunnel(name, address, port)
            else:
                await self._forward(request, name, address, target)
        except NotAllowed as error:
            self._proxy.log(error.host or host, error.verdict)
            await self._refuse(403, f"tollbar: {error.verdict}")
        except (OSError, TimeoutError):
            if not self._is_open:
                self._proxy.log(host, "unreachable")
            await self._refuse(502, "tollbar: unreachable")

    async def _tunnel(self, name: str, address: str, port: int) -> None:
        answer = h11.Response(status_code=200, headers=[], reason=b"Connection established")
        await self._say(self._client.send(answer))
        first = await self._hello(name)
        upstream = await self._connect(name, address, port)
        try:
            self._count(len(first), 0)
            upstream[1].write(first)
            await self._both_ways(*upstream)
        finally:
            self._proxy.closed(name, self._sent, self._received)
            await _close(upstream[1])

    async def _connect(self, name: str, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        upstream = await self._proxy.connect(address, port)
        self._is_open = True
        self._proxy.log(name, "open")
        return upstream

    async def _hello(self, name: str) -> bytes:
        """Reads the beginning of the client's TLS. Raises `NotAllowed` unless it asks for that very name."""
        data, end = self._client.trailing_data[0], 0
        for _ in range(_HELLO_RECORDS):
            data = await self._up_to(end + _RECORD_HEAD, data)
            if data[end] != _HANDSHAKE:
                raise NotAllowed("no_tls")
            end += _RECORD_HEAD + int.from_bytes(data[end + 3 : end + _RECORD_HEAD], "big")
            data = await self._up_to(end, data)
            asked = server_name(data)
            if asked is not None:
                if asked.lower() != name:
                    raise NotAllowed("server_name")
                return data
        raise NotAllowed("no_tls")

    async def _up_to(self, length: int, data: bytes) -> bytes:
        """Reads on until there are so many bytes. Raises `NotAllowed` for more than a beginning has."""
        while len(data) < length:
            part = await self._read(self._reader)
            if not part or length > _HELLO_BYTES:
                raise NotAllowed("no_tls")
            data += part
        return data

    async def _both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes bytes until both sides have ended, or neither has said anything for too long."""
        loop, idle_s = asyncio.get_running_loop(), self._proxy.idle_s

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, out: bool) -> None:
            while part := await source.read(_CHUNK):
                timer.reschedule(loop.time() + idle_s)
                self._count(len(part) if out else 0, 0 if out else len(part))
                target.write(part)
                await target.drain()
            target.write_eof()

        async with asyncio.timeout(idle_s) as timer:
            pumps = [
                asyncio.create_task(pump(self._reader, writer, out=True)),
                asyncio.create_task(pump(reader, self._writer, out=False)),
            ]
            try:
                await asyncio.gather(*pumps)
            finally:
                for task in pumps:
                    task.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _forward(self, request: h11.Request, name: str, address: str, target: bytes) -> None:
        """Passes one plain request and its answer; the next one is a connection of its own, and is checked anew."""
        reader, writer = await self._connect(name, address, _PLAIN)
        server = h11.Connection(h11.CLIENT)
        try:
            headers = [(key, value) for key, value in request.headers if key not in _HOP and key != b"host"]
            head = [(b"host", name.encode()), *headers, (b"connection", b"close")]
            out = server.send(h11.Request(method=request.method, target=target, headers=head)) or b""
            await self._send_up(writer, out)
            while not isinstance(event := await self._event(), h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    await self._send_up(writer, server.send(event) or b"")
            await self._send_up(writer, server.send(h11.EndOfMessage()) or b"")
            await self._answer(server, reader)
        finally:
            self._proxy.closed(name, self._sent, self._received)
            await _close(writer)

    async def _answer(self, server: h11.Connection, reader: asyncio.StreamReader) -> None:
        while True:
            event: Any = server.next_event()
            if event is h11.NEED_DATA:
                part = await self._read(reader)
                self._count(0, len(part))
                server.receive_data(part)
            elif isinstance(event, h11.Response):
                kept = [(key, value) for key, value in event.headers if key not in _HOP]
                closing = [*kept, (b"connection", b"close")]
                await self._say(self._client.send(h11.Response(status_code=event.status_code, headers=closing)))
            elif isinstance(event, h11.Data | h11.EndOfMessage):
                await self._say(self._client.send(event))
                if isinstance(event, h11.EndOfMessage):
                    return
            elif not isinstance(event, h11.InformationalResponse):
                return

    def _count(self, sent: int, received: int) -> None:
        self._sent += sent
        self._received += received
        self._proxy.count(sent, received)

    async def _send_up(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self._count(len(data), 0)
        writer.write(data)
        await writer.drain()

    async def _event(self) -> Any:
        while (event := self._client.next_event()) is h11.NEED_DATA:
            self._client.receive_data(await self._read(self._reader))
        return event

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(self._proxy.idle_s):
            return await reader.read(_CHUNK)

    async def _refuse(self, status: int, text: str) -> None:
        if self._client.our_state is h11.SEND_RESPONSE or self._client.our_state is h11.IDLE:
            body = text.encode() + b"\n"
            headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
            parts = (
                h11.Response(status_code=status, headers=[*headers, (b"connection", b"close")], reason=text.encode()),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
            await self._say(b"".join(self._client.send(part) or b"" for part in parts))

    async def _say(self, data: bytes | None) -> None:
        if data:
            self._writer.write(data)
            await self._writer.drain()


@dataclass(frozen=True)
class Outside:
    """The world as proxies of this process reach it."""

    own_hosts: tuple[str, ...] = ()
    """Of this server and its database: their addresses are closed, also when they are public and elsewhere."""
    resolve: Resolve = resolve
    connect: Connect = connect

    async def proxy(
        self, hosts: Sequence[str] | None, log: Callable[[str, str], None], closed: Callable[[str, int, int], None]
    ) -> EgressProxy:
        """Returns a proxy to the named hosts; None: to any public one. `log` and `closed` are `EgressProxy`'s."""
        own: list[str] = []
        for host in self.own_hosts:
            own += [host] if is_address(host) else await self.resolve(host)
        policy = Policy(None if hosts is None else tuple(hosts), tuple(own))
        return EgressProxy(policy, log, closed, resolve=self.resolve, connect=self.connect)


async def serve(proxy: EgressProxy, listening: socket.socket) -> None:
    """Serves the connections of a listening socket until it is cancelled; whoever calls it closes the socket."""
    listening.setblocking(False)
    free, living = asyncio.Semaphore(MOST_CONNECTIONS), dict[asyncio.Task[None], socket.socket]()

    def over(task: asyncio.Task[None]) -> None:
        living.pop(task).close()
        free.release()

    try:
        while True:
            await free.acquire()
            accepted = await _accepted(listening)
            task = asyncio.create_task(_attend(proxy, accepted))
            living[task] = accepted
            task.add_done_callback(over)
    finally:
        ending = list(living)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _accepted(listening: socket.socket) -> socket.socket:
    """Returns the next connection. Raises `OSError` once the socket is closed."""
    while True:
        try:
            return (await asyncio.get_running_loop().sock_accept(listening))[0]
        except OSError:
            if listening.fileno() < 0:
                raise
            # Out of descriptors, or a connection that was reset in the backlog: the next one may be fine.
            await asyncio.sleep(_AGAIN_S)


async def _attend(proxy: EgressProxy, accepted: socket.socket) -> None:
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(sock=accepted)
        await proxy.serve(reader, writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes a connection once its last bytes are gone, or nobody has taken them for a while."""
    writer.close()
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await writer.wait_closed()
    finally:
        writer.transport.abort()


def _destination(request: h11.Request) -> tuple[bool, str, int, bytes]:
    """Returns whether it is a tunnel, the host, the port, and the target for the server. Raises `NotAllowed`."""
    target = request.target.decode("ascii", "replace")
    if request.method == b"CONNECT":
        host, _, port = target.rpartition(":")
        if port != str(_TLS):
            raise NotAllowed("port", host)
        return True, host.strip("[]"), _TLS, b""
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError:
        raise NotAllowed("target") from None
    if parts.scheme != "http" or not parts.hostname or parts.username is not None:
        raise NotAllowed("target")
    if port not in {None, _PLAIN}:
        raise NotAllowed("port", parts.hostname)
    rest = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return False, parts.hostname, _PLAIN, rest.encode()


def server_name(data: bytes) -> str | None:
    """Returns the server name that the beginning of a TLS connection asks for, `""` for none, None to read on.

    Raises `NotAllowed` for what is no TLS. The library's own reader takes it apart; no handshake comes of it.
    """
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _object, name, _context: seen.append(name)
    incoming = ssl.MemoryBIO()
    reader = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    incoming.write(data)
    try:
        reader.do_handshake()
    except ssl.SSLWantReadError:
        return (seen[0] or "") if seen else None
    except ssl.SSLError:
        if not seen:
            raise NotAllowed("no_tls") from None
    return (seen[0] or "") if seen else None
