"""Sealing reads layers as their overlay would show them, alone and against a real one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandboxes.seal_world import OPAQUE, World, refusals, statuses, write_all

from tollbar.sandboxes.interface import ArtifactPath, Form, Purpose, SandboxName, SealLimits
from tollbar.sandboxes.seal import read_manifest, restore


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_unchanged_files_of_the_image_are_part_of_it_and_the_upper_layer_wins(world):
    middle = world.folder / "middle"
    world.lowers = [world.image, middle]
    world.put("app/same", "image", layer=world.image)
    world.put("app/twice", "image", layer=world.image)
    world.put("app/twice", "middle", layer=middle)
    world.put("app/thrice", "image", layer=world.image)
    world.put("app/thrice", "middle", layer=middle)
    world.put("app/thrice", "upper")
    assert world.content(world.seal("/app")) == {
        "app/same": b"image",
        "app/twice": b"middle",
        "app/thrice": b"upper",
    }


def test_what_was_removed_stays_removed(world):
    world.put("app/gone", layer=world.image)
    world.put("app/kept", layer=world.image)
    world.put("app/tree/a/b", layer=world.image)
    world.put("app/replaced/old", layer=world.image)
    world.whiteout("app/gone")
    world.whiteout("app/tree")
    world.put("app/replaced/new")
    os.setxattr(world.upper / "app/replaced", OPAQUE, b"y")
    seal = world.seal("/app")
    assert list(world.content(seal)) == ["app/kept", "app/replaced", "app/replaced/new"]
    assert refusals(seal) == []
    assert statuses(world.seal("/app/gone", "/app/tree/a/b", "/app/replaced/old")) == ["missing"] * 3
    assert world.read("/app/gone") is None
    assert world.read("/app/replaced/old") is None
    assert world.read("/app/kept") == b"x"


def test_a_whiteout_of_a_layer_in_between_hides_what_lies_below_it(world):
    middle = world.folder / "middle"
    world.lowers = [world.image, middle]
    world.put("app/tree/a", layer=world.image)
    world.whiteout("app/tree", middle)
    world.put("app/tree/b")
    assert list(world.content(world.seal("/app"))) == ["app/tree", "app/tree/b"]


def test_a_file_over_a_folder_and_a_folder_over_a_file_hide_what_is_below(world):
    world.put("app/was-folder/x", layer=world.image)
    world.put("app/was-folder", "now a file")
    world.put("app/was-file", layer=world.image)
    world.put("app/was-file/x", "in a folder")
    assert world.content(world.seal("/app")) == {
        "app/was-folder": b"now a file",
        "app/was-file": "/",
        "app/was-file/x": b"in a folder",
    }


def test_a_file_is_read_up_to_a_bound_and_only_when_it_is_one(world):
    world.put("reward.txt", "0.5\n")
    world.put("closed", "x", mode=0)
    world.put("below", "image", layer=world.image)
    (world.upper / "folder").mkdir()
    os.mkfifo(world.upper / "fifo")
    world.link("link", str(world.secret))
    assert world.read("/reward.txt") == b"0.5\n"
    assert world.read("/reward.txt", 2) == b"0."
    assert world.read("/closed") == b"x"
    assert world.read("/below") == b"image"
    assert [world.read(f"/{name}") for name in ("folder", "fifo", "link", "none", "reward.txt/x", "a" * 300)] == [
        None
    ] * 6
    assert world.read("/") is None


async def test_a_real_overlay_is_sealed_as_the_sandbox_saw_it_and_comes_back_in_another(provider, new_box, world):
    layer = await provider.layer("test-seal-image", lambda folder: _image(folder))
    box = await new_box(layers=(layer,))
    made = await box.sh(
        "cd /app; rm gone; rm -r tree; mkdir tree; echo new > tree/new; echo changed > changed; mkfifo pipe;"
        "ln -s tree/new inside; ln -s /etc/passwd outside; chmod 000 closed; printf x > 'odd name'; rm /conf;"
        "find . -type f | sort"
    )
    assert made.exit_code == 0, made.stderr_tail
    await box.sandbox.kill()
    paths = [ArtifactPath("/app"), ArtifactPath("/conf")]
    seal = await box.sandbox.seal(paths, SealLimits(), world.store)
    files = [f"./{member.path[4:]}" for member in seal.entries[0].members if member.kind == "file"]
    assert sorted(files) == sorted(made.stdout_tail.decode().splitlines())
    assert refusals(seal) == [("app/outside", "LINK_ABSOLUTE"), ("app/pipe", "NOT_A_FILE")]
    assert statuses(seal) == ["refused", "missing"]

    name = SandboxName(f"trial_restored_{os.getpid()}", 1, Purpose.VERIFY)
    manifest = read_manifest(seal.manifest)
    restored = await provider.scratch_layer(
        name, lambda folder: restore(manifest, lambda sha256, fd: write_all(fd, world.blobs[sha256]), folder)
    )
    verifier = await new_box(name=name, layers=(layer,), inputs=(restored,))
    seen = await verifier.sh("cd /app; find . -type f | sort; cat inside changed closed; test -e gone || test -e /conf")
    assert seen.exit_code == 1
    lines = seen.stdout_tail.decode().splitlines()
    assert lines[: len(files)] == sorted(files)
    assert lines[len(files) :] == ["new", "changed", "kept"]
    again = await verifier.sandbox.seal(paths, SealLimits(), world.store)
    assert [member.path for member in again.entries[0].members] == [member.path for member in seal.entries[0].members]


HOSTILE = """
import os, socket
os.makedirs("/app/locked/deep")
for name in (b"plain", b"program", b"locked/deep/file", b"odd\\xff", b"a" * 255):
    with open(b"/app/" + name, "wb") as file:
        file.write(name)
os.chmod("/app/program", 0o4755)
os.mkfifo("/app/pipe")
os.symlink("/etc/passwd", "/app/absolute")
os.symlink("../../etc/passwd", "/app/outward")
os.symlink("plain", "/app/inward")
os.symlink("loop", "/app/loop")
os.link("/app/plain", "/app/hard")
socket.socket(socket.AF_UNIX).bind("/app/socket")
with open("/app/sparse", "wb") as file:
    file.truncate(200 << 20)
os.remove("/app/gone")
os.chmod("/app/locked/deep", 0)
os.chmod("/app/locked", 0)
"""


@pytest.mark.forms(Form.HELD)
@pytest.mark.requirement("G-SBX-14.form")
async def test_the_same_hostile_tree_has_the_same_manifest_whatever_the_form(provider, make_spec, world):
    layer = await provider.layer("test-seal-image", lambda folder: _image(folder))
    seals = []
    for form in (Form.ONE_SHOT, Form.HELD):
        sandbox = await provider.create(replace(make_spec(layers=(layer,)), form=form))
        try:
            made = await sandbox.exec(["python3", "-c", HOSTILE], timeout_s=20)
            assert made.exit_code == 0, made.stderr_tail.decode()
            await sandbox.kill()
            seals.append(await sandbox.seal([ArtifactPath("/app"), ArtifactPath("/none")], SealLimits(), world.store))
        finally:
            await sandbox.destroy()
    one_shot, held = seals
    assert held.manifest == one_shot.manifest
    assert held.sha256 == one_shot.sha256
    reasons = {"NOT_A_FILE", "LINK_ABSOLUTE", "LINK_ESCAPES", "BAD_NAME", "TOO_LARGE"}
    assert {reason for _, reason in refusals(held)} == reasons


def _image(folder: Path) -> None:
    for name in ("gone", "tree/old", "changed", "closed", "same"):
        path = folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept\n")
    (folder / "conf").write_text("original\n")
