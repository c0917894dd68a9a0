"""Run by `test_bwrap_unprivileged.py` as another user: the main ways of a sandbox, one JSON object on stdout.

Its only imports are the standard library and the package, because it may run in the distribution's Python.
"""

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

from tollbar.kit.clock import SystemClock
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.interface import Form, ImageRef, Limits, Purpose, SandboxName, SandboxSpec

HIDING = (
    "trap '' TERM HUP; setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 & "
    "(setsid sh -c 'sleep {mark} & sleep {mark}' >/dev/null 2>&1 &); "
)
ODD = """
import os
os.makedirs("/odd/closed/deep")
open("/odd/closed/deep/file", "w").close()
open(b"/odd/new\\nline\\xff", "w").close()
open("/odd/" + "n" * 255, "w").close()
os.mkfifo("/odd/pipe")
os.chdir("/odd")
for _ in range(300):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
os.chmod("/odd/closed/deep", 0)
os.chmod("/odd/closed", 0)
os.chmod("/odd", 0o100)
"""


def living(mark):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and int(entry.name) != os.getpid()
                and mark.encode() in (entry / "cmdline").read_bytes()
            ):
                found.append(entry.name)
        except OSError:
            continue
    return found


def spec(name, form=Form.ONE_SHOT, **options):
    image = ImageRef("", options.pop("layers", ()), "/app", {})
    limits = options.pop("limits", Limits(memory_mb=256, pids=64, disk_mb=64))
    return SandboxSpec(SandboxName(name, 0, Purpose.AGENT), "w", form, image, "/app", {}, limits, **options)


async def hold(provider, folder, mark):
    """Returns what a held sandbox does for this user."""
    facts = {}
    sandbox = await provider.create(spec("trial_held", Form.HELD, directories=("/logs/agent",)))
    upper = Path(sandbox.handle.data["upper"])
    show = "id -u; grep -E 'Cap(Eff|Bnd)|NoNew' /proc/self/status; echo x > /logs/agent/made; exit 7"
    result = await sandbox.exec(["sh", "-c", show], timeout_s=10)
    facts["identity"] = [result.exit_code, result.stdout_tail.decode(), (upper / "logs/agent/made").stat().st_uid]
    refused = [
        (await sandbox.exec(["sh", "-c", attempt], timeout_s=10)).exit_code != 0
        for attempt in (
            "unshare -m true",
            "unshare -n true",
            "unshare -Ur true",
            "chroot / true",
            "cat /proc/1/environ",
        )
    ]
    facts["refused"] = all(refused)
    await sandbox.exec(["sh", "-c", HIDING.format(mark=mark)], timeout_s=10)
    facts["in the background"] = len(living(mark)) > 0
    result = await sandbox.exec(["sh", "-c", HIDING.format(mark=mark) + f"sleep {mark}"], timeout_s=0.5)
    facts["after time-out"] = [result.timed_out, result.wall_s < 2.5, living(mark)]
    result = await sandbox.exec(["sh", "-c", f"setsid sleep {mark} & echo next"], timeout_s=10)
    facts["next"] = result.stdout_tail.decode()
    await sandbox.kill()
    facts["after kill"] = living(mark)
    await sandbox.put(folder / "tests", "/tests")
    result = await sandbox.exec(["/tests/test.sh"], timeout_s=10)
    facts["put"] = result.stdout_tail.decode()
    facts["read"] = (await sandbox.read_file("/logs/agent/made", 10) or b"").decode()
    await sandbox.destroy()
    return facts


async def main(folder, mark):
    facts = {}
    provider = BwrapProvider(folder / "data", host="here")
    facts["problems"] = [problem.code for problem in await provider.preflight()]
    facts["memory"] = provider.capabilities().limits["memory"]

    sandbox = await provider.create(spec("trial_first", directories=("/logs/agent",)))
    upper = Path(sandbox.handle.data["directory"]) / "up"
    result = await sandbox.exec(["sh", "-c", "id -u; echo x > /logs/agent/made; exit 7"], timeout_s=10)
    facts["identity"] = [result.exit_code, result.stdout_tail.decode(), (upper / "logs/agent/made").stat().st_uid]

    await sandbox.kill()
    await sandbox.exec(["sh", "-c", HIDING.format(mark=mark) + "sleep 0.2"], timeout_s=10)
    facts["after end"] = living(mark)
    await sandbox.kill()
    result = await sandbox.exec(["sh", "-c", HIDING.format(mark=mark) + f"sleep {mark}"], timeout_s=0.5)
    facts["after time-out"] = [result.timed_out, result.wall_s < 2.5, living(mark)]

    await sandbox.kill()
    code = f"import time; held = b'x' * (200 << 20); time.sleep(30) #{mark}"
    small = await provider.create(spec("trial_small", limits=Limits(memory_mb=64, pids=64, disk_mb=64)))
    result = await small.exec(["python3", "-c", code], timeout_s=20)
    facts["memory limit"] = [result.oom_killed, result.timed_out, living(mark)]
    await small.destroy()

    (folder / "tests").mkdir()
    (folder / "tests/test.sh").write_text("#!/bin/sh\necho graded\n")
    (folder / "tests/test.sh").chmod(0o755)
    await sandbox.exec(
        ["sh", "-c", "mkdir -p /tests/old && chmod 000 /tests/old /tests; chmod 000 /logs"], timeout_s=10
    )
    await sandbox.kill()
    await sandbox.put(folder / "tests", "/tests")
    await sandbox.put(folder / "tests", "/logs/verifier")
    result = await sandbox.exec(["sh", "-c", "/tests/test.sh; ls /tests /logs/verifier"], timeout_s=10)
    facts["put"] = result.stdout_tail.decode()

    layer = await provider.layer("key", lambda made: (made / "low").write_text("low"))
    second = await provider.create(spec("trial_second", layers=(layer,)))
    result = await second.exec(["sh", "-c", 'cat /low; rm /low; python3 -c "$0"', ODD], timeout_s=10)
    facts["layer"] = [
        result.exit_code,
        result.stdout_tail.decode(),
        stat.S_ISCHR((Path(second.handle.data["directory"]) / "up/low").lstat().st_mode),
    ]
    await second.destroy()
    await sandbox.destroy()
    facts["held"] = await hold(provider, folder, mark)
    await provider.kill_all()
    facts["helpers"] = living("entry_helper.py")
    facts["reaped"] = await provider.reap([], now=SystemClock().now())
    facts["left"] = sorted(path.name for path in (folder / "data/s").iterdir())
    facts["bwraps"] = living(str(folder / "data"))
    sys.stdout.write(json.dumps(facts))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
