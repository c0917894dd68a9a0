"""What a submission names: selectors, `dataset_ref`, `task_ref`, and every way in which they can miss."""

from __future__ import annotations

import pytest

from tollbar.access.principal import system_principal
from tollbar.datasets import service
from tollbar.datasets.digests import task_digest
from tollbar.datasets.errors import DatasetNotFound
from tollbar.datasets.selectors import read_selector
from tollbar.kit.paging import page_request

ACTOR = system_principal("ws_a", "prj_a")
STRANGER = system_principal("ws_x", "prj_x")
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
async def catalogue(database, blobs, clock, golden, tmp_path):
    """`team/set@1` and `@2` (two configs, two splits, three tasks) and `team/solo@1` (one config)."""
    toml = {name: f'[task]\nname = "team/{name}"\n'.encode() for name in ("a", "b", "c")}
    toml["c"] += b'[metadata.tollbar]\npass_threshold = "0.5"\nweights = {style = "2"}\n'
    tasks = {name: {**golden, "task.toml": toml[name]} for name in toml}
    listing = "".join(
        f'[[tasks]]\nname = "team/{name}"\ndigest = "{task_digest(files)}"\n' for name, files in tasks.items()
    )
    splits = '[metadata.tollbar.splits]\ntest = ["team/a", "team/b"]\nempty = []\n[metadata.tollbar.configs]\n'
    head = '[dataset]\nname = "team/{}"\n'
    own = '[metadata.tollbar]\npass_threshold = "0.9"\nweights = {style = "1"}\ndefault_profile = "team/claude"\n'
    shown = {}
    for name, version, rest in [
        (
            "set",
            "1",
            own + 'default_config = "small"\n' + splits + 'small = ["team/a"]\nlarge = ["team/b", "team/c"]\n',
        ),
        ("set", "2", own + splits + 'small = ["team/a"]\nlarge = ["team/b", "team/c"]\n'),
        ("solo", "1", '[metadata.tollbar.configs]\nonly = ["team/b"]\n'),
    ]:
        folder = tmp_path / f"{name}{version}"
        for task, files in tasks.items():
            for path, data in files.items():
                (folder / task / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / task / path).write_bytes(data)
        (folder / "dataset.toml").write_text(head.format(name) + listing + rest)
        async with database.transaction() as session:
            shown[f"{name}@{version}"], _ = await service.publish_folder(
                session,
                ACTOR,
                folder=folder,
                name=f"team/{name}",
                version=version,
                visibility="private",
                blobs=blobs,
                clock=clock,
            )
    return shown


@pytest.fixture
def select(database, catalogue):
    async def select_it(source, actor=ACTOR):
        async with database.session() as session:
            return await service.select(session, actor, source)

    return select_it


def ids(selection):
    return [task.task_id for task in selection.tasks]


@pytest.mark.parametrize(
    ("dataset", "version", "tasks"),
    [
        ("team/set@1", "1", ["a"]),
        ({"name": "team/set", "version": "1"}, "1", ["a"]),
        ({"name": "set", "namespace": "team", "version": "1"}, "1", ["a"]),
        ({"name": "team/set", "namespace": "team", "version": "1"}, "1", ["a"]),
        ({"name": "team/set", "version": "1", "config": None, "split": None}, "1", ["a"]),
        ({"name": "team/set", "version": "1", "config": "large"}, "1", ["b", "c"]),
        ({"name": "team/set", "config": "large"}, "2", ["b", "c"]),
        ({"name": "team/set", "version": "1", "config": "large", "split": "test"}, "1", ["b"]),
        ({"name": "team/set", "version": "1", "task_id": "c"}, "1", ["c"]),
        ({"name": "team/set", "version": "1", "task_id": "team/c"}, "1", ["c"]),
        ({"name": "team/set", "version": "1", "task_id": "b", "split": "test"}, "1", ["b"]),
        ("team/solo", "1", ["b"]),
    ],
)
async def test_a_selector_means_one_version_and_some_tasks(select, dataset, version, tasks):
    selection = await select({"dataset": dataset})
    assert (selection.version, ids(selection)) == (version, tasks)


async def test_a_version_can_be_named_by_its_revision(select, catalogue):
    revision = catalogue["set@1"]["revision"]
    for dataset in (
        f"team/set@{revision}",
        {"name": "team/set", "revision": revision},
        {"name": "team/set", "revision": "1"},
        {"name": "team/set", "revision": revision, "version": "1"},
    ):
        assert (await select({"dataset": dataset})).version == "1"


async def test_a_selection_freezes_what_a_job_needs(select, catalogue):
    selection = await select({"dataset": {"name": "team/set", "version": "1", "config": "large"}})
    assert selection.dataset_ref() == {
        "kind": "dataset",
        "name": "team/set",
        "version": "1",
        "manifest_sha256": catalogue["set@1"]["manifest_sha256"],
    }
    assert selection.selection == {"config": "large", "split": None, "task_id": None}
    assert (selection.threshold, selection.weights, selection.default_profile) == (0.9, {"style": 1.0}, "team/claude")
    first, second = selection.tasks
    assert (first.threshold, first.weights, first.split) == (0.9, {"style": 1.0}, "test")
    assert (second.threshold, second.weights, second.split) == (0.5, {"style": 2.0}, None)
    assert second.needs["verifier_mode"] == "shared"


