"""Installs an agent's software for the sandboxes of this machine, by the machine's own npm or pip. Everything blocks.

A version appears whole or not at all. What packages would run at their installation is not run: scripts of npm packages
are ignored, and of Python packages only built ones are taken.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tollbar.agents import software
from tollbar.agents.errors import InstallFailed, InstallToolMissing, SoftwareUnknown
from tollbar.agents.packages import PACKAGES, NpmPackage, Package, PythonPackage
from tollbar.agents.software import Installed
from tollbar.kit.clock import Clock

PYTHON: Final = Path("/usr/bin/python3")
"""The interpreter that sandboxes on the host's base have."""
_TIMEOUT_S: Final = 1800
_STAGE: Final = ".new-"
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}")
_TAIL_LINES: Final = 15

Say = Callable[[str], None]


def package_of(wanted: str) -> tuple[Package, str]:
    """Returns package and version of `NAME` or `NAME@VERSION`. Raises `SoftwareUnknown`."""
    name, _, version = wanted.partition("@")
    if name not in PACKAGES:
        raise SoftwareUnknown(name, sorted(PACKAGES))
    if version and not _VERSION.fullmatch(version):
        raise SoftwareUnknown(wanted, sorted(PACKAGES))
    return PACKAGES[name], version or PACKAGES[name].version


