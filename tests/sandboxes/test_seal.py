"""Sealing: what a sandbox left is kept whole, and nothing that a tenant can write gets in its way."""

import asyncio
import json
import os
import resource
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandboxes.seal_world import SECRET, World, new_folder, refusals, statuses, tree

from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import ArtifactPath
from tollbar.sandboxes.seal import seal_overlay


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


KEPT = {
    "made/report.txt": b"kept",
    "made/hard": b"kept",
    "made/run.sh": b"#!",
    "made/sub": "/",
    "made/sub/deep.bin": b"\0\1\2",
    "made/sub/up": "-> ../report.txt",
    "made/empty": "/",
    "made/inside": "-> sub/deep.bin",
    "made/dangling": "-> sub/none",
    "made/here": "-> .",
    "made/locked": b"mode 000",
    "made/closed": "/",
    "made/closed/inner": b"in mode 000",
}
REFUSED = {
    "made/absolute": "LINK_ABSOLUTE",
    "made/absolute-inside": "LINK_ABSOLUTE",
    "made/escapes": "LINK_ESCAPES",
    "made/sub/escapes": "LINK_ESCAPES",
    "made/tricky": "LINK_ESCAPES",
    "made/loop": "LINK_ESCAPES",
    "made/fifo": "NOT_A_FILE",
    "made/socket": "NOT_A_FILE",
    "made/device": "NOT_A_FILE",
    "made/not-utf8-\\xff": "BAD_NAME",
    "made/new\\x0aline": "BAD_NAME",
    "made/back\\slash": "BAD_NAME",
    "made/bad\\x1bfolder": "BAD_NAME",
    "made/sparse": "TOO_LARGE",
}


def plant_files(world):
    """Writes what is kept, with every odd mode."""
    world.put("out/report.txt", "kept")
    world.put("out/run.sh", "#!", mode=0o4755)
    world.put("out/sub/deep.bin", b"\0\1\2", mode=0o600)
    (world.upper / "out/empty").mkdir()
    os.link(world.upper / "out/report.txt", world.upper / "out/hard")
    world.put("out/locked", "mode 000", mode=0)
    world.put("out/closed/inner", "in mode 000")
    (world.upper / "out/closed").chmod(0)


