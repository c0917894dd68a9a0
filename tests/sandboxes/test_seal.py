"""Sealing: what a sandbox left is kept whole, and nothing that a tenant can write gets in its way."""

import asyncio
import hashlib
import json
import os
import resource
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import ArtifactPath, Purpose, SandboxName, SealLimits
from tollbar.sandboxes.seal import read_file_overlay, read_manifest, restore, seal_overlay

SECRET = b"the host's own secret"
OPAQUE = "user.overlay.opaque"


class World:
    """Layers of a sandbox on the disk, with a planted secret beside them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.upper = folder / "up"
        self.image = folder / "image"
        self.upper.mkdir()
        self.image.mkdir()
        self.lowers = [self.image]
        self.secret = folder / "secret"
        self.secret.write_bytes(SECRET)
        self.blobs: dict[str, bytes] = {}
        self.limits = SealLimits()

    def put(self, name: str, content: bytes | str = b"x", *, layer: Path | None = None, mode: int = 0o644) -> Path:
        path = (layer or self.upper) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def link(self, name: str, target: str) -> None:
        path = self.upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def whiteout(self, name: str, layer: Path | None = None) -> None:
        path = (layer or self.upper) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))

    def store(self, descriptor: int, size: int) -> str:
        data = os.pread(descriptor, size, 0)
        if len(data) != size:
            raise ValueError("short")
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    def seal(self, *paths: str | ArtifactPath, **options):
        wanted = [ArtifactPath(path) if isinstance(path, str) else path for path in paths]
        return seal_overlay(self.upper, self.lowers, wanted, self.limits, self.store, **options)

    def read(self, path: str, max_bytes: int = 1000):
        return read_file_overlay(self.upper, self.lowers, path, max_bytes)

    def content(self, seal) -> dict[str, bytes | str]:
        """Returns the members of a seal: path -> bytes, `/` for folders, `-> target` for links."""
        return {
            member.path: self.blobs[member.sha256]
            if member.kind == "file"
            else ("/" if member.kind == "directory" else f"-> {member.target}")
            for entry in seal.entries
            for member in entry.members
        }

    def restored(self, seal, name: str = "restored") -> Path:
        folder = self.folder / name
        folder.mkdir()
        restore(read_manifest(seal.manifest), lambda sha256, fd: _write(fd, self.blobs[sha256]), folder)
        return folder


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def refusals(seal) -> list[tuple[str, str]]:
    return [(refusal.name, refusal.reason) for refusal in seal.refusals]


def statuses(seal) -> list[str]:
    return [entry.status for entry in seal.entries]


# Members


def test_a_hostile_tree_costs_only_its_hostile_members(world):
    world.put("out/report.txt", "kept")
    world.put("out/run.sh", "#!", mode=0o4755)
    world.put("out/sub/deep.bin", b"\0\1\2", mode=0o600)
    (world.upper / "out/empty").mkdir()
    os.link(world.upper / "out/report.txt", world.upper / "out/hard")
    world.link("out/inside", "sub/deep.bin")
    world.link("out/sub/up", "../report.txt")
    world.link("out/dangling", "sub/none")
    world.link("out/absolute", str(world.secret))
    world.link("out/absolute-inside", "/out/report.txt")
    world.link("out/escapes", "../../secret")
    world.link("out/sub/escapes", "../../x")
    world.link("out/here", ".")
    world.link("out/tricky", "here/here/../report.txt")
    world.link("out/loop", "loop")
    os.mkfifo(world.upper / "out/fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(world.upper / "out")
        listener.bind("socket")
    os.chdir("/")
    os.mknod(world.upper / "out/device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (world.upper / os.fsdecode(b"out/not-utf8-\xff")).write_bytes(b"x")
    world.put("out/new\nline", "x")
    world.put("out/back\\slash", "x")
    world.put("out/bad\x1bfolder/inner", "x")
    world.put("out/locked", "mode 000", mode=0)
    world.put("out/closed/inner", "in mode 000")
    (world.upper / "out/closed").chmod(0)
    with (world.upper / "out/sparse").open("wb") as file:
        file.truncate(1 << 30)

    seal = world.seal(ArtifactPath("/out", "made"))

    assert world.content(seal) == {
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
    assert refusals(seal) == sorted(
        [
            ("made/absolute", "LINK_ABSOLUTE"),
            ("made/absolute-inside", "LINK_ABSOLUTE"),
            ("made/escapes", "LINK_ESCAPES"),
            ("made/sub/escapes", "LINK_ESCAPES"),
            ("made/tricky", "LINK_ESCAPES"),
            ("made/loop", "LINK_ESCAPES"),
            ("made/fifo", "NOT_A_FILE"),
            ("made/socket", "NOT_A_FILE"),
            ("made/device", "NOT_A_FILE"),
            ("made/not-utf8-\\xff", "BAD_NAME"),
            ("made/new\\x0aline", "BAD_NAME"),
            ("made/back\\slash", "BAD_NAME"),
            ("made/bad\\x1bfolder", "BAD_NAME"),
            ("made/sparse", "TOO_LARGE"),
        ]
    )
    assert statuses(seal) == ["refused"]
    assert {member.path: member.mode for member in seal.entries[0].members if member.kind == "file"} == {
        "made/report.txt": 0o644,
        "made/hard": 0o644,
        "made/run.sh": 0o755,
        "made/sub/deep.bin": 0o644,
        "made/locked": 0o644,
        "made/closed/inner": 0o644,
    }
    assert all(SECRET not in blob for blob in world.blobs.values())
    assert all(SECRET not in blob for blob in [seal.manifest])


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
        os.mkdir("d")
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
    times = iter([0.0, 1.0, 119.0])
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


# Layers


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


# Entries


def test_an_entry_says_what_became_of_it(world):
    world.put("app/file")
    world.put("app/full/x")
    (world.upper / "app/empty").mkdir()
    os.mkfifo(world.upper / "app/fifo")
    world.link("app/link", "file")
    world.put("app/partly/good")
    world.link("app/partly/bad", "/etc/passwd")
    paths = ["file", "full", "empty", "none", "none/deeper", "file/below", "fifo", "link", "link/below", "partly"]
    seal = world.seal(*(f"/app/{name}" for name in paths))
    assert dict(zip(paths, statuses(seal), strict=True)) == {
        "file": "ok",
        "full": "ok",
        "empty": "empty",
        "none": "missing",
        "none/deeper": "skipped",
        "file/below": "skipped",
        "fifo": "refused",
        "link": "refused",
        "link/below": "skipped",
        "partly": "refused",
    } | {"none/deeper": "missing", "file/below": "missing", "link/below": "refused"}
    assert refusals(seal) == [
        ("app/fifo", "NOT_A_FILE"),
        ("app/link", "LINK_ESCAPES"),
        ("app/partly/bad", "LINK_ABSOLUTE"),
    ]


def test_a_link_on_the_way_is_not_followed(world):
    world.put("real/file", "x")
    world.link("way", "real")
    world.link("out-of-here", str(world.folder))
    seal = world.seal("/way/file", "/out-of-here/secret")
    assert refusals(seal) == [("out-of-here/secret", "LINK_ABSOLUTE"), ("way/file", "LINK_ESCAPES")]
    assert world.blobs == {}
    assert world.read("/way/file") is None
    assert world.read("/out-of-here/secret") is None


def test_the_source_is_mirrored_unless_a_destination_is_given(world):
    world.put("app/a/x", "1")
    world.put("app/b", "2")
    seal = world.seal("/app//a/", ArtifactPath("/app/b", "./result/b.txt"))
    assert [(entry.source, entry.destination) for entry in seal.entries] == [
        ("/app/a", "app/a"),
        ("/app/b", "result/b.txt"),
    ]
    assert world.content(seal) == {"app/a/x": b"1", "result/b.txt": b"2"}


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (ArtifactPath("/app"), ArtifactPath("/app"), "ok"),
        (ArtifactPath("/app"), ArtifactPath("/app/sub"), "ok"),
        (ArtifactPath("/app"), ArtifactPath("/app/sub/x"), "ok"),
        (ArtifactPath("/app"), ArtifactPath("/app/none"), "missing"),
        (ArtifactPath("/app", "place"), ArtifactPath("/app/sub", "place/sub"), "ok"),
        (ArtifactPath("/app", "place"), ArtifactPath("/app/sub"), "ok"),
        (ArtifactPath("/app", exclude=("x",)), ArtifactPath("/app"), "skipped"),
        (ArtifactPath("/app", exclude=("x",)), ArtifactPath("/app/sub"), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/app", exclude=("x",)), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/other", "app"), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/other", "app/sub"), "skipped"),
        (ArtifactPath("/app/sub"), ArtifactPath("/app"), "skipped"),
        (ArtifactPath("/app"), ArtifactPath("/app2"), "missing"),
        (ArtifactPath("/none"), ArtifactPath("/other", "none"), "skipped"),
    ],
)
def test_of_two_entries_whose_places_overlap_the_first_is_taken(world, first, second, status):
    world.put("app/sub/x", "1")
    world.put("other/x", "2")
    seal = world.seal(first, second)
    assert seal.entries[1].status == status
    paths = [member.path for entry in seal.entries for member in entry.members]
    assert len(paths) == len(set(paths))


def test_excluded_members_are_left_out_as_tar_does(world):
    for name in ("a.pyc", "b.py", "node_modules/x", "sub/node_modules/y", "sub/c.pyc", "sub/top", "top", "x/y/z"):
        world.put(f"out/{name}")
    os.mkfifo(world.upper / "out/sub/pipe.pyc")
    seal = world.seal(ArtifactPath("/out", exclude=("*.pyc", "node_modules/", "./top", "x/y")))
    assert list(world.content(seal)) == ["out/b.py", "out/sub", "out/x", "out/sub/top"]
    assert refusals(seal) == []


def test_an_entry_whose_place_is_no_name_is_refused(world):
    world.put("app/a\nb", "x")
    seal = world.seal("/app/a\nb", ArtifactPath("/app/a\nb", "fine"))
    assert statuses(seal) == ["refused", "ok"]
    assert refusals(seal) == [("app/a\\x0ab", "BAD_NAME")]


@pytest.mark.parametrize("source", ["relative", "", "/a/../b", "/a\0b"])
def test_a_source_that_is_not_absolute_is_a_fault_of_the_caller(world, source):
    with pytest.raises(ValueError, match="is not an absolute path"):
        world.seal(source)
    with pytest.raises(ValueError, match="is not an absolute path"):
        world.read(source)


# Manifest


def test_the_manifest_is_canonical_json_of_this_form(world):
    world.put("app/run", "hello", mode=0o700)
    world.put("out/sub/é", "x")
    world.link("out/l", "sub")
    os.mkfifo(world.upper / "out/p")
    seal = world.seal("/app/run", ArtifactPath("/out", "made", exclude=("z",)), "/none")
    expected = {
        "version": 1,
        "entries": [
            {
                "source": "/app/run",
                "destination": "app/run",
                "exclude": [],
                "service": "main",
                "status": "ok",
                "kind": "file",
                "members": [
                    {
                        "kind": "file",
                        "path": "app/run",
                        "size": 5,
                        "mode": 493,
                        "sha256": hashlib.sha256(b"hello").hexdigest(),
                    }
                ],
            },
            {
                "source": "/out",
                "destination": "made",
                "exclude": ["z"],
                "service": "main",
                "status": "refused",
                "kind": "directory",
                "members": [
                    {"kind": "link", "path": "made/l", "target": "sub"},
                    {"kind": "directory", "path": "made/sub"},
                    {
                        "kind": "file",
                        "path": "made/sub/é",
                        "size": 1,
                        "mode": 420,
                        "sha256": hashlib.sha256(b"x").hexdigest(),
                    },
                ],
            },
            {
                "source": "/none",
                "destination": "none",
                "exclude": [],
                "service": "main",
                "status": "missing",
                "kind": None,
                "members": [],
            },
        ],
        "refusals": [{"name": "made/p", "reason": "NOT_A_FILE"}],
    }
    assert json.loads(seal.manifest) == expected
    text = json.dumps(expected, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert seal.manifest == text.encode()
    assert seal.sha256 == hashlib.sha256(seal.manifest).hexdigest()


def test_equal_trees_have_equal_manifests_whatever_their_layers_times_and_order(world, tmp_path):
    names = ["b", "a/x", "a/Y", "c/é", "c/z"]
    for name in names:
        world.put(f"out/{name}", name)
    world.link("out/l", "a")
    other = World(_folder(tmp_path / "other"))
    for name in reversed(names):
        layer = other.image if name < "b" else None
        os.utime(other.put(f"out/{name}", name, layer=layer), (1, 1))
    other.put("out/gone", layer=other.image)
    other.whiteout("out/gone")
    other.link("out/l", "a")
    assert world.seal("/out").manifest == other.seal("/out").manifest
    other.put("out/b", "changed")
    assert world.seal("/out").sha256 != other.seal("/out").sha256


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_manifest_that_is_read_says_what_was_sealed(world):
    world.put("out/a", "1", mode=0o755)
    world.link("out/l", "a")
    (world.upper / "out/d").mkdir()
    seal = world.seal(ArtifactPath("/out", "made", exclude=("z",)), "/none")
    found = read_manifest(seal.manifest)
    assert found.sha256 == seal.sha256
    assert found.refusals == seal.refusals
    for read, sealed in zip(found.entries, seal.entries, strict=True):
        assert (read.source, read.destination, read.status) == (sealed.source, sealed.destination, sealed.status)
        assert set(read.members) == set(sealed.members)
    assert found.entries[0].exclude == ("z",)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":2}', b'{"version":1,"entries":[{}],"refusals":[]}'])
def test_bytes_that_are_no_manifest_are_refused(data):
    with pytest.raises(ValueError, match=r".*"):
        read_manifest(data)


# Restoring


def tree(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name, facts = str(path.relative_to(folder)), path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            found[name] = f"-> {path.readlink()}"
        elif stat.S_ISCHR(facts.st_mode):
            found[name] = "whiteout"
        else:
            found[name] = (stat.S_IMODE(facts.st_mode), path.read_bytes() if path.is_file() else None)
    return found


def test_sealed_members_come_back_at_their_original_paths(world):
    world.put("app/run", "#!", mode=0o700)
    world.put("logs/artifacts/sub/x", "1", mode=0o600)
    world.link("logs/artifacts/l", "sub/x")
    (world.upper / "logs/artifacts/empty").mkdir(mode=0o700)
    (world.upper / "bare").mkdir()
    seal = world.seal(ArtifactPath("/logs/artifacts", "published"), ArtifactPath("/app/run", "tool"), "/bare", "/none")
    folder = world.restored(seal)
    assert tree(folder) == {
        "app": (0o755, None),
        "app/run": (0o755, b"#!"),
        "bare": (0o755, None),
        "logs": (0o755, None),
        "logs/artifacts": (0o755, None),
        "logs/artifacts/empty": (0o755, None),
        "logs/artifacts/l": "-> sub/x",
        "logs/artifacts/sub": (0o755, None),
        "logs/artifacts/sub/x": (0o644, b"1"),
    }
    assert {path.lstat().st_mtime for path in folder.rglob("*")} == {315_619_200}


def test_a_restored_layer_shows_the_same_as_what_was_sealed(world):
    world.put("app/old", layer=world.image)
    world.put("app/kept", "image", layer=world.image)
    world.put("conf", "original", layer=world.image)
    world.put("data/x", layer=world.image)
    world.put("big", "small once", layer=world.image)
    world.whiteout("app/old")
    world.put("app/new", "agent")
    world.whiteout("conf")
    world.whiteout("data")
    world.put("big", "0123456789")
    world.limits = replace(world.limits, max_file_bytes=9)
    paths = ["/app", "/conf", "/data", "/big"]
    seal = world.seal(*paths)
    assert statuses(seal) == ["ok", "missing", "missing", "refused"]

    other = World(_folder(world.folder / "verifier"))
    other.blobs = world.blobs
    other.upper, other.lowers = other.upper, [world.image, world.restored(seal)]
    again = other.seal(*paths)
    assert other.content(again) == {"app/kept": b"image", "app/new": b"agent"}
    assert statuses(again) == ["ok", "missing", "empty", "missing"]
    assert other.read("/app/old") is None
    assert other.read("/conf") is None


def test_nothing_is_hidden_that_the_image_does_not_have(world):
    seal = world.seal("/app/none", "/none")
    assert tree(world.restored(seal)) == {}


def test_what_a_sealed_folder_lacks_needs_no_trace_of_its_own(world):
    world.put("app/gone/x", layer=world.image)
    world.put("app/file", layer=world.image)
    world.put("app/kept")
    world.whiteout("app/gone")
    world.whiteout("app/file")
    folder = world.restored(world.seal("/app", "/app/gone", "/app/file"))
    assert list(tree(folder)) == ["app", "app/kept"]
    assert os.getxattr(folder / "app", OPAQUE) == b"y"


def test_the_same_file_may_be_sealed_at_two_places(world):
    world.put("app/sub/x", "1")
    folder = world.restored(world.seal(ArtifactPath("/app", "one"), ArtifactPath("/app/sub", "two")))
    assert [name for name in tree(folder) if "x" in name] == ["app/sub/x"]


def forged(**changes):
    entry = {
        "source": "/app",
        "destination": "app",
        "exclude": [],
        "service": "main",
        "status": "ok",
        "kind": "directory",
        "members": [],
    } | changes
    return read_manifest(json.dumps({"version": 1, "entries": [entry], "refusals": []}).encode())


def file(path):
    return {"kind": "file", "path": path, "size": 1, "mode": 420, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "/../x"},
        {"source": "x"},
        {"members": [file("../x")]},
        {"members": [file("app/../../x")]},
        {"members": [file("app/../x")]},
        {"members": [file("/x")]},
        {"members": [file("other/x")]},
        {"members": [file("app")]},
        {"members": [file("app/x"), file("app/x/y")]},
        {"members": [{"kind": "link", "path": "app/l", "target": "/etc"}]},
        {"members": [{"kind": "link", "path": "app/l", "target": "../x"}]},
        {
            "members": [
                {"kind": "link", "path": "app/l", "target": "."},
                {"kind": "link", "path": "app/m", "target": "l/.."},
            ]
        },
        {"members": [{"kind": "link", "path": "app/l", "target": "sub"}, file("app/l/x")]},
        {"members": [file("app/x"), {"kind": "link", "path": "app/x", "target": "y"}]},
        {"kind": "file", "members": [file("app/x")]},
        {"kind": None, "members": [file("app/x")]},
    ],
)
def test_a_forged_manifest_is_refused_and_writes_nothing_outside(tmp_path, changes):
    folder = _folder(_folder(tmp_path / "outer") / "layer")
    with pytest.raises(ValueError, match=r".+"):
        restore(forged(**changes), lambda sha256, fd: _write(fd, b"x"), folder)
    assert list((tmp_path / "outer").iterdir()) == [folder]


def test_a_blob_that_cannot_be_had_ends_the_restoring(world):
    world.put("a")
    manifest = read_manifest(world.seal("/a").manifest)

    def lost(sha256, descriptor):
        raise LookupError(sha256)

    with pytest.raises(LookupError):
        restore(manifest, lost, _folder(world.folder / "restored"))


# Single files


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


# In a real sandbox


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
        name, lambda folder: restore(manifest, lambda sha256, fd: _write(fd, world.blobs[sha256]), folder)
    )
    verifier = await new_box(name=name, layers=(layer,), inputs=(restored,))
    seen = await verifier.sh("cd /app; find . -type f | sort; cat inside changed closed; test -e gone || test -e /conf")
    assert seen.exit_code == 1
    lines = seen.stdout_tail.decode().splitlines()
    assert lines[: len(files)] == sorted(files)
    assert lines[len(files) :] == ["new", "changed", "kept"]
    again = await verifier.sandbox.seal(paths, SealLimits(), world.store)
    assert [member.path for member in again.entries[0].members] == [member.path for member in seal.entries[0].members]


def _image(folder: Path) -> None:
    for name in ("gone", "tree/old", "changed", "closed", "same"):
        path = folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept\n")
    (folder / "conf").write_text("original\n")


async def test_a_fifo_does_not_block_the_loop(world):
    os.mkfifo(world.upper / "pipe")
    seal = await asyncio.wait_for(asyncio.to_thread(world.seal, "/pipe"), 5)
    assert refusals(seal) == [("pipe", "NOT_A_FILE")]
