"""The gateway inside a held sandbox: reached on its own loopback, served outside, gone with the kill."""

import asyncio
import socket
from pathlib import Path

import pytest

from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.interface import PROXY_PORT, Form

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


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.forms(Form.HELD)
async def test_what_a_process_outside_serves_is_reached_inside_and_only_there(box):
    assert await box.sandbox.expose_gateway(serve(b"the gateway")) == "http://127.0.0.1:8787"
    assert await box.sandbox.expose_gateway(serve(b"the proxy"), PROXY_PORT) == "http://127.0.0.1:8788"
    assert await asked(box.sandbox, 8787, 8788, 8789) == [
        "8787 the gateway",
        "8788 the proxy",
        "8789 ConnectionRefusedError",
    ]
    with socket.socket() as outside:
        outside.settimeout(2)
        assert outside.connect_ex(("127.0.0.1", 8787)) != 0, "it listens on the sandbox's loopback, not on this one"


@pytest.mark.forms(Form.HELD)
async def test_the_port_closes_with_the_kill_and_can_be_opened_again(box):
    await box.sandbox.exec(["true"], timeout_s=9)
    await box.sandbox.kill()
    before = descriptors()
    await box.sandbox.expose_gateway(serve(b"first"))
    assert await asked(box.sandbox, 8787) == ["8787 first"]
    await box.sandbox.kill()
    assert await asked(box.sandbox, 8787) == ["8787 ConnectionRefusedError"]
    await box.sandbox.expose_gateway(serve(b"second"))
    assert await asked(box.sandbox, 8787) == ["8787 second"]
    await box.sandbox.kill()
    assert descriptors() <= before


@pytest.mark.forms(Form.HELD)
async def test_a_tenant_gets_no_right_over_its_network_by_it(box):
    await box.sandbox.expose_gateway(serve(b"x"))
    ran = await box.sandbox.exec(["python3", "-c", DEVICES], timeout_s=9)
    assert ran.stdout_tail.split() == [b"lo", b"PermissionError"]
    assert await asked(box.sandbox, 8787) == ["8787 x"]


@pytest.mark.forms(Form.ONE_SHOT)
async def test_a_one_shot_sandbox_has_no_gateway_and_says_so(box):
    with pytest.raises(EnvironmentRefused, match="one-shot"):
        await box.sandbox.expose_gateway(serve(b"x"))