def plant_traps(world):
    """Writes every row of what is refused, and the links that are not."""
    world.link("out/inside", "sub/deep.bin")
    world.link("out/sub/up", "../report.txt")
    world.link("out/dangling", "sub/none")
    world.link("out/here", ".")
    world.link("out/absolute", str(world.secret))
    world.link("out/absolute-inside", "/out/report.txt")
    world.link("out/escapes", "../../secret")
    world.link("out/sub/escapes", "../../x")
    world.link("out/tricky", "here/here/../report.txt")
    world.link("out/loop", "loop")
    os.mkfifo(world.upper / "out/fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(world.upper / "out")
        listener.bind("socket")
    os.chdir("/")
    os.mknod(world.upper / "out/device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (world.upper / os.fsdecode(b"out/not-utf8-\xff")).write_bytes(b"x")
    for name in ("new\nline", "back\\slash", "bad\x1bfolder/inner"):
        world.put(f"out/{name}", "x")
    with (world.upper / "out/sparse").open("wb") as file:
        file.truncate(1 << 30)


@pytest.mark.requirement("G-SBX-14.seal_hostile")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
def test_a_hostile_tree_costs_only_its_hostile_members(world):
    plant_files(world)
    plant_traps(world)
    seal = world.seal(ArtifactPath("/out", "made"))
    assert world.content(seal) == KEPT
    assert refusals(seal) == sorted(REFUSED.items())
    assert statuses(seal) == ["refused"]
    modes = {member.path: member.mode for member in seal.entries[0].members if member.kind == "file"}
    plain = [name for name, content in KEPT.items() if isinstance(content, bytes) and name != "made/run.sh"]
    assert modes == dict.fromkeys(plain, 0o644) | {"made/run.sh": 0o755}
    assert all(SECRET not in data for data in (*world.blobs.values(), seal.manifest))


@pytest.mark.requirement("G-SBX-14.seal_sparse")
def test_a_sparse_file_takes_no_memory(world):
    with (world.upper / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seal = world.seal("/sparse")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10
    assert refusals(seal) == [("sparse", "TOO_LARGE")]


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "-rf", " ", "~", "*", "a b", ".hidden", "CON", "x:y", "xC:y"])
def test_an_odd_name_that_every_client_can_write_is_kept(world, name):
    world.put(f"out/{name}", "x")
    assert list(world.content(world.seal("/out"))) == [f"out/{name}"]


def test_a_name_that_begins_like_a_drive_is_refused_at_the_outermost_place_alone(world):
    world.put("out/C:x", "x")
    assert refusals(world.seal(ArtifactPath("/out", "."))) == [("C:x", "BAD_NAME")]
    assert refusals(world.seal("/out")) == []


def test_very_deep_folders_are_refused_without_running_out_of_anything(world):
    os.chdir(world.upper)
    for _ in range(400):
        Path("d").mkdir()
        os.chdir("d")
    os.chdir("/")
    seal = world.seal("/d")
    assert [reason for _, reason in refusals(seal)] == ["TOO_DEEP"]
    assert len(seal.entries[0].members) == 64


def test_more_members_than_allowed_are_refused_once_and_the_first_by_name_are_kept(world):
    world.limits = replace(world.limits, max_members=3)
    for name in "edcba":
        world.put(f"out/{name}", name)
    seal = world.seal("/out", "/other")
    assert list(world.content(seal)) == ["out/a", "out/b", "out/c"]
    assert refusals(seal) == [("out", "TOO_MANY")]
    assert statuses(seal) == ["refused", "missing"]


def test_refused_members_count_too_so_that_a_seal_stays_small(world):
    world.limits = replace(world.limits, max_members=10)
    for number in range(40):
        world.link(f"out/{number:02}", "/etc/passwd")
    assert len(world.seal("/out").refusals) == 11


def test_a_file_above_what_is_left_is_refused_and_smaller_ones_are_still_kept(world):
    world.limits = replace(world.limits, max_total_bytes=10)
    world.put("out/a", "1234567")
    world.put("out/b", "12345")
    world.put("out/c", "123")
    seal = world.seal("/out")
    assert list(world.content(seal)) == ["out/a", "out/c"]
    assert refusals(seal) == [("out/b", "TOTAL_TOO_LARGE")]


def test_sealing_that_takes_too_long_is_a_fault_of_ours(world):
    world.put("out/a")
    times = iter([0.0, 119.0])
    with pytest.raises(SandboxLost, match="longer than 120 s") as lost:
        world.seal("/out", now=lambda: next(times, 121.0))
    assert lost.value.detail == "seal"


def test_a_store_that_cannot_write_is_a_fault_of_ours(world):
    world.put("a")

    def full(descriptor, size):
        raise OSError(28, "No space left on device")

    with pytest.raises(SandboxLost, match="No space left"):
        seal_overlay(world.upper, world.lowers, [ArtifactPath("/a")], world.limits, full)


CHANGES = {
    "grows": lambda path: path.write_bytes(b"longer than before"),
    "shrinks": lambda path: path.write_bytes(b""),
    "is written over": lambda path: os.utime(path, ns=(1, 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_refused(world, change):
    path = world.put("out/a", "content")
    world.put("out/b", "kept")

    def store(descriptor, size):
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            CHANGES[change](path)
        return world.store(descriptor, size)

    seal = seal_overlay(world.upper, world.lowers, [ArtifactPath("/out")], world.limits, store)
    assert refusals(seal) == [("out/a", "CHANGED")]
    assert [member.path for member in seal.entries[0].members] == ["out/b"]


@pytest.mark.parametrize("other", ["link", "fifo", "gone"])
def test_a_file_that_becomes_something_else_is_refused_and_never_followed(world, other):
    world.put("out/a", "first")
    path = world.put("out/b", "content")

    def store(descriptor, size):
        path.unlink()
        if other == "link":
            path.symlink_to(world.secret)
        elif other == "fifo":
            os.mkfifo(path)
        return world.store(descriptor, size)

    seal = seal_overlay(world.upper, world.lowers, [ArtifactPath("/out")], world.limits, store)
    assert refusals(seal) == [("out/b", "CHANGED")]
    assert set(world.blobs.values()) == {b"first"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_server_that_is_no_root_seals_what_its_owner_closed(open_folder):
    world = World(new_folder(open_folder / "world"))
    world.put("out/a", "in mode 000", mode=0)
    world.put("out/run", "#!", mode=0o111)
    world.put("out/closed/inner/x", "x")
    world.put("out/listed/x", "y")
    world.put("image/closed/x", "z", layer=world.image, mode=0)
    world.put("conf", "removed", layer=world.image)
    world.whiteout("conf")
    for name, mode in (("out/closed/inner", 0), ("out/closed", 0), ("out/listed", 0o400), ("out", 0o100)):
        (world.upper / name).chmod(mode)
    (world.image / "image/closed").chmod(0)
    for path in (world.folder, *world.folder.rglob("*")):
        os.lchown(path, 1234, 1234)
    content, refused, restored, read = as_user(1234, lambda: facts_of(world))
    assert content == {
        "out/a": "in mode 000",
        "out/run": "#!",
        "out/closed": "/",
        "out/closed/inner": "/",
        "out/closed/inner/x": "x",
        "out/listed": "/",
        "out/listed/x": "y",
        "image/closed": "/",
        "image/closed/x": "z",
    }
    assert (refused, restored, read) == ([], "whiteout", "in mode 000")


def facts_of(world) -> list[object]:
    seal = world.seal("/out", "/image", "/conf")
    found = {name: data if isinstance(data, str) else data.decode() for name, data in world.content(seal).items()}
    return [found, refusals(seal), tree(world.restored(seal))["conf"], world.read("/out/a").decode()]


def as_user(uid: int, work):
    """Returns what `work()` returns in a child process of another user, as JSON carries it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as file:
        return json.load(file)


@pytest.mark.requirement("G-SBX-14.seal_fifo")
async def test_a_fifo_does_not_block_the_loop(world):
    os.mkfifo(world.upper / "pipe")
    seal = await asyncio.wait_for(asyncio.to_thread(world.seal, "/pipe"), 5)
    assert refusals(seal) == [("pipe", "NOT_A_FILE")]
