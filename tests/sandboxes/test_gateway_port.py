"""The gateway inside a held sandbox: reached on its own loopback, served outside, gone with the kill."""

import asyncio
import os
import signal
import socket

import pytest

from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed
from tollbar.sandboxes.interface import PROXY_PORT, Form, Network

ASK = """
import socket, sys
for port in map(int, sys.argv[1:]):
    try:
        with socket.create_connection(("127.0.0.1", port), 3) as link:
            link.sendall(b"who?")
            print(port, link.recv(100).decode())
    except OSError as error:
        print(port, type(error).__name__)
"""

REACH = """
import socket, sys
for address in ("127.0.0.1", "93.184.215.14", "10.0.0.1", "::1"):
    try:
        socket.create_connection((address, int(sys.argv[1])), 3)
        print(address, "reached")
    except OSError as error:
        print(address, type(error).__name__)
"""

DEVICES = """
import fcntl, socket, struct
print(*[name for _, name in socket.if_nameindex()])
try:
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0))
except OSError as error:
    print(type(error).__name__)
"""


async def answering(listening, answer):
    """Serves a listening socket: whoever sends something gets the answer."""
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    while True:
        link, _ = await loop.sock_accept(listening)
        with link:
            await loop.sock_recv(link, 100)
            await loop.sock_sendall(link, answer)


def serve(answer):
    return lambda listening: answering(listening, answer)


async def asked(sandbox, *ports):
    ran = await sandbox.exec(["python3", "-c", ASK, *map(str, ports)], timeout_s=20)
    return ran.stdout_tail.decode().split("\n")[:-1]


@pytest.fixture
async def reaching(new_box):
    """Makes sandboxes that may reach what this process opens in them."""

    async def make(**options):
        return (await new_box(network=Network.GATEWAY, **options)).sandbox

    return make


@pytest.mark.forms(Form.HELD)
async def test_what_a_process_outside_serves_is_reached_inside_and_only_there(reaching):
    sandbox, other = await reaching(), await reaching()
    assert await sandbox.expose_gateway(serve(b"the gateway")) == "http://127.0.0.1:8787"
    assert await sandbox.expose_gateway(serve(b"the proxy"), PROXY_PORT) == "http://127.0.0.1:8788"
    assert await asked(sandbox, 8787, 8788, 8789) == [
        "8787 the gateway",
        "8788 the proxy",
        "8789 ConnectionRefusedError",
    ]
    assert await asked(other, 8787) == ["8787 ConnectionRefusedError"]
    with socket.socket() as outside:
        outside.settimeout(2)
        assert outside.connect_ex(("127.0.0.1", 8787)) != 0, "it listens on the sandbox's loopback, not on this one"


@pytest.mark.forms(Form.HELD)
async def test_nothing_but_the_port_is_reached_from_a_sandbox_that_has_one(reaching):
    sandbox = await reaching()
    await sandbox.expose_gateway(serve(b"x"))
    with socket.create_server(("", 0)) as mine:
        ran = await sandbox.exec(["python3", "-c", REACH, str(mine.getsockname()[1])], timeout_s=20)
    assert ran.stdout_tail.decode().split("\n")[:-1] == [
        "127.0.0.1 ConnectionRefusedError",
        "93.184.215.14 OSError",
        "10.0.0.1 OSError",
        "::1 ConnectionRefusedError",
    ]


@pytest.mark.forms(Form.HELD)
async def test_the_port_closes_with_the_kill_and_can_be_opened_again(reaching, host):
    sandbox = await reaching()
    await sandbox.exec(["true"], timeout_s=9)
    await sandbox.kill()
    before = host.descriptors()
    await sandbox.expose_gateway(serve(b"first"))
    assert await asked(sandbox, 8787) == ["8787 first"]
    await sandbox.kill()
    assert await asked(sandbox, 8787) == ["8787 ConnectionRefusedError"]
    await sandbox.expose_gateway(serve(b"second"))
    assert await asked(sandbox, 8787) == ["8787 second"]
    await sandbox.kill()
    assert host.descriptors() == before


