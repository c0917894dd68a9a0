"""What a tenant can see and reach: nothing of the host, of the server, or of another tenant."""

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.interface import Form
from tollbar.sandboxes.seccomp import process_1_filter

ROOT = os.geteuid() == 0
OWN_PROCESSES = {Form.ONE_SHOT: 1, Form.HELD: 2}
TOP = "app bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var"


@pytest.mark.requirement("G-SBX-14.identity")
async def test_uid_0_inside_is_not_root_of_the_host(box):
    result = await box.sh("id -u; echo made > /made; cat /proc/self/uid_map")
    inside, mapping = result.stdout_tail.decode().splitlines()
    assert inside == "0"
    owner = (box.upper / "made").stat().st_uid
    assert owner == (64000 if ROOT else os.geteuid())
    assert mapping.split() == ["0", "0", "1"], "one uid is mapped, onto the one outside"


async def test_only_file_capabilities_are_left_and_no_new_privileges_can_come(box):
    result = await box.sh("grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    facts = dict(line.split(":\t") for line in result.stdout_tail.decode().splitlines())
    assert facts == {"CapEff": "00000000000000fb", "CapBnd": "00000000000000fb", "NoNewPrivs": "1"}


@pytest.mark.requirement("G-SBX-14.host_files", "G-SBX-14.host_environment")
async def test_nothing_of_the_host_is_visible_but_its_system_folders(box, tmp_path, open_folder, monkeypatch):
    monkeypatch.setenv("PLANTED_SECRET", "s3cret-of-the-server")
    for folder in (tmp_path, open_folder, Path.home()):
        (folder / "planted-secret.txt").write_text("s3cret-of-the-server")
    try:
        out = await box.python(f"""
            import os
            for folder in ({str(tmp_path)!r}, {str(open_folder)!r}, {str(Path.home())!r}, {str(Path.cwd())!r}):
                try:
                    print(sorted(os.listdir(folder)))
                except FileNotFoundError:
                    print("absent")
            print(sorted(os.listdir("/")))
            print(sorted(os.listdir("/etc")))
            print(sorted(os.environ))
        """)
    finally:
        (Path.home() / "planted-secret.txt").unlink()
    *folders, top, etc, names = out.splitlines()
    assert not any("planted" in line for line in folders)
    assert "s3cret" not in out
    assert set(eval(top)) <= set(TOP.split())
    assert not set(eval(etc)) & {"shadow", "ssh", "fstab", "sudoers"}
    assert set(eval(names)) - {"LC_CTYPE"} == {"HOME", "PATH", "PWD", "IS_SANDBOX"}, "Python itself sets LC_CTYPE"


@pytest.mark.requirement("G-SBX-14.host_processes")
async def test_the_tenant_sees_only_its_own_processes_and_descriptors(box):
    out = await box.python("""
        import os
        print(len([name for name in os.listdir("/proc") if name.isdigit()]))
        print(sorted(int(fd) for fd in os.listdir("/proc/self/fd")))
        print(os.readlink("/proc/self/fd/0"))
    """)
    processes, descriptors, stdin = out.splitlines()
    assert int(processes) == OWN_PROCESSES[box.form] + 1
    assert descriptors == "[0, 1, 2, 3]", "3 is the folder that is being listed"
    assert stdin == "/dev/null"


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /mnt",
        "mount --bind /usr /mnt",
        "umount /usr",
        "mount -o remount,rw /usr",
        "unshare -Ur true",
        "unshare -m true",
        "unshare -n true",
        "mknod /node c 1 5",
        "mknod /disk b 254 0",
        "chroot / true",
        "touch /usr/planted",
        "echo 1 > /proc/sys/kernel/panic",
        "echo 5 > /proc/sys/user/max_user_namespaces",
        "echo b > /proc/sysrq-trigger",
        "cat /proc/kcore",
        "cat /dev/kmsg",
        "ls /sys/kernel",
        "echo x > /sys/planted",
        "mkdir /sys/planted",
        "hostname other",
        "echo x > /dev/planted",
        "nsenter -t 1 -m true",
        "chown 12345 /tmp",
    ],
)
async def test_an_attempt_to_get_out_is_refused(box, attempt):
    result = await box.sh(attempt)
    assert result.exit_code != 0
    assert b"not found" not in result.stderr_tail, "the program exists, so it was refused"


