"""What a tenant of a container cannot reach, have or do, and what it is held to; seen from both sides."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from tests.sandboxes.docker.looking import gone, inspect

from tollbar.sandboxes.interface import Limits


async def said(sh, sandbox, text, **words):
    """Returns what a shell text printed, on both streams."""
    result = await sh(sandbox, text, **words)
    return (result.stdout_tail + result.stderr_tail).decode()


@pytest.mark.requirement("G-SBX-14.host_files", "G-SBX-14.host_environment")
async def test_no_file_and_no_variable_of_the_server_is_inside(create, sh, provider, tmp_path, monkeypatch):
    secret = f"secret-{os.getpid()}-of-the-server"
    monkeypatch.setenv("SERVER_SECRET", secret)
    (tmp_path / "data" / "planted.txt").parent.mkdir(exist_ok=True)
    (tmp_path / "data" / "planted.txt").write_text(secret)
    sandbox = await create(env={"OWN": "mine"})
    found = await said(sh, sandbox, f"env; cat /proc/1/environ; ls {tmp_path} {Path.home()}/.ssh")
    searched = await said(sh, sandbox, f"grep -r {secret} /etc /root /tmp /home /var /run /app", timeout_s=60)
    assert "OWN=mine" in found
    assert secret not in found
    assert "planted" not in found
    assert not [line for line in searched.splitlines() if line.startswith("/")]


async def test_the_socket_of_the_engine_and_folders_of_the_machine_are_not_mounted(create, sh):
    sandbox = await create()
    sockets = "find / -xdev -type s; ls /var/run/docker.sock /run/docker.sock /run/containerd"
    assert ".sock\n" not in (await said(sh, sandbox, f"({sockets}) 2>/dev/null"))
    mounts = await said(sh, sandbox, "cut -d' ' -f2,3 /proc/mounts")
    own = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "overlay"}
    others = [line for line in mounts.splitlines() if line.split()[1] not in own]
    # The engine brings the three files that name hosts and resolvers, and its own program that ends orphans.
    brought = {
        "/etc/resolv.conf",
        "/etc/hostname",
        "/etc/hosts",
        "/sbin/docker-init",
        "/dev/init",
        "/usr/bin/docker-init",
    }
    assert {line.split()[0] for line in others} <= brought
    facts = inspect(sandbox.container)
    assert not facts["HostConfig"]["Binds"]
    assert not facts["HostConfig"]["Devices"]
    assert facts["HostConfig"]["PidMode"] == facts["HostConfig"]["UsernsMode"] == ""
    assert [mount for mount in facts["Mounts"] if mount["Type"] == "bind"] == []


@pytest.mark.requirement("G-SBX-14.host_processes", "G-SBX-14.two")
async def test_a_sandbox_sees_its_own_processes_and_files_and_nothing_of_another_one(create, sh):
    one, two = await create(), await create()
    await sh(one, "echo mine > /tmp/mine; nc -l -p 5000 > /dev/null & setsid sleep 987654 &")
    processes = await said(sh, two, "ps -o args; cat /proc/*/cmdline | tr '\\0' ' '")
    assert "987654" not in processes
    assert "python" not in processes
    assert "pytest" not in processes
    assert "mine" not in await said(sh, two, "ls /tmp; cat /tmp/mine 2>/dev/null")
    refused = await sh(two, "nc -w 2 127.0.0.1 5000 < /dev/null")
    assert refused.exit_code != 0
    assert inspect(one.container)["HostConfig"]["IpcMode"] in {"private", "none"}


@pytest.mark.requirement("G-SBX-14.network-none")
async def test_no_address_can_be_reached_and_the_refusal_does_not_wait(create, sh):
    sandbox = await create()
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        for address in ("203.0.113.7", "172.17.0.1", "10.0.0.1", _own_address()):
            started = time.monotonic()
            result = await sh(sandbox, f"nc -w 5 {address} {port} < /dev/null")
            assert result.exit_code != 0, address
            assert time.monotonic() - started < 3, address
    assert (await said(sh, sandbox, "ls /sys/class/net; ip route")).split() == ["lo"]
    assert (await sh(sandbox, "ping -c 1 -W 1 203.0.113.7")).exit_code != 0


def _own_address():
    """Returns this machine's address on its network, or loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("203.0.113.7", 9))
        except OSError:
            return "127.0.0.1"
        return asked.getsockname()[0]


@pytest.mark.requirement("G-SBX-14.escape")
@pytest.mark.parametrize(
    "attack",
    [
        "unshare -U true",
        "unshare -r true",
        "nsenter -t 1 -m true && mount -o remount,rw /sys",
        "mkdir /tmp/c && mount -t cgroup -o memory none /tmp/c",
        "dmesg",
        "echo core > /proc/sys/kernel/core_pattern",
        "hwclock -s",
        "swapoff -a && cat /dev/mem",
        "hostname other",
        "chroot /proc/1/root true",
    ],
)
async def test_what_needs_a_right_that_no_tenant_has_is_refused(create, sh, attack):
    assert (await sh(await create(), attack)).exit_code != 0


@pytest.mark.requirement("G-SBX-14.processes")
async def test_two_hundred_processes_do_not_fit_under_a_limit_of_64_and_none_outlives_the_kill(create, sh):
    sandbox = await create(limits=Limits(memory_mb=64, pids=64))
    text = "n=0; while [ $n -lt 200 ]; do setsid sleep 876543 & n=$((n+1)); done; ls -d /proc/[0-9]* | wc -l"
    result = await sh(sandbox, text)
    assert b"can't fork" in result.stderr_tail
    counted = result.stdout_tail.split()
    assert not counted or int(counted[-1]) <= 64
    await sandbox.kill()
    assert await gone("sleep.876543")
    assert (await sh(sandbox, "echo alive")).stdout_tail == b"alive\n"


@pytest.mark.requirement("G-SBX-14.cpu")
async def test_half_a_cpu_makes_a_cpu_second_take_about_two(create, sh):
    sandbox = await create(limits=Limits(cpus=0.5, memory_mb=64, pids=64))
    result = await sh(sandbox, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done", timeout_s=60)
    assert result.exit_code == 0
    assert result.cpu_ns is not None
    assert result.wall_s >= 1.5 * result.cpu_ns / 1e9


async def test_open_files_are_limited(create, sh):
    sandbox = await create(limits=Limits(memory_mb=64, pids=64, nofile=100))
    assert (await said(sh, sandbox, "ulimit -n; ulimit -Hn")).split() == ["100", "100"]