@pytest.mark.forms(Form.HELD)
async def test_a_port_that_is_opened_for_a_moment_leaves_nothing(reaching, host):
    sandbox = await reaching()
    await sandbox.expose_gateway(serve(b"first"))
    await sandbox.kill()
    before = host.descriptors()
    await sandbox.expose_gateway(serve(b"second"))
    await sandbox.kill()
    assert host.descriptors() == before


@pytest.mark.forms(Form.HELD)
async def test_a_port_that_is_taken_inside_is_named(reaching):
    sandbox = await reaching()
    await sandbox.expose_gateway(serve(b"first"))
    with pytest.raises(EnvironmentStartFailed, match="8787 inside could not be opened: Address already in use"):
        await sandbox.expose_gateway(serve(b"second"))
    assert await asked(sandbox, 8787) == ["8787 first"]


@pytest.mark.forms(Form.HELD)
async def test_the_end_of_a_sandbox_ends_what_was_served_in_it(reaching, host):
    sandbox, ends = await reaching(), []

    async def endless(listening):
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(listening.fileno())

    await sandbox.expose_gateway(endless)
    await sandbox.exec(["true"], timeout_s=9)
    sandbox.kill_now()
    await host.until(lambda: ends)
    await host.until(lambda: str(ends[0]) not in host.descriptors())


@pytest.mark.forms(Form.HELD)
async def test_a_service_that_fails_closes_its_port_and_nothing_else(reaching):
    async def broken(_listening):
        raise RuntimeError

    sandbox = await reaching()
    await sandbox.expose_gateway(broken)
    await sandbox.expose_gateway(serve(b"the proxy"), PROXY_PORT)
    assert await asked(sandbox, 8787, 8788) == ["8787 ConnectionRefusedError", "8788 the proxy"]


@pytest.mark.forms(Form.HELD)
@pytest.mark.requirement("G-SBX-14.listener")
async def test_a_helper_that_is_killed_costs_no_sandbox_its_port_and_nothing_stays_of_a_hundred(reaching, host):
    sandbox = await reaching()
    await sandbox.expose_gateway(serve(b"still here"))
    await sandbox.exec(["true"], timeout_s=9)
    before = host.descriptors()
    (helper,) = [pid for pid in host.children(os.getpid()) if host.name(pid) == "tollbar-entry"]
    os.kill(helper, signal.SIGKILL)
    await sandbox.expose_gateway(serve(b"by a new one"), PROXY_PORT)
    assert await asked(sandbox, 8787, 8788) == ["8787 still here", "8788 by a new one"]
    for port in range(9000, 9100):
        await sandbox.expose_gateway(serve(b"many"), port)
    assert await asked(sandbox, 9000, 9099, 8787) == ["9000 many", "9099 many", "8787 still here"]
    (helper,) = [pid for pid in host.children(os.getpid()) if host.name(pid) == "tollbar-entry"]
    await host.until(lambda: not host.children(helper))
    await sandbox.kill()
    assert len(host.descriptors()) <= len(before)


@pytest.mark.forms(Form.HELD)
async def test_a_tenant_gets_no_right_over_its_network_by_it(reaching):
    sandbox = await reaching()
    await sandbox.expose_gateway(serve(b"x"))
    ran = await sandbox.exec(["python3", "-c", DEVICES], timeout_s=9)
    assert ran.stdout_tail.split() == [b"lo", b"PermissionError"]
    assert await asked(sandbox, 8787) == ["8787 x"]


@pytest.mark.forms(Form.HELD)
async def test_a_sandbox_without_network_gets_no_port(box):
    with pytest.raises(EnvironmentRefused, match="without any network"):
        await box.sandbox.expose_gateway(serve(b"x"))


@pytest.mark.forms(Form.ONE_SHOT)
async def test_a_one_shot_sandbox_has_no_gateway_and_says_so(box, new_box):
    with pytest.raises(EnvironmentRefused, match="one-shot"):
        await box.sandbox.expose_gateway(serve(b"x"))
    with pytest.raises(ValueError, match="no one_shot sandbox here has the network gateway"):
        await new_box(network=Network.GATEWAY)