TRACE = """
import ctypes, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
place = ctypes.create_string_buffer(8)
vector = struct.pack("PN", ctypes.addressof(place), 8)

def error(call, *arguments):
    return ctypes.get_errno() if getattr(libc, call)(*arguments) < 0 else 0

child = subprocess.Popen(["sleep", "60"])
print([error("ptrace", request, 1, 0, 0) for request in (16, 0x4206)])
print([error(call, 1, vector, 1, vector, 1, 0) for call in ("process_vm_readv", "process_vm_writev")])
print([error("ptrace", 16, child.pid, 0, 0)])
for path in ("/proc/1/mem", "/proc/1/task/1/mem"):
    for mode in ("rb", "r+b"):
        try:
            open(path, mode, buffering=0)
            print("open")
        except PermissionError:
            print("refused")
child.kill()
"""


@pytest.mark.requirement("G-SBX-14.escape")
async def test_process_1_can_be_neither_traced_nor_read_nor_written_but_ones_own_processes_can(box):
    attached, memory, child, *files = (await box.python(TRACE)).splitlines()
    assert attached == memory == "[1, 1]", "EPERM"
    assert child == "[0]"
    assert files == ["refused"] * 4


def test_the_filter_of_system_calls_is_empty_only_for_machines_that_are_not_known():
    assert process_1_filter("x86_64") != process_1_filter("aarch64") != b""
    assert process_1_filter("sparc") == b""


@pytest.mark.forms(Form.ONE_SHOT)
async def test_process_1_holds_nothing_of_the_host_and_cannot_be_ended(box, monkeypatch):
    """It has the tenant's uid and fewer rights, so there is nothing to take."""
    monkeypatch.setenv("PLANTED_SECRET", "s3cret-of-the-server")
    out = await box.python("""
        import os, signal
        print(sorted(line.partition("=")[0] for line in open("/proc/1/environ").read().split(chr(0)) if line))
        print(sorted({os.readlink(f"/proc/1/fd/{fd}").partition(":")[0] for fd in os.listdir("/proc/1/fd")}))
        print(sorted(os.listdir("/proc/1/root")) == sorted(os.listdir("/")))
        print({line for line in open("/proc/1/status").read().splitlines() if line.startswith("CapPrm")})
        os.kill(1, signal.SIGKILL)
        print("alive")
    """)
    environment, descriptors, root, rights, alive = out.splitlines()
    assert environment == "['PATH']"
    assert descriptors == "['/dev/null', 'anon_inode', 'pipe']"
    assert root == "True"
    assert rights == "{'CapPrm:\\t0000000000000000'}"
    assert alive == "alive"


@pytest.mark.requirement("G-SBX-14.network-none")
async def test_the_network_is_its_own_loopback_and_everything_else_fails_at_once(box):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        started = time.monotonic()
        out = await box.python(f"""
            import errno, socket
            print([name for _, name in socket.if_nameindex()])
            for address in (("127.0.0.1", {port}), ("192.0.2.1", 80), ("10.255.255.1", 5432)):
                try:
                    socket.create_connection(address, timeout=5)
                    print("connected")
                except OSError as error:
                    print(errno.errorcode.get(error.errno, error))
            try:
                socket.getaddrinfo("example.invalid", 80)
            except OSError as error:
                print("no names")
            own = socket.create_server(("127.0.0.1", 0))
            socket.create_connection(own.getsockname(), timeout=5)
            print("own loopback works")
        """)
    assert out.splitlines() == [
        "['lo']",
        "ECONNREFUSED",
        "ENETUNREACH",
        "ENETUNREACH",
        "no names",
        "own loopback works",
    ]
    assert time.monotonic() - started < 3


async def test_the_tenant_cannot_change_its_network(box):
    out = await box.python("""
        import fcntl, socket, struct
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", 0))
            print("changed")
        except PermissionError:
            print("refused")
    """)
    assert out.strip() == "refused"


@pytest.mark.requirement("G-SBX-14.two")
async def test_two_sandboxes_see_nothing_of_each_other(new_box, host):
    first, second = await new_box(), await new_box()
    mark = host.marker()
    serve = "import socket; s = socket.create_server(('127.0.0.1', 8123)); open('/left', 'w').close()"
    serving = asyncio.create_task(
        first.sandbox.exec(["sh", "-c", f'python3 -c "{serve}; s.accept()" & exec sleep {mark}'], timeout_s=20)
    )
    await host.sleeping(mark)
    await host.until((first.upper / "left").exists)
    out = await second.python("""
        import os, socket
        print(len([name for name in os.listdir("/proc") if name.isdigit()]))
        print(os.path.exists("/left"))
        try:
            socket.create_connection(("127.0.0.1", 8123), timeout=2)
            print("connected")
        except ConnectionRefusedError:
            print("refused")
    """)
    assert out.splitlines() == [str(OWN_PROCESSES[second.form] + 1), "False", "refused"]
    await first.sandbox.kill()
    with pytest.raises(Exception, match="ended by the server"):
        await serving


