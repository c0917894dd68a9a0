"""Datasets as folders: `dataset.toml`, plain folders, single tasks, registries; and every problem at once."""

from __future__ import annotations

import json

import pytest

from tollbar.datasets.archive import read_upload
from tollbar.datasets.content import Dataset, load_dataset
from tollbar.datasets.digests import task_digest
from tollbar.datasets.digestupdate import update_digests
from tollbar.datasets.errors import UnsupportedTaskFormat
from tollbar.datasets.problems import Problem
from tollbar.datasets.tree import Tree, read_folder

HEAD = 'schema_version = "1.0"\n[dataset]\nname = "team/set"\n'


@pytest.fixture
def folder(golden):
    """Makes a dataset folder: tasks by folder name, each the golden task with its own instruction."""

    def make(*names: str, toml: str | None = None, **files: bytes) -> dict[str, bytes]:
        whole = {f"{name}/{path}": data for name in names for path, data in golden.items()}
        for name in names:
            whole[f"{name}/instruction.md"] = f"Do {name}.\n".encode()
            whole[f"{name}/task.toml"] = f'[task]\nname = "team/{name}"\n'.encode()
        if toml is not None:
            whole["dataset.toml"] = toml.encode()
        return whole | {name.replace("__", "/"): data for name, data in files.items()}

    return make


def digest_in(files: dict[str, bytes], name: str) -> str:
    return task_digest({path.removeprefix(f"{name}/"): data for path, data in files.items() if path.startswith(name)})


@pytest.fixture
def listed(folder):
    """Makes a dataset folder whose `dataset.toml` lists every task with its digest."""

    def make(*names: str, more: str = "", head: str = HEAD) -> dict[str, bytes]:
        files = folder(*names)
        entries = "".join(f'[[tasks]]\nname = "team/{name}"\ndigest = "{digest_in(files, name)}"\n' for name in names)
        return folder(*names, toml=head + entries + more)

    return make


def load(files: dict[str, bytes], name: str = "team/set", version: str | None = "1") -> Dataset:
    return load_dataset(Tree(files), name=name, version=version, problems=[])


def problems_of(files: dict[str, bytes], name: str = "team/set", version: str | None = "1") -> list[Problem]:
    with pytest.raises(UnsupportedTaskFormat) as refused:
        load(files, name, version)
    return list(refused.value.problems)


def test_a_folder_without_dataset_toml_is_all_its_tasks_by_name(folder):
    files = folder("b", "a")
    files["README.md"] = b"not a task"
    files["c/deep/task.toml"] = b""
    files |= {f"c/deep/{path.partition('/')[2]}": data for path, data in folder("x").items() if "toml" not in path}
    dataset = load(files)
    assert [entry.task.name for entry in dataset.tasks] == ["team/a", "team/b", "team/deep"]
    assert (dataset.splits, dataset.configs, dataset.threshold, dataset.files) == ({}, {}, "1", {})


def test_a_folder_that_is_one_task_is_a_dataset_of_it(golden):
    dataset = load(golden, "team/hello")
    assert [entry.task.name for entry in dataset.tasks] == ["team/hello"]
    assert dataset.tasks[0].task.digest == "sha256:e54921c9564da785d92fa1991aaf14cecc0fbc3808012ef265792f0fa30ee2cb"


def test_a_file_named_task_toml_inside_a_task_is_no_other_task(folder):
    files = folder("a")
    files["a/environment/fixture/task.toml"] = b"= broken"
    assert len(load(files).tasks) == 1


def test_an_archive_of_the_folder_itself_is_unwrapped(listed, tar):
    archive = tar({f"set/{path}": data for path, data in listed("a").items()})
    assert len(load_dataset(read_upload(archive, []), name="team/set", version="1", problems=[]).tasks) == 1


