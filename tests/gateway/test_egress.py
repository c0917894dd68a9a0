"""The way out of a sandbox: named hosts on their usual ports, at public addresses, and nothing else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from tests.gateway.certificates import self_signed
from tests.support import eventually

from tollbar.gateway.egress import EgressProxy, NotAllowed, Outside, Policy, is_of_this_machine, resolve, server_name

PUBLIC = "93.184.215.14"
HOST = "api.example.com"


@asynccontextmanager
async def serving(serve, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serves connections, and at the end waits until each of them is over."""
    tasks: list[asyncio.Task[None]] = []

    def accept(reader, writer):
        tasks.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for task in tasks:
            await asyncio.wait_for(task, 10)


class World:
    """A proxy whose names and connections lead to servers of this test."""

    def __init__(self, policy: Policy, addresses: dict[str, list[str]] | None = None) -> None:
        self.log: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.servers: dict[int, int] = {}
        self._addresses = addresses or {}
        self.proxy = EgressProxy(
            policy, lambda host, verdict: self.log.append((host, verdict)), resolve=self._resolve, connect=self._connect
        )

    async def _resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        return self._addresses.get(host, [PUBLIC])

    async def _connect(self, address: str, port: int):
        self.connected.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.servers[port])

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with serving(self.proxy.serve) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    """A self-signed certificate with its key, for the host of the tests."""
    return self_signed(tmp_path_factory.mktemp("tls") / "both.pem", HOST, "other.example.com")


