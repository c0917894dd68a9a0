"""The demo datasets that the product brings: read strictly, and free of everything that needs more than a shell."""

from __future__ import annotations

import importlib.resources
import re

import pytest

from tollbar.datasets.content import Dataset, load_dataset
from tollbar.datasets.network import NetworkMode
from tollbar.datasets.taskmodel import VerifierMode
from tollbar.datasets.tree import read_folder

DEMO = importlib.resources.files("tollbar.app") / "demo"


def _load(folder: str, name: str) -> Dataset:
    return load_dataset(read_folder(DEMO / folder), name=name, version="1", problems=[])


@pytest.fixture(params=[("hello-world", "tests/hello-world"), ("mini", "demo/mini")], ids=["hello-world", "mini"])
def dataset(request) -> Dataset:
    return _load(*request.param)


def test_hello_world_is_one_task():
    assert [entry.task.name for entry in _load("hello-world", "tests/hello-world").tasks] == ["tests/hello-world"]


def test_mini_has_six_tasks_in_two_splits_and_one_of_them_is_shared():
    mini = _load("mini", "demo/mini")
    assert mini.splits == {"dev": 2, "test": 4}
    modes = [entry.task.verifier_mode() for entry in mini.tasks]
    assert (len(modes), modes.count(VerifierMode.SHARED)) == (6, 1)


def test_every_task_is_small_offline_and_has_a_solution(dataset):
    for entry in dataset.tasks:
        task = entry.task
        assert (task.config.environment.cpus, task.config.environment.memory_mb) == (1, 256)
        assert (task.agent_timeout_s(), task.verifier_timeout_s()) == (30.0, 30.0)
        assert task.config.environment.network.mode is NetworkMode.NO_NETWORK
        assert task.has_solution()
        assert task.instruction_of().canary_lines_removed == 0


def test_a_separate_verifier_has_its_own_image_and_a_declared_artifact(dataset):
    for entry in dataset.tasks:
        if entry.task.verifier_mode() is VerifierMode.SEPARATE:
            assert entry.task.verifier_image().has_tests
            assert len(entry.task.artifacts()) == 2


def test_images_need_no_build_step_and_scripts_need_only_a_shell(dataset):
    for entry in dataset.tasks:
        for path, data in entry.files.items():
            if path.endswith("Dockerfile"):
                words = {line.split()[0] for line in data.decode().splitlines() if line.strip()}
                assert words <= {"FROM", "WORKDIR", "COPY", "ENV", "LABEL"}, path
            if path.endswith(".sh"):
                assert data.startswith(b"#!/bin/sh\n"), path
                assert not re.search(rb"\b(python3?|perl|awk|curl|apt-get)\b", data), path
