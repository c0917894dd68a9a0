"""Installing an agent's software: whole or not at all, by the machine's npm and pip, and never run at installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support import ManualClock

from tollbar.agents import installing, software
from tollbar.agents.errors import InstallFailed, InstallToolMissing, SoftwareUnknown

NPM = """\
#!/usr/bin/env python3
import json, os, pathlib, sys
open(os.environ["NPM_CALLS"], "a").write(" ".join(sys.argv[1:]) + "\\n")
stage = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1])
package, _, version = sys.argv[-1].rpartition("@")
version = "0.9.9" if version == "latest" else version
folder = stage / "node_modules" / package
folder.mkdir(parents=True)
(folder / "package.json").write_text(json.dumps({"name": package, "version": version}))
(stage / "package-lock.json").write_text(json.dumps({package: {"version": version, "integrity": "sha512-x"}}))
if version == "0.0.0":
    sys.exit("npm error network is away")
native = stage / "node_modules" / f"{package}-linux-x64" / "vendor" / "linux" / "bin"
if version != "0.0.1":
    native.mkdir(parents=True)
    (native / "codex").write_text("#!/bin/sh\\necho codex $*\\n")
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `npm` that brings what the real one would, and the file of its calls."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "npm").write_text(NPM.replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("NPM_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "agents"


def silent(_: str) -> None:
    """Nobody reads the progress."""


def test_a_package_of_npm_is_pinned_recorded_and_runs_as_its_native_binary(npm: Path, root: Path, clock: ManualClock):
    one, new = installing.install(root, "codex@1.2.3", clock, silent)

    assert new
    assert (one.reference, one.source, one.folder) == ("codex@1.2.3", "npm:@openai/codex@1.2.3", root / "codex/1.2.3")
    assert one.installed_at.startswith("2026-11-30T12:00:00")
    assert len(one.lock_sha256) == 64
    program = one.folder / "bin" / "codex"
    assert subprocess.run([program, "x"], capture_output=True, check=True).stdout == b"codex x\n"
    assert not program.readlink().is_absolute(), "it works wherever the folder is laid over a sandbox"
    [call] = npm.read_text().splitlines()
    assert "--ignore-scripts" in call.split()


def test_what_is_installed_is_not_fetched_again_and_the_tested_version_is_the_default(npm, root, clock):
    first, _ = installing.install(root, "codex", clock, silent)
    again, new = installing.install(root, "codex", clock, silent)

    assert (again, new) == (first, False)
    assert first.version == "0.171.0"
    assert len(npm.read_text().splitlines()) == 1


def test_a_tag_is_recorded_as_the_version_that_came(npm, root, clock):
    one, _ = installing.install(root, "codex@latest", clock, silent)
    again, new = installing.install(root, "codex@latest", clock, silent)

    assert (one.version, again.reference, new) == ("0.9.9", "codex@0.9.9", False)


def test_a_job_runs_the_newest_installation_unless_it_names_a_version(npm, root, clock):
    for version in ("2.0.0", "1.0.0"):
        installing.install(root, f"codex@{version}", clock, silent)
        clock.advance(60)

    newest, older = software.find(root, "codex"), software.find(root, "codex@2.0.0")
    assert newest is not None
    assert older is not None
    assert (newest.version, older.version) == ("1.0.0", "2.0.0")
    assert software.find(root, "codex@3.0.0") is None
    assert software.offered(root) == ["codex@1.0.0", "codex@2.0.0"]
    assert software.fits("codex", ["codex@1.0.0"])
    assert not software.fits("codex@2.0.0", ["codex@1.0.0"])
    assert not software.fits("code", ["codex@1.0.0"])


@pytest.mark.parametrize(("version", "said"), [("0.0.0", "network is away"), ("0.0.1", "no program for")])
def test_an_installation_that_fails_leaves_nothing_and_says_why(npm, root, clock, version, said):
    with pytest.raises(InstallFailed) as failed:
        installing.install(root, f"codex@{version}", clock, silent)

    assert said in failed.value.message
    assert [path.name for path in root.iterdir()] == [".lock"]


def test_what_a_killed_installation_left_is_removed_by_the_next(npm, root, clock):
    (root / ".new-dead" / "node_modules").mkdir(parents=True)
    installing.install(root, "codex", clock, silent)

    assert sorted(path.name for path in root.iterdir()) == [".lock", "codex"]