@asynccontextmanager
async def web_server(context: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answers every request with 'hello' and remembers its head."""
    heads: list[bytes] = []

    async def serve(reader, writer):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            heads.append(head + await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async with serving(serve, context) as port:
        yield port, heads


def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@asynccontextmanager
async def browsing(world: World, certificate: Path) -> AsyncIterator[httpx2.AsyncClient]:
    trust = ssl.create_default_context(cafile=str(certificate))
    async with (
        world.listening() as proxy,
        httpx2.AsyncClient(proxy=proxy, verify=trust, trust_env=False, timeout=10) as client,
    ):
        yield client


async def test_a_named_host_is_reached_over_tls_at_the_address_that_was_checked(certificate):
    world = World(Policy((HOST,)))
    async with web_server(tls(certificate)) as (port, heads), browsing(world, certificate) as client:
        world.servers[443] = port
        answer = await client.get(f"https://{HOST}/secret-path?q=1")

    assert answer.text == "hello"
    assert heads[0].startswith(b"GET /secret-path?q=1 ")
    assert world.connected == [(PUBLIC, 443)]
    assert world.asked == [HOST], "resolved once"
    assert world.log == [(HOST, "open")], "no path"


async def test_a_plain_request_is_passed_on_in_origin_form_with_its_body(certificate):
    world = World(Policy((HOST,)))
    async with web_server() as (port, heads), browsing(world, certificate) as client:
        world.servers[80] = port
        answer = await client.post(f"http://{HOST}/a?b=c", content=b"body", headers={"proxy-authorization": "x"})

    assert answer.text == "hello"
    assert heads[0].startswith(b"POST /a?b=c HTTP/1.1\r\n")
    assert heads[0].endswith(b"\r\n\r\nbody")
    assert b"proxy-" not in heads[0].lower()


@pytest.mark.parametrize(
    ("url", "verdict"),
    [
        ("https://evil.example.org/", "not_listed"),
        ("https://api.example.com.evil.org/", "not_listed"),
        ("https://example.com/", "not_listed"),
        (f"https://{HOST}:8443/", "port"),
        (f"http://{HOST}:8080/", "port"),
        ("https://93.184.215.14/", "address"),
        ("https://[2606:4700::1111]/", "address"),
        ("http://2130706433/", "address"),
        ("http://0x7f000001/", "address"),
        (f"https://{HOST}./", "name"),
    ],
)
async def test_what_is_not_named_is_refused_before_anything_is_resolved(certificate, url, verdict):
    world = World(Policy((HOST,)))
    async with browsing(world, certificate) as client:
        try:
            answer = await client.get(url)
        except httpx2.ProxyError as error:
            assert "403" in str(error)
        else:
            assert answer.status_code == 403
            assert verdict in answer.text

    assert [said for _, said in world.log] == [verdict]
    assert (world.asked, world.connected) == ([], [])


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["10.0.0.5"],
        ["169.254.169.254"],
        ["::ffff:192.168.0.1"],
        ["64:ff9b::7f00:1"],
        [PUBLIC, "10.0.0.5"],
        ["2606:4700::1111", "fe80::1"],
        ["198.51.100.7"],
        [],
    ],
)
async def test_one_address_that_is_not_public_refuses_the_host(certificate, answers):
    world = World(Policy(None, own_addresses=("8.8.8.8",)), {HOST: answers})
    async with browsing(world, certificate) as client:
        with pytest.raises(httpx2.ProxyError):
            await client.get(f"https://{HOST}/")

    assert world.log == [(HOST, "private" if answers else "unresolved")]
    assert world.connected == []


async def test_the_servers_own_address_is_closed(certificate):
    world = World(Policy(None, own_addresses=(PUBLIC,)))
    async with browsing(world, certificate) as client:
        with pytest.raises(httpx2.ProxyError):
            await client.get(f"https://{HOST}/")
    assert world.log == [(HOST, "private")]


async def test_a_tunnel_that_asks_for_another_name_is_closed(certificate):
    world = World(Policy((HOST,)))
    async with web_server(tls(certificate)) as (port, heads), world.listening() as proxy:
        world.servers[443] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
        writer.write(f"CONNECT {HOST}:443 HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        trust = ssl.create_default_context(cafile=str(certificate))
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await writer.start_tls(trust, server_hostname="other.example.com")
        writer.close()

    assert world.log == [(HOST, "server_name")]
    assert (world.connected, heads) == ([], [])


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"SSH-2.0-x\r\n", b"\x00" * 100])
async def test_a_tunnel_that_is_no_tls_is_closed(said):
    world = World(Policy((HOST,)))
    async with world.listening() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
        writer.write(f"CONNECT {HOST}:443 HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode() + said)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        writer.close()

    assert world.log == [(HOST, "no_tls")]
    assert world.connected == []


async def test_the_beginning_of_tls_may_come_byte_by_byte_and_in_a_few_records():
    hello = _hello(HOST)
    half = len(hello[5:]) // 2
    parts = [hello[5 : 5 + half], hello[5 + half :]]
    in_two = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)
    for said in (hello, in_two):
        world = World(Policy((HOST,)))
        async with web_server() as (port, _), world.listening() as proxy:
            world.servers[443] = port
            reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
            writer.write(f"CONNECT {HOST}:443 HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            for byte in said:
                writer.write(bytes([byte]))
                await writer.drain()
            await eventually(lambda world=world: _is((HOST, "open") in world.log))
            writer.close()


async def test_a_beginning_of_tls_that_never_ends_is_closed():
    world = World(Policy((HOST,)))
    async with world.listening() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
        crumbs = b"".join(b"\x16\x03\x01\x00\x01" + bytes([byte]) for byte in _hello(HOST)[5:30])
        writer.write(f"CONNECT {HOST}:443 HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode() + crumbs)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
    assert world.log == [(HOST, "no_tls")]


async def _is(value: bool) -> bool:
    return value


async def test_names_are_resolved_by_the_systems_resolver_and_what_has_no_answer_has_none():
    assert set(await resolve("localhost")) & {"127.0.0.1", "::1"}
    assert await resolve("no-such-name.invalid") == []


def test_an_address_of_this_machine_is_known_as_its_own():
    assert is_of_this_machine("127.0.0.1")
    assert not is_of_this_machine(PUBLIC)
    assert not is_of_this_machine("2606:4700::1111")


async def test_a_public_address_of_this_machine_is_closed(certificate):
    world = World(Policy((HOST,)))
    world.proxy.is_own = lambda address: address == PUBLIC
    async with browsing(world, certificate) as client:
        with pytest.raises(httpx2.ProxyError, match="403 tollbar: private"):
            await client.get(f"https://{HOST}/")
    assert world.connected == []


async def test_the_servers_own_hosts_are_closed_by_whatever_address_they_have():
    async def resolve(host: str) -> list[str]:
        return {"db.example.com": ["8.8.4.4"], HOST: ["8.8.4.4"]}.get(host, [])

    log: list[tuple[str, str]] = []
    outside = Outside(own_hosts=("db.example.com", "1.0.0.1"), resolve=resolve)
    proxy = await outside.proxy([HOST], lambda host, verdict: log.append((host, verdict)), lambda *_: None)
    assert proxy.policy.own_addresses == ("8.8.4.4", "1.0.0.1")
    with pytest.raises(NotAllowed, match="private"):
        await proxy.pinned(HOST)


async def test_a_tunnel_without_a_server_name_is_closed():
    assert server_name(_hello(None)) == ""
    assert server_name(_hello(HOST)) == HOST
    assert server_name(_hello(HOST)[:100]) is None
    with pytest.raises(NotAllowed):
        server_name(b"GET / HTTP/1.1\r\n\r\n")


def _hello(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


async def test_a_connection_on_which_nobody_speaks_is_closed(certificate):
    world = World(Policy((HOST,)))
    world.proxy.idle_s = 0.1
    async with world.listening() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
        assert await reader.read() == b""
        writer.close()


async def test_more_than_a_sandbox_may_move_ends_its_connections(certificate):
    world = World(Policy((HOST,)))
    world.proxy.most_bytes = 1000
    async with web_server(tls(certificate)) as (port, heads), browsing(world, certificate) as client:
        world.servers[443] = port
        with pytest.raises(httpx2.HTTPError):
            await client.post(f"https://{HOST}/", content=b"x" * 100_000)

    assert world.log == [(HOST, "open"), (HOST, "volume")]
    assert heads == []


@pytest.mark.parametrize(
    ("pattern", "host", "allowed"),
    [
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "badexample.com", False),
        ("Example.COM", "example.com", True),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("example.com", "a.example.com", False),
    ],
)
def test_names_are_compared_as_the_net_does(pattern, host, allowed):
    policy = Policy((pattern,))
    if allowed:
        assert policy.check_name(host) == host
    else:
        with pytest.raises(NotAllowed):
            policy.check_name(host)
