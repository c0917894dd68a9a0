"""Tasks that list hosts: reached through the proxy while the phase's command runs, and everything else told by name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.jobs.standin import CAPABILITIES, Call, ended, judges, solves
from tests.jobs.test_events import log, told
from tests.jobs.test_steps import files, toml
from tests.jobs.world import SEPARATE, SHARED, World
from tests.support import ManualClock

from tollbar.agents.adapter import DriveEnd, DriveResult, GatewayAccess
from tollbar.gateway.egress import Outside
from tollbar.jobs import driving, flows, outlet
from tollbar.jobs.access import Access
from tollbar.jobs.errors import UnsupportedCapability
from tollbar.jobs.outlet import Record
from tollbar.jobs.phase import Environment
from tollbar.sandboxes.errors import EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.interface import ExecResult, ImageRef, Limits, Network

LISTED = 'network_mode = "allowlist"\nallowed_hosts = ["api.example.com", "private.example.com"]\n'
AGENT = SEPARATE.replace("[agent]\n", f"[agent]\n{LISTED}")
VERIFIER = SEPARATE.replace("[verifier]\n", f"[verifier]\n{LISTED}")
BOTH = SHARED.replace('network_mode = "no-network"\n', LISTED)
ADDRESSES = {"api.example.com": ["93.184.215.14"], "private.example.com": ["93.184.215.14", "10.0.0.5"]}


async def resolve(host: str) -> list[str]:
    return ADDRESSES.get(host, [])


@asynccontextmanager
async def web() -> AsyncIterator[Outside]:
    """Yields a world whose every address leads to a server that says hello."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def connect(address: str, _port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert address == "93.184.215.14"
        return await asyncio.open_connection("127.0.0.1", port)

    async with server:
        yield Outside(resolve=resolve, connect=connect)


@pytest.fixture
async def online(world: World) -> AsyncIterator[World]:
    """A world whose backend opens ports in its sandboxes, and whose names lead to a server of this test."""
    world.provider.can = replace(CAPABILITIES, networks=frozenset({Network.NONE, Network.ALLOWLIST}))
    async with web() as outside:
        flows.register(world.engine, replace(world.tools, outside=outside))
        yield replace(world, context=replace(world.context, capabilities={"bwrap": world.provider.can}))


def asks(then: Callable[[Call], Any], seen: dict[str, str]) -> Callable[[Call], Awaitable[Any]]:
    """Returns a command that asks four hosts by the proxy that its environment names, and then does its work."""

    async def run(call: Call) -> Any:
        assert call.env["http_proxy"] == call.env["HTTPS_PROXY"] == call.env["HTTP_PROXY"]
        assert call.env["NO_PROXY"] == call.env["no_proxy"] == "127.0.0.1,localhost,::1"
        async with httpx2.AsyncClient(proxy=call.env["HTTP_PROXY"], trust_env=False) as client:
            for host in ("api.example.com", "private.example.com", "evil.example", "evil.example", "10.0.0.5"):
                seen[host] = (await client.get(f"http://{host}/path")).text.strip()
        return then(call)

    return run


SEEN = {
    "api.example.com": "hello",
    "private.example.com": "tollbar: private",
    "evil.example": "tollbar: not_listed",
    "10.0.0.5": "tollbar: address",
}


async def text_of(world: World, trial: dict[str, Any], name: str) -> list[str]:
    (sha256,) = [item["sha256"] for item in trial["artifacts"]["items"] if item["name"] == name]
    return (await world.blobs.get(sha256)).decode().splitlines()


@pytest.mark.requirement("G-TEAM-E1")
async def test_the_agent_reaches_the_hosts_of_its_list_alone_and_the_trial_says_what_it_asked(online: World) -> None:
    seen: dict[str, str] = {}
    online.provider.agent = [asks(solves, seen)]
    await online.publish("team/net", tasks=("one",), toml=AGENT)
    job = await online.run(dataset="team/net@1")
    (trial,) = await online.trial_results(job["job_id"])

    assert (trial["status"], trial["reward"]) == ("succeeded", 1.0)
    assert seen == SEEN
    assert trial["sandbox_forms"] == {"agent": "held", "verifier": "one_shot"}
    assert [sandbox.spec.network for sandbox in online.provider.made] == [Network.ALLOWLIST, Network.NONE]
    lines = [line.split(" ", 1)[1] for line in await text_of(online, trial, "agent/network.txt")]
    assert lines == [
        "api.example.com open",
        lines[1],
        "private.example.com private",
        "evil.example not_listed",
        "evil.example not_listed",
        "10.0.0.5 address",
    ]
    assert re.fullmatch(r"api.example.com closed, \d+ bytes sent, 43 received", lines[1])
    (call,) = [call for call in online.provider.calls if call.argv[0] == "/tests/test.sh"]
    assert "HTTP_PROXY" not in call.env
    refused = [one["message"] for one in await told(online, job["job_id"]) if one["type"] == "trial.network_refused"]
    assert refused == [
        "evil.example to the agent (not_listed, 2x)",
        "private.example.com to the agent (private, 1x)",
        "10.0.0.5 to the agent (address, 1x)",
    ]
    (line, *_) = [
        item for item in (await log(online, job["job_id"], tail="1000"))["items"] if "evil.example" in item["content"]
    ]
    assert line["level"] == "warning"
    assert line["content"] == "the task's network is closed for evil.example to the agent (not_listed, 2x)"


