"""Listed hosts from inside a real sandbox: by the proxy on its loopback, and by nothing else."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from tests.gateway.test_egress import certificate, serving, tls

from tollbar.gateway.egress import Outside, serve
from tollbar.jobs.outlet import announced
from tollbar.sandboxes.interface import PROXY_PORT, Form, Network

__all__ = ["certificate"]

PUBLIC = "93.184.215.14"
SETS_OUT = """
import os, socket, ssl, sys, urllib.error, urllib.request

trust = ssl.create_default_context(cadata=os.environ["TRUST"])
outward = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust))
alone = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))

def ask(opener, url):
    try:
        said = opener.open(url, timeout=10).read().decode()
    except urllib.error.HTTPError as error:
        said = f"{error.code} {error.read().decode().strip()}"
    except urllib.error.URLError as error:
        said = str(error.reason)
    print(f"{url}: {said}")

for url in sys.argv[1:]:
    ask(outward, url)
ask(alone, "http://93.184.215.14/")

link = socket.create_connection(("127.0.0.1", 8788), 10)
link.sendall(b"CONNECT api.example.com:443 HTTP/1.1\\r\\nhost: api.example.com\\r\\n\\r\\n")
while not link.recv(4096).endswith(b"\\r\\n\\r\\n"):
    pass
try:
    trust.wrap_socket(link, server_hostname="third.example.com")
except (OSError, ssl.SSLError) as error:
    print("another server name: closed")
"""
URLS = (
    "https://api.example.com/",
    "http://api.example.com/",
    "https://evil.example/",
    "https://93.184.215.14/",
    "http://10.0.0.5/",
    "https://private.example.com/",
    "https://other.example.com/",
    "https://other.example.com/",
    "http://api.example.com/redirect",
    "http://api.example.com:8080/",
)
SAID = [
    "https://api.example.com/: hello",
    "http://api.example.com/: hello",
    "https://evil.example/: Tunnel connection failed: 403 tollbar: not_listed",
    "https://93.184.215.14/: Tunnel connection failed: 403 tollbar: address",
    "http://10.0.0.5/: 403 tollbar: address",
    "https://private.example.com/: Tunnel connection failed: 403 tollbar: private",
    "https://other.example.com/: hello",
    "https://other.example.com/: Tunnel connection failed: 403 tollbar: private",
    "http://api.example.com/redirect: 403 tollbar: private",
    "http://api.example.com:8080/: 403 tollbar: port",
    "http://93.184.215.14/: [Errno 101] Network is unreachable",
    "another server name: closed",
]
LOG = [
    ("api.example.com", "open"),
    ("api.example.com", "open"),
    ("evil.example", "not_listed"),
    ("93.184.215.14", "address"),
    ("10.0.0.5", "address"),
    ("private.example.com", "private"),
    ("other.example.com", "open"),
    ("other.example.com", "private"),
    ("api.example.com", "open"),
    ("private.example.com", "private"),
    ("api.example.com", "port"),
    ("api.example.com", "server_name"),
]


class Names:
    """Resolves as a hostile name server would: one name is public first and private afterwards."""

    def __init__(self) -> None:
        self._fickle = [[PUBLIC], ["10.0.0.5"]]

    async def resolve(self, host: str) -> list[str]:
        known = {"api.example.com": [PUBLIC], "private.example.com": [PUBLIC, "192.168.0.7"]}
        return self._fickle.pop(0) if host == "other.example.com" else known.get(host, [])


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says hello, or leads to a host with a private address."""
    with suppress(asyncio.IncompleteReadError, OSError):
        head = await reader.readuntil(b"\r\n\r\n")
        if b" /redirect " in head:
            writer.write(b"HTTP/1.1 302 x\r\nlocation: http://private.example.com/\r\ncontent-length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        await writer.drain()
    writer.close()


def trusted(path: Path) -> str:
    text = path.read_text()
    return text[text.index("-----BEGIN CERTIFICATE-----") :]


@pytest.mark.forms(Form.HELD)
@pytest.mark.requirement("G-SBX-14.allow_list")
async def test_listed_hosts_pass_and_all_else_is_refused_and_logged(new_box, host, certificate: Path):
    log: list[tuple[str, str]] = []
    ports: dict[int, int] = {}

    async def connect(address: str, port: int):
        assert address == PUBLIC
        return await asyncio.open_connection("127.0.0.1", ports[port])

    names = ("api.example.com", "private.example.com", "other.example.com")
    outside = Outside(resolve=Names().resolve, connect=connect)
    proxy = await outside.proxy(names, lambda name, verdict: log.append((name, verdict)), lambda *_: None)
    box = await new_box(network=Network.ALLOWLIST)
    await box.sandbox.exec(["true"], timeout_s=9)
    async with serving(web) as plain, serving(web, tls(certificate)) as secret:
        ports |= {80: plain, 443: secret}
        before = host.descriptors()
        url = await box.sandbox.expose_gateway(lambda listening: serve(proxy, listening), PROXY_PORT)
        env = {"TRUST": trusted(certificate), **announced(url)}
        said = await box.python(SETS_OUT, argv=URLS, env=env, timeout_s=60)
        await box.sandbox.kill()

    assert said.split("\n")[:-1] == SAID
    assert log == LOG
    assert len(host.descriptors()) <= len(before)


@pytest.mark.forms(Form.HELD)
async def test_a_sandbox_has_no_more_connections_than_it_may_and_the_kill_ends_them_all(new_box, host):
    async def never(_name: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    proxy = await Outside(resolve=never).proxy(["api.example.com"], lambda *_: None, lambda *_: None)
    box = await new_box(network=Network.ALLOWLIST)
    await box.sandbox.exec(["true"], timeout_s=9)
    before = host.descriptors()
    await box.sandbox.expose_gateway(lambda listening: serve(proxy, listening), PROXY_PORT)
    many = "import socket; links = [socket.create_connection(('127.0.0.1', 8788), 9) for _ in range(100)]; input()"
    running = asyncio.create_task(box.sandbox.exec(["sh", "-c", f'sleep 60 | python3 -c "{many}"'], timeout_s=60))
    await host.until(lambda: len(host.descriptors()) >= len(before) + 64)
    await asyncio.sleep(0.3)
    # The command has a few descriptors of its own, the listener two.
    assert len(host.descriptors()) < len(before) + 64 + 16
    await box.sandbox.kill()
    await asyncio.gather(running, return_exceptions=True)
    assert len(host.descriptors()) <= len(before)