def test_versions_and_names_are_removed(npm, root, clock):
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        installing.install(root, f"codex@{version}", clock, silent)

    assert [one.reference for one in installing.remove(root, "codex@2.0.0")] == ["codex@2.0.0"]
    assert [one.reference for one in installing.remove(root, "codex@2.0.0")] == []
    assert sorted(one.version for one in installing.remove(root, "codex")) == ["1.0.0", "3.0.0"]
    assert software.installed(root) == []


def test_without_npm_the_fix_is_said(root, clock, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InstallToolMissing) as failed:
        installing.install(root, "claude-code", clock, silent)

    assert "npm" in str(failed.value.hint)


@pytest.mark.parametrize("wanted", ["nope", "codex@../../x", "codex@-rf", "../codex"])
def test_another_name_or_version_is_refused_before_anything_is_made(root, clock, wanted):
    with pytest.raises(SoftwareUnknown):
        installing.install(root, wanted, clock, silent)

    assert not root.exists()


def test_a_record_that_cannot_be_read_is_no_installation(root):
    for number, text in enumerate(("{", "[]", '{"name": "codex"}')):
        folder = root / "codex" / str(number)
        folder.mkdir(parents=True)
        (folder / software.RECORD).write_text(text)

    assert software.installed(root) == []


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package of the name, that prints how it was started; pip looks nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    code = "import os, sys\ndef app():\n    print(sys.argv[1:], os.environ.get('PYTHONPATH'))\n    return 3\n"
    meta = "mini_swe_agent-7.0.0.dist-info"
    members = {
        "minisweagent/__init__.py": "",
        "minisweagent/run/__init__.py": "",
        "minisweagent/run/mini.py": code,
        f"{meta}/METADATA": "Metadata-Version: 2.1\nName: mini-swe-agent\nVersion: 7.0.0\n",
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members[f"{meta}/RECORD"] = "".join(f"{name},,\n" for name in [*members, f"{meta}/RECORD"])
    with zipfile.ZipFile(folder / "mini_swe_agent-7.0.0-py3-none-any.whl", "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.skipif(not installing.PYTHON.exists(), reason="the host has no /usr/bin/python3")
def test_a_package_of_pypi_is_locked_with_hashes_and_its_packages_stay_out_of_the_tasks_python(wheels, root, clock):
    one, _ = installing.install(root, "mini-swe-agent@7.0.0", clock, silent)

    lock = (one.folder / one.lock_file).read_text()
    assert lock.startswith("mini-swe-agent==7.0.0 --hash=sha256:")
    run = subprocess.run([one.folder / "bin" / "mini", "--task=x y"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (3, "['--task=x y'] None\n"), run.stderr


@pytest.mark.skipif(not installing.PYTHON.exists(), reason="the host has no /usr/bin/python3")
def test_a_sandbox_without_the_interpreter_says_so(wheels, root, clock, tmp_path):
    one, _ = installing.install(root, "mini-swe-agent@7.0.0", clock, silent)
    launcher = one.folder / "bin" / "mini"
    launcher.write_text(launcher.read_text().replace(one.python, "2.4"))

    run = subprocess.run([launcher, "--which-python"], capture_output=True, text=True, check=False)
    assert run.returncode == 127
    assert "Python 2.4" in run.stderr


@pytest.mark.skipif(not installing.PYTHON.exists(), reason="the host has no /usr/bin/python3")
def test_a_package_that_pypi_lacks_is_told_in_pips_words(wheels, root, clock):
    with pytest.raises(InstallFailed) as failed:
        installing.install(root, "mini-swe-agent@8.0.0", clock, silent)

    assert "8.0.0" in failed.value.message
    assert software.installed(root) == []


def test_the_command_line_installs_lists_and_removes(npm, tmp_path):
    def tollbar(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tollbar", "agents", *words, "--data-dir", str(tmp_path / "data")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    installed = tollbar("install", "codex@1.0.0", "--json")
    listed = tollbar("list", "--json")
    removed, gone = tollbar("remove", "codex"), tollbar("remove", "codex")

    assert installed.returncode == 0, installed.stderr
    assert (json.loads(installed.stdout)["version"], json.loads(installed.stdout)["new"]) == ("1.0.0", True)
    shown = json.loads(listed.stdout)
    assert [one["version"] for one in shown["items"]] == ["1.0.0"]
    assert [one["name"] for one in shown["available"]] == ["claude-code", "mini-swe-agent"]
    assert (removed.returncode, removed.stdout) == (0, "codex@1.0.0: removed\n")
    assert gone.returncode == 3
    refused = tollbar("install", "nope", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (1, "AGENT_SOFTWARE_UNKNOWN")