async def test_a_verifier_that_lists_hosts_reaches_them_and_the_agent_does_not(online: World) -> None:
    seen: dict[str, str] = {}
    online.provider.verifier = [asks(judges, seen)]
    await online.publish("team/net", tasks=("one",), toml=VERIFIER)
    trial = await online.one(dataset="team/net@1")

    assert (trial["reward"], seen) == (1.0, SEEN)
    assert trial["sandbox_forms"] == {"agent": "one_shot", "verifier": "held"}
    (agent,) = [call for call in online.provider.calls if call.argv[0] == "/solution/solve.sh"]
    assert "HTTP_PROXY" not in agent.env
    assert len(await text_of(online, trial, "verifier/network.txt")) == 6


async def test_a_shared_sandbox_opens_the_list_anew_for_its_verifier(online: World) -> None:
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    online.provider.agent, online.provider.verifier = [asks(solves, first)], [asks(judges, second)]
    await online.publish("team/net", tasks=("one",), toml=BOTH)
    trial = await online.one(dataset="team/net@1")

    assert (trial["reward"], first, second) == (1.0, SEEN, SEEN)
    assert trial["sandbox_forms"] == {"agent": "held", "verifier": "held"}
    assert len(online.provider.made) == 1
    names = {item["name"] for item in trial["artifacts"]["items"]}
    assert {"agent/network.txt", "verifier/network.txt"} <= names


async def test_no_tenant_writes_the_log_of_its_own_network(online: World) -> None:
    def forges(call: Call) -> Any:
        call.write(f"/logs/{call.sandbox.purpose.replace('verify', 'verifier')}/network.txt", "nothing but good hosts")
        return solves(call) if call.sandbox.purpose == "agent" and call.argv[0] != "/tests/test.sh" else judges(call)

    seen: dict[str, str] = {}
    online.provider.agent = [asks(forges, seen)]
    online.provider.verifier = [asks(forges, seen)]
    await online.publish("team/net", tasks=("one",), toml=VERIFIER.replace("[agent]\n", f"[agent]\n{LISTED}"))
    trial = await online.one(dataset="team/net@1")
    assert trial["reward"] == 1.0
    for name in ("agent/network.txt", "verifier/network.txt"):
        assert len(await text_of(online, trial, name)) == 6


async def test_the_log_of_a_phase_that_comes_to_nothing_is_kept(online: World) -> None:
    def breaks(_call: Call) -> Any:
        raise SandboxLost("engine", "gone")

    seen: dict[str, str] = {}
    online.provider.agent = [asks(breaks, seen)]
    await online.publish("team/net", tasks=("one",), toml=AGENT)
    trial = await online.one(dataset="team/net@1")
    assert (trial["reason"], trial["reward"]) == ("SANDBOX_LOST", None)
    assert len(await text_of(online, trial, "agent/network.txt")) == 6
    assert online.log_files() == []


async def test_a_list_that_nobody_asks_for_leaves_an_empty_log_and_no_event(online: World) -> None:
    await online.publish("team/net", tasks=("one",), toml=AGENT)
    job = await online.run(dataset="team/net@1")
    (trial,) = await online.trial_results(job["job_id"])

    assert trial["reward"] == 1.0
    assert await text_of(online, trial, "agent/network.txt") == []
    assert "trial.network_refused" not in {one["type"] for one in await told(online, job["job_id"])}


async def test_each_step_has_its_own_list(online: World) -> None:
    seen: dict[str, str] = {}
    online.provider.agent = [asks(solves, seen), solves]
    online.provider.verifier = [judges]
    text = toml("separate", one="[steps.agent]\n" + LISTED, verifier="timeout_sec = 20")
    await online.publish("team/net", tasks=("walk",), toml=text, **files())
    trial = await online.one(dataset="team/net@1")

    assert (trial["status"], seen) == ("succeeded", SEEN)
    agents = [call for call in online.provider.calls if call.argv[0] == "/solution/solve.sh"]
    assert ["HTTP_PROXY" in call.env for call in agents] == [True, False, False]
    names = {item["name"] for item in trial["artifacts"]["items"]}
    assert {name for name in names if name.endswith("network.txt")} == {"steps/one/agent/network.txt"}


