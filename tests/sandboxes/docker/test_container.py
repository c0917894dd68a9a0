"""A container as a sandbox: what runs in it, what it cannot do, how it ends, and what is read from it afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.sandboxes.docker.looking import gone, inspect

from tollbar.gateway.egress import Outside, serve
from tollbar.sandboxes.errors import EnvironmentRefused, EnvironmentStartFailed, SandboxLost
from tollbar.sandboxes.interface import PROXY_PORT, ArtifactPath, Form, Limits, Network, SealLimits
from tollbar.sandboxes.seal import seal_overlay


async def test_a_command_has_its_directory_its_variables_and_both_streams(create, sh):
    sandbox = await create(env={"PATH": "/bin", "COLOUR": "red"}, directories=("/logs/agent",))

    result = await sh(sandbox, "pwd; echo $COLOUR $MORE; ls -d /logs/agent; echo wrong >&2; exit 7", env={"MORE": "x"})

    assert (result.exit_code, result.timed_out, result.oom_killed) == (7, False, False)
    assert result.stdout_tail == b"/app\nred x\n/logs/agent\n"
    assert result.stderr_tail == b"wrong\n"


async def test_files_live_on_between_commands_and_processes_do_not_outlive_a_kill(create, sh):
    sandbox = await create()
    await sh(sandbox, "echo kept > file; setsid sleep 987651 > /dev/null 2>&1 &")
    await sandbox.kill()

    assert (await sh(sandbox, "cat file")).stdout_tail == b"kept\n"
    assert await gone("sleep 987651")


async def test_a_timeout_ends_everything_also_what_left_its_session_and_ignores_signals(create, sh):
    sandbox = await create()

    result = await sh(
        sandbox, "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 987652' & sleep 987653", timeout_s=1.0
    )

    assert (result.timed_out, result.exit_code) == (True, None)
    assert await gone("sleep 98765[23]")
    assert (await sh(sandbox, "echo again")).stdout_tail == b"again\n"


async def test_a_cancelled_command_leaves_no_process(create, sh):
    sandbox = await create()
    task = asyncio.create_task(sh(sandbox, "echo ready > up; sleep 987654"))
    while (await sh(sandbox, "test -f up")).exit_code != 0:
        pass
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone("sleep 987654")


async def test_a_command_that_is_killed_by_the_server_is_lost_and_no_result(create, sh):
    sandbox = await create()
    task = asyncio.create_task(sh(sandbox, "echo ready > up; sleep 987655"))
    while (await sh(sandbox, "test -f up")).exit_code != 0:
        pass
    await sandbox.kill()

    with pytest.raises(SandboxLost, match="by the server"):
        await task


async def test_a_one_shot_sandbox_takes_one_command_between_two_kills(create, sh):
    sandbox = await create(form=Form.ONE_SHOT)
    await sh(sandbox, "true")
    with pytest.raises(RuntimeError, match="one command"):
        await sh(sandbox, "true")
    await sandbox.kill()
    assert (await sh(sandbox, "echo second")).stdout_tail == b"second\n"


async def test_nothing_of_the_host_and_no_network_is_inside_and_rights_are_few(create, sh):
    sandbox = await create()

    result = await sh(sandbox, "grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/self/status; ls /sys/class/net; hostname")
    facts = inspect(sandbox.container)["HostConfig"]

    # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID: bits 0, 1, 3, 4, 5, 6, 7.
    assert re.findall(rb"Cap\w+:\s+(\w+)", result.stdout_tail) == [b"00000000000000fb"] * 3
    assert re.search(rb"NoNewPrivs:\s+1", result.stdout_tail)
    assert result.stdout_tail.endswith(b"lo\nsandbox\n")
    assert (facts["NetworkMode"], facts["Privileged"], facts["Binds"]) == ("none", False, None)
    assert facts["MemorySwap"] == facts["Memory"] == 64 << 20


@pytest.mark.parametrize(
    "attack",
    [
        "mount -t tmpfs none /mnt",
        "mknod /dev/sda b 8 0",
        "echo 1 > /proc/sys/kernel/panic",
        "touch /sys/kernel/mine",
        "echo b > /proc/sysrq-trigger",
        "unshare -m true",
        "chroot / true",
        "cat /proc/kcore",
    ],
)
async def test_what_would_leave_a_container_fails(create, sh, attack):
    result = await sh(await create(), attack)

    assert result.exit_code != 0


async def test_a_fork_bomb_and_a_memory_hog_stay_within_their_limits(create, sh):
    sandbox = await create(limits=Limits(memory_mb=32, pids=20))

    bomb = await sh(sandbox, "n=0; while [ $n -lt 60 ]; do sleep 5 & n=$((n+1)); done; ls -d /proc/[0-9]* | wc -l")
    await sandbox.kill()
    hog = await sh(sandbox, "a=x; while true; do a=$a$a; done")

    assert b"can't fork" in bomb.stderr_tail
    assert hog.oom_killed
    assert (await sh(sandbox, "echo alive")).stdout_tail == b"alive\n"


async def test_the_output_of_a_command_is_bounded_and_says_so(create, sh, tmp_path):
    sandbox = await create()
    log = tmp_path / "log"

    result = await sh(sandbox, "echo first; head -c 3000000 /dev/zero; echo last", output=log, max_output_bytes=1 << 20)

    content = log.read_bytes()
    assert result.truncated
    assert content.startswith(b"first\n")
    assert content.endswith(b"last\n")
    assert len(content) < (1 << 20) + 100
    assert len(result.stdout_tail) == 64 << 10


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"A": "nul\0"}, {"": "x"}])
async def test_a_variable_that_cannot_be_set_is_refused(create, sh, env):
    with pytest.raises(EnvironmentRefused):
        await sh(await create(), "true", env=env)


async def test_a_command_that_closes_its_output_is_waited_for(create, sh):
    result = await sh(await create(), "echo said; exec > /dev/null 2>&1; sleep 1; exit 4")

    assert (result.exit_code, result.stdout_tail) == (4, b"said\n")
    assert result.wall_s >= 1


async def test_a_command_that_the_image_does_not_have_says_so(create):
    result = await (await create()).exec(["no-such-program"], timeout_s=5)

    assert result.exit_code in {126, 127}
    assert b"no-such-program" in result.stdout_tail + result.stderr_tail


@pytest.mark.requirement("G-SBX-14.seal_tar")
async def test_a_seal_keeps_what_is_good_and_names_what_is_not(create, sh, blobs):
    sandbox = await create()
    await sh(
        sandbox,
        """mkdir -p out/sub out/locked; printf good > out/a; ln -s a out/inside; ln -s ../../etc out/escapes
        ln -s /etc/passwd out/absolute; mkfifo out/fifo; ln out/a out/sub/hard; touch 'out/new
