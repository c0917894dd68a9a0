"""Sandboxes with services beside them: what starts, who reaches whom, what stands still, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.sandboxes.docker.looking import IMAGE, docker, gone, inspect

from tollbar.gateway.egress import Outside, serve
from tollbar.sandboxes.docker.engine import Engine
from tollbar.sandboxes.docker.provider import DockerProvider
from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed
from tollbar.sandboxes.interface import PROXY_PORT, Form, ImageSpec, Limits, Network, Purpose, SandboxName, SandboxSpec

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
WEB = """
services:
  main:
    environment: {GREETED: "${NAME:-world}", SECRET: "${SERVER_SECRET}"}
    depends_on: {web: {condition: service_healthy}}
  web:
    image: tollbar/busybox:test
    environment: [PRICE=$$5]
    command: ["sh", "-c", "sleep 1; echo $$PRICE > /srv/index.html; exec httpd -f -p 80 -h /srv"]
    healthcheck: {test: ["CMD", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1/"], interval: 200ms, retries: 50}
    volumes: ["./page:/srv/page:ro", "shared:/shared"]
volumes: {shared: {}}
"""


@pytest.fixture
def with_services(provider, tmp_path):
    """Makes a sandbox of a folder with that compose file."""

    async def made(text, trial="trial_c", **words):
        assert await provider.preflight() == []
        folder = tmp_path / trial
        (folder / "page").mkdir(parents=True)
        (folder / "page" / "hello.txt").write_text("hello")
        (folder / "Dockerfile").write_text(f"FROM {IMAGE}\nWORKDIR /work\n")
        (folder / "docker-compose.yaml").write_text(text)
        image = await provider.build(ImageSpec(folder))
        facts = {
            "name": SandboxName(trial, 1, Purpose.AGENT),
            "owner": "owner-1",
            "form": Form.HELD,
            "image": image,
            "workdir": image.workdir,
            "env": dict(image.env),
            "limits": Limits(memory_mb=64, pids=64),
            "ceiling": Limits(memory_mb=128, pids=100, cpus=2),
            "directories": ("/logs/agent",),
        }
        return await provider.create(SandboxSpec(**{**facts, **words}))

    return made


def own(provider, kind):
    """Returns what the engine has of this data directory: `ps --all`, `network ls` or `volume ls`."""
    label = f"label=tollbar.installation={(provider._root / 'installation').read_text()}"
    return docker(*kind.split(), "--filter", label, "--format", "json").splitlines()


def beside(sandbox, service):
    """Returns the name of the container of a service beside `main`."""
    return f"{inspect(sandbox.container)['Name'].strip('/')}.{service}"


async def test_the_agent_is_in_main_reaches_a_healthy_service_and_has_nothing_of_the_server(
    with_services, sh, monkeypatch
):
    monkeypatch.setenv("SERVER_SECRET", "of-the-server")
    sandbox = await with_services(WEB)
    text = 'pwd; echo "$GREETED$SECRET"; wget -q -O - http://web/; wget -q -O - http://web/page/hello.txt'
    result = await sh(sandbox, text)
    assert result.stdout_tail.decode() == "/work\nworld\n$5\nhello", result.stderr_tail
    assert (await sh(sandbox, "echo x > /logs/agent/mine")).exit_code == 0


@pytest.mark.requirement("G-SBX-14.compose_labels")
async def test_containers_networks_and_volumes_are_labelled_and_go_with_the_sandbox(with_services, sh, provider):
    sandbox = await with_services(WEB)
    await sh(sandbox, "true")
    assert [len(own(provider, kind)) for kind in ("ps --all", "network ls", "volume ls")] == [2, 1, 1]
    for name in (sandbox.container, beside(sandbox, "web")):
        labels = inspect(name)["Config"]["Labels"]
        assert (labels["tollbar.trial"], labels["tollbar.owner"], labels["tollbar.purpose"]) == (
            "trial_c",
            "owner-1",
            "agent",
        )
    await sandbox.destroy()
    await sandbox.destroy()
    assert [own(provider, kind) for kind in ("ps --all", "network ls", "volume ls")] == [[], [], []]


@pytest.mark.requirement("G-SBX-14.compose_labels")
async def test_what_a_killed_process_left_with_its_services_is_reaped_by_its_own_installation_only(
    with_services, sh, provider, tmp_path
):
    sandbox = await with_services(WEB)
    await sh(sandbox, "true")
    stranger = DockerProvider(tmp_path / "stranger", host="here", engine=Engine(os.environ["DOCKER_HOST"]))
    assert await stranger.reap((), now=NOW) == []
    await stranger.close()
    assert len(own(provider, "ps --all")) == 2
    # As after the death of its process: nobody holds the folder any more.
    provider._living.clear()
    provider._claims.pop("trial_c-1-agent").let_go()
    heir = DockerProvider(provider._root, host="here", engine=Engine(os.environ["DOCKER_HOST"]))
    assert await heir.reap((), now=NOW) == ["trial_c-1-agent"]
    await heir.close()
    assert [own(provider, kind) for kind in ("ps --all", "network ls", "volume ls")] == [[], [], []]


async def test_services_have_few_rights_and_no_more_than_the_limits(with_services, sh):
    wish = "    mem_limit: 8g\n    cpus: 64\n    pids_limit: 50\n"
    asked = WEB.replace("    environment: [PRICE", f"{wish}    environment: [PRICE")
    sandbox = await with_services(asked)
    await sh(sandbox, "true")
    for name, memory, pids, cpus in ((sandbox.container, 64, 64, 1.0), (beside(sandbox, "web"), 128, 50, 2.0)):
        facts = inspect(name)["HostConfig"]
        assert (facts["CapDrop"], sorted(facts["CapAdd"])) == (
            ["ALL"],
            ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"],
        )
        assert facts["SecurityOpt"] == ["no-new-privileges:true"]
        assert facts["Memory"] == facts["MemorySwap"] == memory << 20
        assert (facts["PidsLimit"], facts["NanoCpus"]) == (pids, round(cpus * 1e9))
        assert (facts["Privileged"], facts["Binds"], facts["PortBindings"], facts["Init"]) == (False, None, {}, True)


async def test_a_network_of_services_reaches_neither_the_outside_nor_the_machine(with_services, sh):
    """A listener on all addresses where the engine runs; the bridge has no address there."""
    pid = _engine_pid()
    sandbox = await with_services(WEB)
    assert (await sh(sandbox, "nslookup web.example.com")).exit_code != 0
    assert {tuple(inspect(name)["HostConfig"]["Dns"]) for name in (sandbox.container, beside(sandbox, "web"))} == {
        ("192.0.2.53",)
    }
    gateway = (
        (await sh(sandbox, "ip route | sed -n 's/default via \\([0-9.]*\\).*/\\1/p'")).stdout_tail.decode().strip()
    )
    enter = ["nsenter", "-t", pid, "-n"] if pid else []
    listener = subprocess.Popen([*enter, "python3", "-m", "http.server", "18999", "--bind", "0.0.0.0"])  # noqa: ASYNC220
    try:
        for address in filter(None, (gateway, "203.0.113.7", "172.17.0.1")):
            result = await sh(sandbox, f"wget -q -T 2 -O - http://{address}:18999/")
            assert result.exit_code != 0, address
    finally:
        listener.kill()
        listener.wait()


def _engine_pid():
    """Returns the process of an engine that has a network of its own, when it is one of this machine."""
    path = Path(os.environ["DOCKER_HOST"].removeprefix("unix://")).parent / "pid"
    return path.read_text().strip() if path.is_file() else None


async def test_services_stand_still_while_nothing_may_run_and_go_on_with_what_they_had(with_services, sh):
    counting = """
services:
  main: {volumes: ["shared:/shared"]}
  clock:
    image: tollbar/busybox:test
    command: ["sh", "-c", "n=0; while true; do n=$$((n+1)); echo $$n > /shared/n; sleep 0.1; done"]
    volumes: ["shared:/shared"]
volumes: {shared: }
"""
    sandbox = await with_services(counting)
    await sh(sandbox, "while [ ! -s /shared/n ]; do sleep 0.1; done")
    await sandbox.kill()
    first = await sandbox.read_file("/shared/n", 100)
    assert (await sh(sandbox, "sleep 1; cat /shared/n; ps")).exit_code == 0
    await sandbox.kill()
    second = await sandbox.read_file("/shared/n", 100)
    third = await sandbox.read_file("/shared/n", 100)
    assert first
    assert int(first) < int(second) == int(third)


async def test_a_service_that_ends_or_is_not_healthy_is_named_with_what_it_said(with_services, sh):
    # Its health is asked for in a minute first: until then it is not ready, and it ends before.
    late = "healthcheck: {test: [CMD, 'true'], interval: 60s}"
    broken = f"services: {{db: {{image: tollbar/busybox:test, command: [sh, -c, 'echo no disk; exit 3'], {late}}}}}"
    sandbox = await with_services(broken, trial="trial_d")
    with pytest.raises(EnvironmentStartFailed, match=r"service db ended: exit code 3\. no disk"):
        await sh(sandbox, "true")
    await sandbox.destroy()
    check = "healthcheck: {test: [CMD, 'false'], interval: 100ms, retries: 2}"
    sick = f"services: {{db: {{image: tollbar/busybox:test, command: [sleep, '99'], {check}}}}}"
    sandbox = await with_services(sick, trial="trial_e")
    with pytest.raises(EnvironmentStartFailed, match="service db is unhealthy") as raised:
        await sh(sandbox, "true")
    assert raised.value.detail == "healthcheck"


async def test_a_service_that_is_done_before_the_others_begin_is_waited_for(with_services, sh):
    text = """
services:
  main: {volumes: ["data:/data"]}
  fill: {image: "tollbar/busybox:test", command: [sh, -c, "sleep 0.5; echo ready > /data/x"], volumes: ["data:/data"]}
  serve:
    image: tollbar/busybox:test
    command: [sleep, infinity]
    depends_on: {fill: {condition: service_completed_successfully}}
volumes: {data: }
"""
    assert (await sh(await with_services(text), "cat /data/x")).stdout_tail == b"ready\n"


async def test_a_watchdog_ends_the_services_too(with_services, sh, provider):
    text = "services: {db: {image: tollbar/busybox:test, command: [sleep, '7654321']}}"
    await sh(await with_services(text), "true")
    provider.kill_now()
    assert await gone("sleep 7654321")


async def test_a_file_that_asks_for_too_much_is_refused_before_anything_is_built(with_services, provider):
    with pytest.raises(EnvironmentRefused, match=r"services\.web\.privileged"):
        await with_services(WEB.replace("  web:\n", "  web:\n    privileged: true\n"))
    assert not provider._root.exists()


async def test_a_list_is_the_main_containers_alone_and_no_proxy_leads_to_a_service(with_services, sh):
    log = []

    async def resolve(_name):
        return []

    outside = Outside(resolve=resolve)
    proxy = await outside.proxy(["a.example"], lambda host, verdict: log.append((host, verdict)), lambda *_: None)
    sandbox = await with_services(WEB, network=Network.ALLOWLIST)
    url = await sandbox.expose_gateway(lambda listening: serve(proxy, listening), PROXY_PORT)
    said = await sh(sandbox, "wget -q -O - http://a.example/ 2>&1", env={"http_proxy": url})
    assert b"403" in said.stdout_tail
    assert log == [("a.example", "unresolved")]
    assert sandbox.spec.image.neighbours == ("main", "web")
    web = beside(sandbox, "web")
    words = ["docker", "exec", web, "nc", "-w", "2", "main", "8788"]
    tried = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
    assert (tried.returncode, b"refused" in tried.stderr) == (1, True)
    await sandbox.kill()


async def test_the_gateway_is_reached_from_main_alone_also_with_services_beside_it(with_services, sh):
    async def answer(listening):
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            link, _ = await loop.sock_accept(listening)
            with link:
                await loop.sock_sendall(link, b"the gateway\n")

    text = """
services:
  other: {image: "tollbar/busybox:test", command: [sh, -c, "nc -ll -p 5000 -e nc -w 2 main 8787"]}
"""
    sandbox = await with_services(text, network=Network.GATEWAY)
    assert await sandbox.expose_gateway(answer) == "http://127.0.0.1:8787"
    assert (await sh(sandbox, "nc 127.0.0.1 8787 < /dev/null")).stdout_tail == b"the gateway\n"
    through = await sh(sandbox, "sleep 0.5; nc -w 4 other 5000 < /dev/null")
    assert b"gateway" not in through.stdout_tail