async def test_a_port_that_cannot_be_opened_is_no_fault_of_agent_or_verifier(online: World) -> None:
    online.provider.faults["expose:agent:8788"] = [EnvironmentStartFailed("start", "no helper")] * 3
    await online.publish("team/net", tasks=("one",), toml=AGENT)
    trial = await online.one(dataset="team/net@1")
    assert (trial["reward"], trial["reason"], trial["try_no"]) == (None, "ENVIRONMENT_START_FAILED", 3)

    online.provider.faults["expose:verify:8788"] = [EnvironmentStartFailed("start", "no helper")] * 2
    await online.publish("team/more", tasks=("one",), toml=VERIFIER)
    trial = await online.one(dataset="team/more@1")
    assert (trial["reward"], trial["verifier"]["runs"]) == (1.0, 3)


@pytest.mark.parametrize(
    ("toml", "mentions"),
    [
        (AGENT.replace("api.example.com", "93.184.215.0/24"), "allowed_hosts 93.184.215.0/24"),
        (AGENT.replace("api.example.com", "::1"), "allowed_hosts ::1"),
        (SEPARATE.replace('"no-network"', '"public"'), "network_mode public"),
        (AGENT.replace('"no-network"', '"public"'), "network_mode public of its environment"),
    ],
)
async def test_what_the_way_out_does_not_know_is_refused_by_name(online: World, toml: str, mentions: str) -> None:
    await online.publish("team/net", tasks=("one",), toml=toml)
    trial = await replace(online, context=replace(online.context, capabilities={})).one(dataset="team/net@1")
    assert (trial["reason"], trial["reason_detail"]) == ("ENVIRONMENT_REFUSED", "network")
    assert mentions in trial["message"]
    assert online.provider.made == []


@pytest.mark.parametrize("toml", [AGENT, VERIFIER, BOTH])
async def test_one_shot_sandboxes_are_refused_to_tasks_that_list_hosts(online: World, toml: str) -> None:
    await online.publish("team/net", tasks=("one",), toml=toml)
    with pytest.raises(UnsupportedCapability, match="one_shot: network_mode allowlist of this task needs a held"):
        await online.submit(dataset="team/net@1", execution={"sandbox_form": "one_shot"})


async def test_a_backend_that_opens_no_ports_refuses_the_list(world: World) -> None:
    await world.publish("team/net", tasks=("one",), toml=AGENT)
    with pytest.raises(UnsupportedCapability, match="network_mode allowlist is not granted"):
        await world.submit(dataset="team/net@1")


class Endless:
    """A gateway that nobody asks."""

    async def serve(self, _listening: Any, _subject: str) -> None:
        await asyncio.Event().wait()


class Shell:
    """A sandbox that keeps what its commands were given."""

    def __init__(self) -> None:
        self.given: list[dict[str, str]] = []

    async def exec(self, _argv: Any, **words: Any) -> ExecResult:
        self.given.append(words["env"])
        return ended()


async def test_a_loop_of_ours_hands_the_proxy_to_each_of_its_commands(tmp_path: Path) -> None:
    async def drive(session: Any) -> DriveResult:
        await session.exec(("true",), timeout_s=1)
        await session.exec(("true",), env={"MINE": "1"}, timeout_s=1)
        return DriveResult(DriveEnd.COMPLETED)

    shell: Any = Shell()
    gateway: Any = Endless()
    access = Access(gateway, "trial:t:1", GatewayAccess("http://127.0.0.1:8787", "tbv_x", {}))
    environment = Environment(ImageRef("", (), "/", {}), "/", {}, Limits(), ())
    said = outlet.announced("http://127.0.0.1:8788")
    await driving.run(drive, access, shell, environment, said, timeout_s=9, log=tmp_path / "log", clock=ManualClock())
    assert shell.given == [said, {**said, "MINE": "1"}]


def test_no_proxy_leads_to_this_sandbox_or_to_the_services_beside_it() -> None:
    said = outlet.announced("http://127.0.0.1:8788", ("main", "db"))
    assert said["NO_PROXY"] == said["no_proxy"] == "127.0.0.1,localhost,::1,main,db"


def test_a_record_holds_no_more_than_it_may_whatever_a_tenant_asks_for() -> None:
    record = Record(ManualClock())
    for number in range(outlet.MOST_LINES + 10):
        record.said(f"a{number}.example", "not_listed")
    record.said("\x1b[31m evil\n" + "x" * 9000, "name")
    assert len(record.lines) == len(record.refused) == outlet.MOST_LINES
    assert record.text().endswith("11 more lines were not kept\n")
    fresh = Record(ManualClock())
    fresh.said("\x1b[31m evil\n" + "x" * 9000, "name")
    assert fresh.lines[0].split(" ", 1)[1] == f"?[31m?evil?{'x' * 242} name"