line'; printf x > out/program; chmod 755 out/program; head -c 2000 /dev/zero > out/large; chmod 000 out/locked
        printf single > one; ln -s one link; mkdir empty""",
    )
    await sandbox.kill()

    paths = ["out", "one", "link", "empty", "absent", "out/a"]
    seal = await sandbox.seal([ArtifactPath(path) for path in paths], SealLimits(max_file_bytes=1000), blobs.put)

    statuses = [(entry.source, entry.status) for entry in seal.entries]
    assert statuses == [
        ("/app/out", "refused"),
        ("/app/one", "ok"),
        ("/app/link", "refused"),
        ("/app/empty", "empty"),
        ("/app/absent", "missing"),
        ("/app/out/a", "ok"),
    ]
    members = {member.path: member for member in seal.entries[0].members}
    assert sorted(members) == [
        "app/out/a",
        "app/out/inside",
        "app/out/locked",
        "app/out/program",
        "app/out/sub",
        "app/out/sub/hard",
    ]
    assert blobs.content[members["app/out/sub/hard"].sha256] == b"good"
    assert (members["app/out/program"].mode, members["app/out/a"].mode) == (0o755, 0o644)
    assert {(refusal.name, refusal.reason) for refusal in seal.refusals} == {
        ("app/out/absolute", "LINK_ABSOLUTE"),
        ("app/out/escapes", "LINK_ESCAPES"),
        ("app/out/fifo", "NOT_A_FILE"),
        ("app/out/large", "TOO_LARGE"),
        ("app/out/new\\x0aline", "BAD_NAME"),
        ("app/link", "LINK_ESCAPES"),
    }
    assert json.loads(seal.manifest)["version"] == 1


TREE = """mkdir -p out/sub/deep out/none; printf good > out/a; printf x > out/program; chmod 755 out/program
ln -s a out/inside; ln -s ../../etc out/escapes; ln -s /etc/passwd out/absolute; mkfifo out/fifo; ln out/a out/sub/hard
printf z > out/sub/deep/z; printf single > one; ln -s one link; mkdir empty"""


@pytest.mark.requirement("G-SBX-14.seal_docker")
async def test_a_container_and_a_folder_with_the_same_files_have_the_same_manifest(create, sh, blobs, tmp_path):
    sandbox = await create()
    await sh(sandbox, TREE)
    await sandbox.kill()
    (tmp_path / "top" / "app").mkdir(parents=True)
    await asyncio.to_thread(subprocess.run, ["sh", "-c", TREE], cwd=tmp_path / "top" / "app", check=True)
    paths = [ArtifactPath(f"/app/{name}") for name in ("out", "one", "link", "empty", "absent", "out/a")]

    sealed = await sandbox.seal(paths, SealLimits(), blobs.put)
    same = await asyncio.to_thread(seal_overlay, tmp_path / "top", [], paths, SealLimits(), blobs.put)

    assert sealed.manifest == same.manifest


async def test_a_declared_path_that_leads_through_a_link_is_not_followed(create, sh, blobs):
    sandbox = await create()
    await sh(sandbox, "mkdir real; echo x > real/file; ln -s real way")
    await sandbox.kill()

    seal = await sandbox.seal([ArtifactPath("way/file")], SealLimits(), blobs.put)

    assert [(entry.status, entry.members) for entry in seal.entries] == [("refused", ())]
    assert await sandbox.read_file("way/file", 10) is None
    assert await sandbox.read_file("real/file", 10) == b"x\n"
    assert await sandbox.read_file("real", 10) is None
    assert await sandbox.read_file("real/none", 10) is None


@pytest.mark.requirement("G-SBX-14.seal_tar")
async def test_more_members_than_allowed_are_cut_off_and_named(create, sh, blobs):
    sandbox = await create()
    await sh(sandbox, "mkdir many; for n in 1 2 3 4 5 6 7 8 9; do echo $n > many/$n; done")
    await sandbox.kill()

    seal = await sandbox.seal([ArtifactPath("many")], SealLimits(max_members=4), blobs.put)

    assert len(seal.entries[0].members) == 4
    assert [refusal.reason for refusal in seal.refusals] == ["TOO_MANY"]


async def test_files_are_not_touched_while_a_process_may_live(create, sh, blobs, tmp_path):
    sandbox = await create()
    await sh(sandbox, "true")

    with pytest.raises(RuntimeError, match="no process lives"):
        await sandbox.seal([ArtifactPath("/app")], SealLimits(), blobs.put)
    with pytest.raises(RuntimeError, match="no process lives"):
        await sandbox.put(tmp_path, "/tests")
    with pytest.raises(RuntimeError, match="no process lives"):
        await sandbox.read_file("/app/x", 1)


async def test_a_folder_that_is_put_replaces_whatever_the_tenant_left_there(create, sh, tmp_path):
    tests, empty = tmp_path / "tests", tmp_path / "empty"
    (tests / "deep" / "er").mkdir(parents=True)
    (tests / "test.sh").write_text("#!/bin/sh\necho ours\n")
    (tests / "test.sh").chmod(0o755)
    (tests / "link").symlink_to("test.sh")
    empty.mkdir()
    sandbox = await create()
    await sh(
        sandbox,
        "mkdir evil; ln -s /app/evil /tests; ln -s /app/evil /logs; mkdir -p evil/verifier; echo 1 > evil/verifier/r",
    )
    await sandbox.kill()

    await sandbox.put(tests, "/tests")
    await sandbox.put(empty, "/logs/verifier")

    result = await sh(
        sandbox, "/tests/test.sh; /tests/link; ls -A /logs/verifier; ls evil/verifier; ls -d /tests/deep/er"
    )
    assert result.stdout_tail == b"ours\nours\nr\n/tests/deep/er\n"


async def test_the_gateway_is_on_the_containers_own_loopback_until_the_kill(create, sh):
    async def answer(listening):
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            link, _ = await loop.sock_accept(listening)
            with link:
                await loop.sock_sendall(link, b"the gateway\n")

    sandbox = await create(network=Network.GATEWAY)
    assert await sandbox.expose_gateway(answer) == "http://127.0.0.1:8787"
    assert (await sh(sandbox, "nc 127.0.0.1 8787 < /dev/null")).stdout_tail == b"the gateway\n"
    assert (await sh(sandbox, "nc -w 2 127.0.0.1 8788 < /dev/null")).exit_code == 1
    other = await create(network=Network.GATEWAY)
    assert (await sh(other, "nc -w 2 127.0.0.1 8787 < /dev/null")).exit_code == 1
    await sandbox.kill()
    assert (await sh(sandbox, "nc -w 2 127.0.0.1 8787 < /dev/null")).exit_code == 1
    assert (await sh(sandbox, "ip -o link")).stdout_tail.count(b"\n") == 1


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_end_of_a_container_ends_what_was_served_in_it_and_leaves_no_descriptor(create, sh):
    ended = asyncio.Event()

    async def endless(_listening):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    sandbox = await create(network=Network.GATEWAY)
    await sh(sandbox, "true")
    before = descriptors()
    await sandbox.expose_gateway(endless)
    assert (await sh(sandbox, "sleep 60", timeout_s=0.5)).timed_out
    await asyncio.wait_for(ended.wait(), 10)
    await asyncio.sleep(0)
    assert descriptors() <= before


async def test_a_container_that_is_not_of_this_machine_gets_no_port(create, sh):
    sandbox = await create(network=Network.GATEWAY)
    await sh(sandbox, "true")
    sandbox._pid = os.getpid()
    with pytest.raises(EnvironmentStartFailed, match="runs its containers elsewhere"):
        await sandbox.expose_gateway(lambda listening: asyncio.Event().wait())


async def test_a_container_without_network_gets_no_port(create):
    sandbox = await create()
    with pytest.raises(EnvironmentRefused, match="without any network"):
        await sandbox.expose_gateway(lambda listening: asyncio.Event().wait())


async def test_listed_hosts_are_reached_from_a_container_by_the_proxy_and_nothing_else_is(create, sh):
    async def resolve(host):
        return {"api.example.com": ["93.184.215.14"], "private.example.com": ["172.17.0.1"]}.get(host, [])

    async def connect(address, port):
        assert (address, port) == ("93.184.215.14", 80)
        return await asyncio.open_connection("127.0.0.1", web.sockets[0].getsockname()[1])

    async def hello(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n")
        await writer.drain()
        writer.close()

    log = []
    names = ["api.example.com", "private.example.com"]
    outside = Outside(resolve=resolve, connect=connect)
    proxy = await outside.proxy(names, lambda host, verdict: log.append((host, verdict)), lambda *_: None)
    sandbox = await create(network=Network.ALLOWLIST)
    async with await asyncio.start_server(hello, "127.0.0.1", 0) as web:
        url = await sandbox.expose_gateway(lambda listening: serve(proxy, listening), PROXY_PORT)
        ask = "for host in api.example.com private.example.com evil.example; do wget -q -O- http://$host/ 2>&1; done"
        said = await sh(sandbox, ask, env={"http_proxy": url})
        alone = await sh(sandbox, "nc -w 3 93.184.215.14 80 < /dev/null")
    await sandbox.kill()

    assert said.stdout_tail.decode().split("\n")[0] == "hello"
    assert said.stdout_tail.count(b"403") == 2
    assert (alone.exit_code, b"unreachable" in alone.stderr_tail) == (1, True)
    assert log == [("api.example.com", "open"), ("private.example.com", "private"), ("evil.example", "not_listed")]