def test_dataset_toml_gives_splits_configs_weights_threshold_files_and_profile(listed):
    more = """
[[files]]
path = "metric.py"
[metadata]
anything = true
[metadata.tollbar]
default_config = "small"
pass_threshold = "0.50"
default_profile = "team/claude"
[metadata.tollbar.splits]
dev = ["team/a"]
test = ["team/b*"]
later = []
[metadata.tollbar.configs]
small = ["team/b1", "team/a"]
[metadata.tollbar.weights]
style = "2.0"
"""
    head = HEAD + 'version = "1"\ndescription = "D"\nauthors = [{name = "Ana Ruiz"}]\nkeywords = ["k"]\n'
    files = listed("a", "b1", "b2", "c", more=more, head=head) | {"metric.py": b"print(1)\n"}
    dataset = load(files, version=None)
    assert dataset.version == "1"
    assert {entry.task.name: entry.split for entry in dataset.tasks} == {
        "team/a": "dev",
        "team/b1": "test",
        "team/b2": "test",
        "team/c": None,
    }
    assert dataset.splits == {"dev": 1, "test": 2, "later": 0}
    assert dataset.configs == {"small": ("team/a", "team/b1")}
    assert (dataset.default_config, dataset.threshold, dataset.weights) == ("small", "0.5", {"style": "2"})
    assert (dataset.default_profile, dataset.description, dataset.authors) == ("team/claude", "D", ("Ana Ruiz",))
    assert dataset.manifest()["files"] == [
        {"path": "metric.py", "digest": "sha256:cc42155088fca5730758db72b2a5bca33112a941dfaa2d43098ec422ce4ea213"}
    ]


def test_the_golden_manifest_is_what_a_dataset_gives(golden):
    toml = (
        '[dataset]\nname = "demo/golden"\n[[tasks]]\nname = "demo/hello"\n'
        'digest = "sha256:e54921c9564da785d92fa1991aaf14cecc0fbc3808012ef265792f0fa30ee2cb"\n'
        '[metadata.tollbar.splits]\ntest = ["demo/*"]\n'
    )
    files = {f"hello/{path}": data for path, data in golden.items()} | {"dataset.toml": toml.encode()}
    dataset = load(files, "demo/golden")
    assert dataset.manifest_sha256() == "f2d7da82b0e30178ecc0941254d64c437f017b04f1b2a3502224c60eb72b4d13"
    assert dataset.digest() == "sha256:27da63a19200ccce2ee5f09b1bebd1558f9fecfd0af5ffb87d9b37b8504436c9"


# Refusals


@pytest.mark.requirement("G-EVAL-17.all_problems", "G-EVAL-21.3")
def test_five_faults_in_one_upload_are_five_problems(listed, tar):
    files = listed("a", "b", "c", "d")
    files["a/task.toml"] = b"[agent\n"
    files["b/task.toml"] = b'[task]\nname = "team/b"\n[agent]\ntimeout = 5\n[verifier]\ntimeout_sec = -1\n'
    del files["c/instruction.md"]
    files["d/instruction.md"] = b"changed\n"
    dataset_toml = files["dataset.toml"].decode()
    archive = tar(files)
    problems: list[Problem] = []
    with pytest.raises(UnsupportedTaskFormat) as refused:
        load_dataset(read_upload(archive, problems), name="team/set", version="1", problems=problems)
    line = dataset_toml.split("\n").index('name = "team/d"') + 2
    assert sorted((problem.file, problem.key, problem.line) for problem in refused.value.problems) == sorted(
        [
            ("a/task.toml", None, 1),
            ("b/task.toml", "agent.timeout", 4),
            ("b/task.toml", "verifier.timeout_sec", 6),
            ("c/instruction.md", None, None),
            ("dataset.toml", "tasks[3].digest", line),
        ]
    )
    body = refused.value.body()
    assert (refused.value.status, body["code"], body["problem_count"]) == (422, "UNSUPPORTED_TASK_FORMAT", 5)
    assert len(body["problems"]) == 5


@pytest.mark.requirement("G-EVAL-17.broken_folder", "G-EVAL-18.37", "G-EVAL-21.3")
def test_a_broken_task_beside_a_good_one_is_refused_and_never_left_out(folder):
    files = folder("good", "bad")
    files["bad/task.toml"] = b"= broken"
    assert [problem.file for problem in problems_of(files)] == ["bad/task.toml"]


def test_a_refused_member_of_the_archive_is_listed_with_the_faults_of_the_files(folder, tar):
    files = folder("a")
    files["a/task.toml"] = b"unknown = 1\n"
    files["../outside"] = b""
    problems: list[Problem] = []
    with pytest.raises(UnsupportedTaskFormat) as refused:
        load_dataset(read_upload(tar(files), problems), name="team/set", version="1", problems=problems)
    assert [(problem.file, problem.key) for problem in refused.value.problems] == [
        ("../outside", None),
        ("a/task.toml", "unknown"),
    ]


@pytest.mark.requirement("G-EVAL-17.digests", "G-EVAL-21.3")
def test_a_digest_that_differs_is_shown_with_the_right_one(listed):
    files = listed("a")
    files["a/README.md"] = b"edited"
    problem = problems_of(files)[0]
    assert problem.allowed == digest_in(files, "a")
    assert problem.found == digest_in(listed("a"), "a")