async def test_references_can_be_submitted_as_they_are(select, database):
    selection = await select({"dataset": "team/set@1"})
    assert await select({"dataset_ref": selection.dataset_ref()}) == selection
    async with database.session() as session:
        page = page_request(10, None, scope={})
        tasks = (await service.tasks_page(session, ACTOR, "team/set", "1", page)).items
    for item in tasks:
        assert ids(await select({"task_ref": item["task_ref"]})) == [item["task_id"]]
        assert (await select({"task_ref": item["task_ref"]})).selection["task_id"] == item["task_id"]


@pytest.mark.parametrize(
    ("source", "code", "status"),
    [
        ({"dataset": "team/none@1"}, "DATASET_NOT_FOUND", 404),
        ({"dataset": "team/none"}, "DATASET_NOT_FOUND", 404),
        ({"dataset": "team/set@9"}, "DATASET_REVISION_NOT_FOUND", 404),
        ({"dataset": {"name": "team/set", "revision": "a" * 64}}, "DATASET_REVISION_NOT_FOUND", 404),
        ({"dataset": {"name": "team/set", "version": "1", "task_id": "z"}}, "TASK_MEMBER_NOT_FOUND", 404),
        ({"dataset": {"name": "team/set", "version": "1", "split": "train"}}, "DATASET_SELECTION_NOT_FOUND", 404),
        ({"dataset": {"name": "team/set", "version": "1", "split": "empty"}}, "DATASET_SELECTION_NOT_FOUND", 404),
        ({"dataset": {"name": "team/set", "version": "1", "config": "huge"}}, "DATASET_SELECTION_NOT_FOUND", 404),
        (
            {"dataset": {"name": "team/set", "version": "1", "task_id": "c", "split": "test"}},
            "DATASET_SELECTION_NOT_FOUND",
            404,
        ),
        ({"dataset": "team/set"}, "DATASET_CONFIG_REQUIRED", 422),
        ({"dataset": {"name": "team/set", "version": "1", "revision": "2"}}, "INVALID_DATASET_SELECTOR", 422),
        (
            {"dataset_ref": {"name": "team/set", "version": "1", "manifest_sha256": "a" * 64}},
            "DATASET_MANIFEST_CONFLICT",
            409,
        ),
        (
            {"task_ref": {"dataset": "team/set", "version": "1", "task_id": "a", "digest": DIGEST}},
            "DATASET_MANIFEST_CONFLICT",
            409,
        ),
        (
            {"task_ref": {"dataset": "team/set", "version": "1", "task_id": "z", "digest": DIGEST}},
            "TASK_MEMBER_NOT_FOUND",
            404,
        ),
    ],
)
async def test_what_is_not_found_has_its_own_code(select, source, code, status):
    with pytest.raises(Exception) as refused:
        await select(source)
    assert (getattr(refused.value, "code", None), getattr(refused.value, "status", None)) == (code, status)


async def test_another_projects_private_dataset_is_not_found(select):
    with pytest.raises(DatasetNotFound):
        await select({"dataset": "team/set@1"}, STRANGER)


async def test_a_config_that_is_required_names_those_there_are(select):
    with pytest.raises(Exception, match="several configs") as refused:
        await select({"dataset": "team/set@2"})
    assert refused.value.facts["configs"] == ["large", "small"]


GOOD_REF = {"kind": "dataset", "name": "team/set", "version": "1", "manifest_sha256": "a" * 64}
GOOD_TASK = {"kind": "task", "dataset": "team/set", "version": "1", "task_id": "a", "digest": DIGEST}


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"dataset": None},
        {"dataset": "team/set", "task_ref": GOOD_TASK},
        {"dataset": ""},
        {"dataset": "set@1"},
        {"dataset": "team/set@"},
        {"dataset": 1},
        {"dataset": ["team/set"]},
        {"dataset": {}},
        {"dataset": {"name": "set"}},
        {"dataset": {"name": "team/set", "namespace": "other"}},
        {"dataset": {"name": "team/set", "version": 1}},
        {"dataset": {"name": "team/set", "version": ""}},
        {"dataset": {"name": "team/set", "tasks": "a"}},
        {"dataset_ref": "team/set@1"},
        {"dataset_ref": {**GOOD_REF, "kind": "task"}},
        {"dataset_ref": {**GOOD_REF, "manifest_sha256": "abc"}},
        {"dataset_ref": {"name": "team/set", "version": "1"}},
        {"dataset_ref": {**GOOD_REF, "split": "test"}},
        {"task_ref": {**GOOD_TASK, "digest": "a" * 64}},
        {"task_ref": {**GOOD_TASK, "task_id": None}},
    ],
)
def test_what_is_no_single_well_formed_selector_is_refused(source):
    with pytest.raises(Exception, match="selector is not valid") as refused:
        read_selector(source)
    assert (refused.value.code, refused.value.status) == ("INVALID_DATASET_SELECTOR", 422)


def test_a_reference_needs_no_kind():
    assert read_selector({"dataset_ref": {k: v for k, v in GOOD_REF.items() if k != "kind"}}).name == "team/set"