def install(root: Path, wanted: str, clock: Clock, say: Say) -> tuple[Installed, bool]:
    """Installs `NAME[@VERSION]` below `root`; returns it, and whether it is new.

    `VERSION` may be a tag like `latest`; the version that came is recorded. Raises `SoftwareUnknown`,
    `InstallToolMissing`, `InstallFailed`.
    """
    package, version = package_of(wanted)
    with _alone(root, say):
        found = software.find(root, f"{package.name}@{version}")
        if found is not None:
            return found, False
        stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=root))
        try:
            stage.chmod(0o755)
            facts = _fetch(package, version, stage, say)
            found = software.find(root, f"{package.name}@{facts['version']}")
            if found is not None:
                return found, False
            facts |= {"name": package.name, "platform": _platform(), "bytes": _size(stage)}
            software.write(stage, facts, clock.now())
            target = root / package.name / facts["version"]
            target.parent.mkdir(exist_ok=True)
            stage.rename(target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    made = software.read(target)
    assert made is not None
    return made, True


def remove(root: Path, wanted: str) -> list[Installed]:
    """Removes one version, or all of a name; returns what went. Sandboxes that run have a layer of their own."""
    name, _, version = wanted.partition("@")
    with _alone(root, lambda _: None):
        gone = [one for one in software.installed(root) if one.name == name and version in {"", one.version}]
        for one in gone:
            grave = Path(tempfile.mkdtemp(prefix=_STAGE, dir=root))
            one.folder.rename(grave / "old")
            shutil.rmtree(grave, ignore_errors=True)
    return gone


@contextmanager
def _alone(root: Path, say: Say) -> Generator[None]:
    """One at a time; what a killed installation left half made is removed."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another installation to end ...")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in root.glob(f"{_STAGE}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _fetch(package: Package, version: str, stage: Path, say: Say) -> dict[str, Any]:
    if isinstance(package, NpmPackage):
        return _npm(package, version, stage, say)
    return _pip(package, version, stage, say)


def _npm(package: NpmPackage, version: str, stage: Path, say: Say) -> dict[str, Any]:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallToolMissing(package.name, "npm", "On Debian and Ubuntu: apt-get install npm")
    say(f"installing {package.package}@{version} by npm ...")
    command = [npm, "install", "--prefix", str(stage), "--ignore-scripts", "--no-audit", "--no-fund"]
    _run(package.name, [*command, "--save-exact", f"{package.package}@{version}"], stage)
    native = sorted(stage.glob(package.binaries))
    if not native:
        raise InstallFailed(package.name, f"npm brought no program for {_platform()}")
    _link(stage, package.program, native[0])
    facts = json.loads((stage / "node_modules" / package.package / "package.json").read_bytes())
    lock = "package-lock.json"
    return {
        "version": facts["version"],
        "source": f"npm:{package.package}@{facts['version']}",
        "python": None,
        "lock_file": lock,
        "lock_sha256": hashlib.sha256((stage / lock).read_bytes()).hexdigest(),
    }


def _link(stage: Path, program: str, target: Path) -> None:
    (stage / "bin").mkdir()
    (stage / "bin" / program).symlink_to(Path("..") / target.relative_to(stage))
    target.chmod(target.stat().st_mode | 0o555)


# The task's own Python must not see these packages, so nothing is put into the environment. The interpreter is looked
# for by name first: an image may have several, and compiled packages fit one version.
_LAUNCHER: Final = """\
#!/bin/sh
here=$(dirname "$0")/..
for python in python{version} /usr/bin/python3 python3 python; do
  if "$python" -I -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")' 2>/dev/null; then
    if [ "$1" = --which-python ]; then command -v "$python"; exit; fi
    exec "$python" -I "$here/bin/{program}.py" "$here/site" "$@"
  fi
done
echo "{name} was installed for Python {version}, and this sandbox has none" >&2
exit 127
"""
_START: Final = """\
import site
import sys

site.addsitedir(sys.argv.pop(1))
from {module} import {function}

sys.argv[0] = "{program}"
sys.exit({function}())
"""


def _pip(package: PythonPackage, version: str, stage: Path, say: Say) -> dict[str, Any]:
    if not PYTHON.exists():
        raise InstallToolMissing(package.name, str(PYTHON), "On Debian and Ubuntu: apt-get install python3")
    python = subprocess.run(
        [PYTHON, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    what = package.package if version == "latest" else f"{package.package}=={version}"
    say(f"installing {what} for Python {python} by pip ...")
    report = stage / "report.json"
    options = ["--target", str(stage / "site"), "--only-binary", ":all:", "--report", str(report)]
    options += ["--no-input", "--no-compile"]
    _run(package.name, [*_pip_command(package.name), "install", *options, what], stage)
    came = json.loads(report.read_bytes())["install"]
    report.unlink()
    shutil.rmtree(stage / "site" / "bin", ignore_errors=True)  # they name this machine's interpreter
    # A sandbox cannot keep what it compiles, and may show the files with other times.
    compiling = [str(PYTHON), "-I", "-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compiling, str(stage / "site")], check=False, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    lock = stage / "requirements.lock"
    lock.write_text("".join(sorted(map(_locked, came))))
    facts = next(one["metadata"] for one in came if one.get("requested"))
    _launcher(package, python, stage)
    return {
        "version": facts["version"],
        "source": f"pypi:{package.package}=={facts['version']}",
        "python": python,
        "lock_file": lock.name,
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest(),
    }


def _pip_command(name: str) -> list[str]:
    """This environment's pip installs for another interpreter as well; a tool's environment may have none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(PYTHON)]
    own = [str(PYTHON), "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False, timeout=60).returncode != 0:
        raise InstallToolMissing(name, "pip", "On Debian and Ubuntu: apt-get install python3-pip")
    return [*own, "--quiet", "--disable-pip-version-check"]


def _locked(one: Mapping[str, Any]) -> str:
    digest = one["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    pin = f"{one['metadata']['name'].lower()}=={one['metadata']['version']}"
    return f"{pin} --hash=sha256:{digest}\n" if digest else f"{pin}\n"


def _launcher(package: PythonPackage, python: str, stage: Path) -> None:
    module, _, function = package.entry.partition(":")
    (stage / "bin").mkdir()
    start = stage / "bin" / package.program
    start.write_text(_LAUNCHER.format(version=python, program=package.program, name=package.name))
    start.chmod(0o755)
    (stage / "bin" / f"{package.program}.py").write_text(
        _START.format(module=module, function=function, program=package.program)
    )


def _run(name: str, command: Sequence[str], folder: Path) -> None:
    """Runs a package manager; raises `InstallFailed` with the end of what it said."""
    try:
        ended = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InstallFailed(name, f"{Path(command[0]).name} took longer than {_TIMEOUT_S} s") from error
    if ended.returncode != 0:
        said = "\n".join(ended.stdout.strip().splitlines()[-_TAIL_LINES:])
        raise InstallFailed(name, f"exit code {ended.returncode}; the package manager said:\n{said}")


def _platform() -> str:
    return f"{platform.system().lower()}-{platform.machine()}"


def _size(folder: Path) -> int:
    return sum((Path(path) / name).lstat().st_size for path, _, names in os.walk(folder) for name in names)