@pytest.mark.requirement("G-EVAL-17.digests", "G-EVAL-21.3")
def test_a_listed_task_needs_a_folder_and_a_folder_needs_to_be_listed(listed, folder):
    files = listed("a", "b")
    files = {path: data for path, data in files.items() if not path.startswith("b/")} | folder("c")
    found = problems_of(files)
    assert [(problem.file, problem.key) for problem in found] == [
        ("dataset.toml", "tasks[1].name"),
        ("c/task.toml", None),
    ]
    assert digest_in(files, "c") in found[1].message


@pytest.mark.requirement("G-EVAL-17.digests", "G-EVAL-21.3")
def test_two_folders_with_one_name_are_refused_with_both_digests(folder):
    files = folder("a", "b")
    files["b/task.toml"] = files["a/task.toml"]
    problem = problems_of(files)[0]
    assert problem.file == "b/task.toml"
    assert digest_in(files, "a") in problem.message
    assert digest_in(files, "b") in str(problem.found)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ('[metadata.tollbar]\nsplit = {dev = ["team/a"]}', "metadata.tollbar.split"),
        ('[metadata.tollbar.splits]\ndev = ["team/x*"]', "metadata.tollbar.splits.dev[0]"),
        ('[metadata.tollbar.splits]\ndev = ["team/a"]\ntest = ["team/*"]', "metadata.tollbar.splits.test[0]"),
        ('[metadata.tollbar.splits]\ndev = "team/a"', "metadata.tollbar.splits.dev"),
        ('[metadata.tollbar.configs]\nsmall = ["team/x"]', "metadata.tollbar.configs.small[0]"),
        ('[metadata.tollbar]\ndefault_config = "small"', "metadata.tollbar.default_config"),
        ("[metadata.tollbar]\npass_threshold = 0.5", "metadata.tollbar.pass_threshold"),
        ('[metadata.tollbar]\nweights = {a = "-1"}', "metadata.tollbar.weights.a"),
        ('[metadata.tollbar]\ndefault_profile = "claude"', "metadata.tollbar.default_profile"),
        ('[[files]]\npath = "a/b"', "files[0].path"),
        ('[[files]]\npath = "gone.py"', "files[0].path"),
        ('[[files]]\npath = "dataset.toml"', "files[0].path"),
        ("[[task]]", "task"),
        ('[[tasks]]\nname = "team/a"\ndigest = "sha256:00"', "tasks[1].digest"),
    ],
)
def test_a_wrong_key_of_dataset_toml_is_named(listed, more, key):
    assert key in [problem.key for problem in problems_of(listed("a", more=more))]


@pytest.mark.parametrize(
    ("head", "key"),
    [
        ('schema_version = "1.1"\n[dataset]\nname = "team/set"\n', "schema_version"),
        ('[dataset]\nname = "team/other"\n', "dataset.name"),
        ('[dataset]\nname = "set"\n', "dataset.name"),
        ('[dataset]\nname = "team/set"\nversion = "2"\n', "dataset.version"),
        ('[dataset]\nname = "team/set"\nauthors = ["Ana"]\n', "dataset.authors[0]"),
    ],
)
def test_name_and_version_of_dataset_toml_are_those_of_the_upload(listed, head, key):
    assert [problem.key for problem in problems_of(listed("a", head=head))] == [key]


@pytest.mark.requirement("G-EVAL-17.newer_schema", "G-EVAL-21.3")
def test_a_newer_schema_of_a_dataset_names_the_newest_readable_one(listed):
    (problem,) = problems_of(listed("a", head='schema_version = "1.1"\n[dataset]\nname = "team/set"\n'))
    assert problem.key == "schema_version"
    assert '"1.0"' in problem.message


@pytest.mark.parametrize("label", ["a@b", "a/b", "-a", "a..b", "0" * 64])
def test_a_label_that_could_be_something_else_is_refused(listed, label):
    files = listed("a", head=f'[dataset]\nname = "team/set"\nversion = "{label}"\n')
    assert [problem.key for problem in problems_of(files, version=None)] == ["dataset.version"]


def test_a_version_must_be_named_somewhere(folder):
    assert [problem.key for problem in problems_of(folder("a"), version=None)] == ["dataset.version"]


def test_an_upload_without_a_task_is_refused(folder):
    assert [problem.file for problem in problems_of({"README.md": b""})] == ["task.toml"]


def test_a_task_beside_dataset_toml_is_refused(listed, golden):
    assert problems_of(listed() | golden)[0].file == "task.toml"


# registry.json


