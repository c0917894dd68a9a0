"""The golden vectors, the example tasks, and what may not change a digest."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbar.datasets.digests import dataset_digest, digest_of, manifest_sha256, task_digest
from tollbar.datasets.packing import pack_task, task_files, unpack_task, write_files
from tollbar.datasets.tree import read_folder

GOLDEN_DIGEST = "sha256:e54921c9564da785d92fa1991aaf14cecc0fbc3808012ef265792f0fa30ee2cb"


def _examples(folder):
    rows = re.findall(
        r"^\| (\S+/\S+) \|.*\| (\d+) of (\d+) \| `([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 11
    return rows


@pytest.mark.requirement("G-EVAL-21.2")
def test_the_golden_task_has_its_digest(golden):
    assert task_digest(golden) == GOLDEN_DIGEST


def test_names_are_sorted_by_code_point(golden):
    more = {**golden, "tests/Z.txt": b"1", "tests/a.txt": b"1", "tests/é.txt": b"1"}
    assert task_digest(more) == "sha256:d6fe5b5f7867394e7f6489a6c6916f7eccee573d2254368cf9d03a41cff8bd8f"


@pytest.mark.requirement("G-EVAL-21.2", "G-EVAL-18.33")
@pytest.mark.parametrize(
    "path", ["LICENSE", "tests/x.pyc", "tests/__pycache__/a", "notes/a.md", "solution/.DS_Store", "tests/.harborignore"]
)
def test_files_outside_the_scope_change_nothing(golden, path):
    assert task_digest({**golden, path: b""}) == GOLDEN_DIGEST


@pytest.mark.requirement("G-EVAL-18.33")
def test_an_edit_of_the_readme_changes_the_digest(golden):
    assert task_digest({**golden, "README.md": b"x"}) != GOLDEN_DIGEST


def test_a_gitignore_at_the_root_replaces_the_default_rules(golden):
    ignoring = {**golden, ".gitignore": b"*.log\n!keep.log\n"}
    assert task_digest({**ignoring, "tests/a.log": b""}) == GOLDEN_DIGEST
    assert task_digest({**ignoring, "tests/keep.log": b""}) != GOLDEN_DIGEST
    assert task_digest({**ignoring, "tests/x.pyc": b""}) != GOLDEN_DIGEST


def test_nested_ignore_files_add_rules_and_the_later_rule_wins(golden):
    files = {**golden, "tests/.harborignore": b"*.dat\ndata/\n", "tests/sub/.harborignore": b"!keep.dat\n"}
    assert task_digest({**files, "tests/a.dat": b"", "tests/sub/a.dat": b"", "tests/data/x": b""}) == GOLDEN_DIGEST
    assert task_digest({**files, "tests/sub/keep.dat": b""}) != GOLDEN_DIGEST
    inside = {**files, "tests/data/.harborignore": b"!x\n", "tests/data/x": b""}
    assert task_digest(inside) == GOLDEN_DIGEST


def test_ignore_files_count_only_in_tests_and_solution(golden):
    assert task_digest({**golden, "environment/.harborignore": b"*\n"}) == GOLDEN_DIGEST
    assert task_digest({**golden, "steps/one/tests/.harborignore": b"*\n", "steps/one/tests/x": b""}) == GOLDEN_DIGEST
    assert task_digest({**golden, "steps/one/.harborignore": b"*\n", "steps/one/x": b""}) != GOLDEN_DIGEST


@pytest.mark.requirement("G-EVAL-21.2")
def test_the_example_tasks_have_the_digests_of_their_list(examples):
    for path, counted, present, digest in _examples(examples):
        tree = read_folder(examples / path)
        assert task_digest(tree.files) == f"sha256:{digest}", path
        assert int(counted) <= int(present) == len(tree.files)


def test_the_example_sets_have_their_dataset_digests(examples):
    rows = _examples(examples)
    for group, expected in {
        "jacobian": "7eb8b8cad860a415f8482347600b45695b305f26cc2fe2ea49a9e4668b29b694",
        "harbor-cookbook": "d31ac28386fa06b7d7862f86468a423ae2594c09f02d333684f659700bb52534",
    }.items():
        assert dataset_digest(digest for path, _, _, digest in rows if path.startswith(group)) == expected


def test_the_dataset_digest_covers_tasks_and_files_alone():
    tasks = [GOLDEN_DIGEST, "sha256:0118da25cb7448a26e0ee4d1461bea8568c88b19bfec86c97c3278dbc28de58c"]
    files = {"metric.py": "sha256:cc42155088fca5730758db72b2a5bca33112a941dfaa2d43098ec422ce4ea213"}
    assert dataset_digest(tasks) == "d6eac857b05d6b27a8cc336fa5a767ae5ce2bdbf52d0936428c5b4941e6c5ed4"
    assert dataset_digest(tasks[::-1], files) == "f418f9f12554ba969db43068914d48f8f7d10c41f9f46281192e73ea17853d41"
    assert dataset_digest(tasks[:1]) == "27da63a19200ccce2ee5f09b1bebd1558f9fecfd0af5ffb87d9b37b8504436c9"


def test_the_golden_manifest_has_its_hash():
    manifest = {
        "schema": "tollbar.dataset/v1",
        "name": "demo/golden",
        "version": "1",
        "type": "environment",
        "tasks": [{"name": "demo/hello", "digest": GOLDEN_DIGEST, "split": "test"}],
        "files": [],
        "configs": {},
        "default_config": None,
        "threshold": "1",
        "weights": {},
        "default_profile": None,
    }
    assert manifest_sha256(manifest) == "f2d7da82b0e30178ecc0941254d64c437f017b04f1b2a3502224c60eb72b4d13"


NAMES = st.from_regex(r"(tests|environment|solution)/[a-zA-Z0-9]{1,6}(/[a-zA-Z]{1,4})?", fullmatch=True)
FILES = st.dictionaries(NAMES, st.binary(max_size=20), min_size=1, max_size=6)


@pytest.mark.requirement("G-EVAL-21.2")
@given(FILES, st.randoms(use_true_random=False))
def test_the_order_of_a_listing_never_changes_a_digest(files, random):
    shuffled = list(files.items())
    random.shuffle(shuffled)
    assert task_digest(dict(shuffled)) == task_digest(files)


@pytest.mark.requirement("G-EVAL-21.2")
@given(FILES, st.data())
def test_any_byte_of_a_counted_file_changes_the_digest(files, data):
    path = data.draw(st.sampled_from(sorted(files)))
    assert task_digest({**files, path: files[path] + b"\0"}) != task_digest(files)
    assert task_digest({**files, path + "x": b""}) != task_digest(files)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}(/[é-ú ]{1,130}){0,2}", fullmatch=True), st.binary(max_size=99)))
def test_a_packed_task_comes_back_and_equal_files_pack_to_equal_bytes(files):
    prefixes = {path[:index] for path in files for index, char in enumerate(path) if char == "/"}
    files = {path: data for path, data in files.items() if path not in prefixes}
    packed = pack_task(files)
    assert task_files(packed) == files
    assert pack_task(dict(reversed(files.items()))) == packed


def test_unpacking_makes_scripts_executable_and_keeps_bytes(golden, tmp_path):
    golden["tests/tool"] = b"#!/bin/sh\n"
    unpack_task(pack_task(golden), tmp_path / "task")
    modes = {path: (tmp_path / "task" / path).stat().st_mode & 0o777 for path in golden}
    assert modes == {path: 0o755 if path.endswith(".sh") or path == "tests/tool" else 0o644 for path in golden}
    assert read_folder(tmp_path / "task").files == golden
    assert digest_of(read_folder(tmp_path / "task").files) == task_digest(golden)


def test_one_folder_of_a_task_can_be_written_alone(golden, tmp_path):
    write_files(golden, tmp_path / "tests", below="tests")
    assert sorted(read_folder(tmp_path).files) == ["tests/test.sh"]


def test_writing_never_follows_a_link(golden, tmp_path):
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "task.toml").symlink_to(tmp_path / "outside")
    write_files(golden, tmp_path / "task")
    assert (tmp_path / "outside").read_text() == "kept"
    with pytest.raises(ValueError, match="not a relative path"):
        write_files({"../x": b""}, tmp_path / "task")