async def test_the_environment_reaches_the_command_byte_for_byte(new_box):
    values = {
        "QUOTES": 'it\'s "quoted" $HOME `id` \\n',
        "LINES": "first\nsecond\n\n",
        "UMLAUT": "Größe あ Á",
        "EMPTY": "",
        "LONG": "x" * 100_000,
    }
    box = await new_box(env=values)
    out = await box.python(f"import os; print(dict(os.environ).items() >= {values!r}.items())")
    assert out.strip() == "True"


async def test_a_variable_of_exec_goes_over_one_of_the_spec(new_box):
    box = await new_box(env={"NAME": "spec", "PATH": "/usr/bin:/bin"})
    result = await box.sh('echo "$NAME $PATH"', env={"NAME": "exec"})
    assert result.stdout_tail == b"exec /usr/bin:/bin\n"


@pytest.mark.parametrize("name", ["A-B", "1A", "", "A=B", "A\nB", "A;id"])
async def test_a_variable_that_is_no_shell_name_is_refused_before_anything_starts(box, name):
    with pytest.raises(EnvironmentRefused) as refused:
        await box.sandbox.exec(["true"], env={name: "x"}, timeout_s=5)
    assert refused.value.reason == "ENVIRONMENT_REFUSED"
    assert refused.value.detail == "variable"
    assert (await box.sandbox.exec(["true"], timeout_s=5)).exit_code == 0, "the one command was not used up"


@pytest.mark.requirement("G-SBX-14.preload")
async def test_a_preload_library_of_the_tenant_never_loads_into_a_host_program(box, open_folder):
    """The library would write a file that only a host process can write."""
    source = open_folder / "evil.c"
    source.write_text(
        f"""#include <stdio.h>
        __attribute__((constructor)) void go(void) {{
            FILE *f = fopen("{open_folder}/loaded", "w"); if (f) fclose(f);
            f = fopen("/loaded-inside", "w"); if (f) fclose(f);
        }}"""
    )
    compiler = await asyncio.create_subprocess_exec(
        "cc", "-shared", "-fPIC", "-o", str(box.upper / "evil.so"), str(source)
    )
    if await compiler.wait() != 0:
        pytest.skip("no C compiler")
    open_folder.chmod(0o777)
    (box.upper / "evil.so").chmod(0o755)
    for path in ("/evil.so", str(box.upper / "evil.so")):
        result = await box.sh("true", env={"LD_PRELOAD": path, "LD_LIBRARY_PATH": str(box.upper)})
        assert result.exit_code == 0
    assert not (open_folder / "loaded").exists()
    assert (box.upper / "loaded-inside").exists(), "inside it is the tenant's own business"


async def test_a_secret_variable_stands_in_no_command_line_and_no_environment_of_the_host(new_box, host):
    secret = f"virtual-key-{host.marker()}"
    mark = host.marker()
    box = await new_box(env={"MODEL_KEY": secret})
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    await host.sleeping(mark)
    seen = host.holders(secret)
    await box.sandbox.kill()
    with pytest.raises(Exception, match="ended by the server"):
        await running
    assert seen in ({"sleep": "environ"}, {}), "only the tenant's own command holds it"


@pytest.mark.requirement("G-SBX-14.identity")
async def test_bwrap_is_started_without_the_rights_of_root(box, host):
    mark = host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], timeout_s=20))
    for pid in {*await host.sleeping(mark), *host.living(mark), *host.living(str(box.upper))}:
        assert host.uids(pid) == {"64000" if ROOT else str(os.geteuid())}
    await box.sandbox.kill()
    with pytest.raises(Exception, match="ended by the server"):
        await running


async def test_the_base_has_python_under_its_short_name(box):
    result = await box.sh("python -c 'print(1 + 1)'")
    assert result.stdout_tail == b"2\n"


async def test_memory_file_systems_are_bounded(box):
    result = await box.sh("head -c 70000000 /dev/zero > /dev/shm/full; stat -c %s /dev/shm/full")
    assert int(result.stdout_tail) <= 64 << 20