def test_a_registry_names_the_tasks_of_one_version(folder):
    registry = [
        {"name": "other", "version": "1", "description": "", "tasks": []},
        {
            "name": "set",
            "version": "1",
            "description": "D",
            "tasks": [{"name": "a", "path": "./a"}],
            "metrics": [{"type": "mean", "kwargs": {}}],
        },
    ]
    files = folder("a", "b") | {"registry.json": json.dumps(registry).encode()}
    dataset = load(files)
    assert [entry.task.name for entry in dataset.tasks] == ["team/a"]
    assert dataset.description == "D"


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"tasks": [{"name": "a", "path": "../a"}]}, "[0].tasks[0].path"),
        ({"tasks": [{"name": "a", "path": "a", "git_url": "u"}]}, "[0].tasks[0].git_url"),
        ({"tasks": [{"name": "a", "path": "gone"}]}, None),
        ({"tasks": [], "metrics": [{"type": "median"}]}, "[0].metrics[0].type"),
        ({"tasks": [], "extra": 1}, "[0].extra"),
    ],
)
def test_a_wrong_entry_of_a_registry_is_named(folder, entry, key):
    registry = [{"name": "set", "version": "1", "description": ""} | entry]
    found = problems_of(folder("a") | {"registry.json": json.dumps(registry).encode()})
    assert [(problem.file, problem.key) for problem in found] == [("registry.json", key)]


@pytest.mark.requirement("G-EVAL-17.parse", "G-EVAL-21.3")
def test_a_registry_that_is_no_json_is_placed(folder):
    problem = problems_of(folder("a") | {"registry.json": b'[\n{"name": }]'})[0]
    assert (problem.file, problem.line) == ("registry.json", 2)
    assert "line 2, column 10" in problem.message


def test_an_ignore_file_that_is_no_list_of_patterns_is_placed(folder):
    found = problems_of(folder("a", **{"a__.gitignore": b"*.log\n!\n", "a__tests__.harborignore": b"\xff"}))
    assert [(problem.file, problem.line) for problem in found] == [
        ("a/tests/.harborignore", None),
        ("a/.gitignore", 2),
    ]


def test_a_registry_of_another_shape_says_which_shape_was_expected(examples):
    with pytest.raises(UnsupportedTaskFormat) as refused:
        load_dataset(read_folder(examples / "harbor-cookbook"), name="team/set", version="1", problems=[])
    problem = refused.value.problems[0]
    assert (problem.file, problem.found) == ("registry.json", "an object")
    assert "a list of {name, version, description, tasks" in problem.message


@pytest.mark.requirement("G-EVAL-21.1")
def test_the_example_sets_are_read_whole(examples):
    jacobian = load_dataset(read_folder(examples / "jacobian"), name="x/jacobian", version="1", problems=[])
    assert jacobian.digest() == "sha256:7eb8b8cad860a415f8482347600b45695b305f26cc2fe2ea49a9e4668b29b694"
    cookbook = read_folder(examples / "harbor-cookbook")
    files = {path: data for path, data in cookbook.files.items() if path != "registry.json"}
    names = [entry.task.name for entry in load(files, "x/cookbook").tasks]
    assert names == ["harbor/hello-multi-step-full", "x/mcp-tools", "x/multi-reward", "x/simple-task", "x/skills"]


# Digests that are brought up to date


def test_digests_are_rewritten_in_place_and_the_changes_are_told(listed):
    files = listed("a", "b", more='# the end\n[[files]]\npath = "m.py"\ndigest = "sha256:' + "0" * 64 + '" # old\n')
    files |= {"m.py": b"", "b/README.md": b"new"}
    old = files["dataset.toml"].decode()
    update = update_digests(Tree(files))
    assert [(change.name, change.new) for change in update.changes] == [
        ("team/b", digest_in(files, "b")),
        ("m.py", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ]
    changed = [line for line, other in zip(update.text.split("\n"), old.split("\n"), strict=True) if line != other]
    assert len(changed) == 2
    assert changed[1].endswith("# old")
    assert load(files | {"dataset.toml": update.text.encode()}).tasks[1].task.name == "team/b"


def test_digests_that_are_right_change_nothing(listed):
    files = listed("a")
    update = update_digests(Tree(files))
    assert (update.text.encode(), update.changes) == (files["dataset.toml"], ())


def test_digests_of_a_broken_task_cannot_be_rewritten(listed):
    files = listed("a") | {"a/task.toml": b"broken"}
    with pytest.raises(UnsupportedTaskFormat):
        update_digests(Tree(files))
