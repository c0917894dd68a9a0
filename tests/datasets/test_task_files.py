"""What a task folder must hold, and what follows from it: modes, images, limits, variables, artifacts."""

from __future__ import annotations

import pytest

from tollbar.datasets.artifactlist import ArtifactEntry
from tollbar.datasets.instruction import Instruction, read_instruction
from tollbar.datasets.network import NetworkMode
from tollbar.datasets.problems import Problem
from tollbar.datasets.taskfile import ImagePlan, read_task
from tollbar.datasets.taskmodel import VerifierMode
from tollbar.datasets.taskneeds import needs
from tollbar.datasets.tree import Tree, read_folder
from tollbar.datasets.variables import reference, resolve

SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
STEP_FILES = {
    "steps/one/instruction.md": b"One.\n",
    "steps/two/instruction.md": b"Two.\n",
    "steps/two/tests/test.sh": b"#!/bin/sh\n",
}


@pytest.mark.requirement("G-EVAL-17.files", "G-EVAL-21.3")
@pytest.mark.parametrize("path", ["instruction.md", "environment/Dockerfile", "tests/test.sh"])
def test_a_needed_file_that_is_missing_is_named(problems_of, path):
    assert [problem.file for problem in problems_of("", {path: None})] == [f"t/{path}"]


@pytest.mark.requirement("G-EVAL-17.files", "G-EVAL-21.3")
@pytest.mark.parametrize("path", ["task.toml", "instruction.md", "tests/test.sh"])
def test_a_needed_file_that_is_ignored_is_named(problems_of, path):
    found = problems_of("", {".gitignore": path.encode()})
    assert [problem.file for problem in found] == [f"t/{path}"]
    assert "ignore file" in found[0].message


def test_a_script_that_a_nested_ignore_file_drops_is_named(problems_of):
    found = problems_of("", {"tests/.harborignore": b"*.sh\n"})
    assert [problem.file for problem in found] == ["t/tests/test.sh"]


def test_an_image_or_a_compose_file_replaces_the_dockerfile(read):
    assert read('[environment]\ndocker_image = "x:1"', {"environment/Dockerfile": None}).environment_image() == (
        ImagePlan(None, "x:1", compose=False)
    )
    compose = {"environment/Dockerfile": None, "environment/docker-compose.yaml": b"services: {}\n"}
    assert read("", compose).environment_image() == ImagePlan("environment", None, compose=True, services="environment")


def test_a_windows_task_needs_the_other_scripts(read, problems_of):
    assert [problem.file for problem in problems_of('[environment]\nos = "windows"')] == ["t/tests/test.bat"]
    task = read('[environment]\nos = "Windows"', {"tests/test.bat": b"", "solution/solve.bat": b""})
    assert (task.test_script, task.solution_folder()) == ("test.bat", "solution")


def test_an_instruction_that_is_no_text_is_refused(problems_of):
    assert [problem.file for problem in problems_of("", {"instruction.md": b"\xff"})] == ["t/instruction.md"]


def test_a_task_without_a_name_is_named_after_its_folder(read):
    assert read("").name == "n/t"
    assert read('[task]\nname = "a/b"').name == "a/b"


def test_a_folder_name_that_is_no_task_name_is_a_problem(golden):
    problems: list[Problem] = []
    read_task(Tree(golden), "my task", "n/my task", problems)
    assert [(problem.file, problem.key) for problem in problems] == [("my task/task.toml", "task.name")]


# Verifier mode and image (section 3)


@pytest.mark.parametrize(
    ("toml", "mode"),
    [
        ("", VerifierMode.SHARED),
        ('[verifier]\nenvironment_mode = "shared"', VerifierMode.SHARED),
        (SEPARATE, VerifierMode.SEPARATE),
        ("[verifier.environment]", VerifierMode.SEPARATE),
    ],
)
def test_the_mode_of_a_task_is_its_word_then_its_environment_then_shared(read, toml, mode):
    assert read(toml).verifier_mode() is mode


def test_a_step_decides_its_mode_before_the_task(read):
    toml = SEPARATE + STEPS + '[steps.verifier]\nenvironment_mode = "shared"\n'
    task = read(toml, STEP_FILES)
    assert [task.verifier_mode(step) for step in task.steps] == [VerifierMode.SEPARATE, VerifierMode.SHARED]


def test_a_tests_folder_with_a_dockerfile_is_the_verifier_image_and_brings_its_tests(read):
    task = read(SEPARATE, {"tests/Dockerfile": b"FROM x\nCOPY . /tests\n", "tests/test.sh": None})
    assert task.verifier_image() == ImagePlan("tests", None, compose=False, has_tests=True)


def test_without_an_image_of_its_own_the_verifier_uses_the_environments_and_gets_the_tests(read):
    assert read(SEPARATE).verifier_image() == ImagePlan("environment", None, compose=False)


def test_a_verifier_image_by_name_comes_first(read):
    toml = '[verifier.environment]\ndocker_image = "v:1"'
    files = {"tests/Dockerfile": b"FROM x\n", "tests/test.sh": None}
    assert read(toml, files).verifier_image() == ImagePlan(None, "v:1", compose=False, has_tests=True)


def test_a_shared_verifier_ignores_a_dockerfile_among_its_tests(read, problems_of):
    files = {"tests/Dockerfile": b"FROM x\n"}
    assert read("", files).verifier_image() == ImagePlan("environment", None, compose=False)
    assert [problem.file for problem in problems_of("", {**files, "tests/test.sh": None})] == ["t/tests/test.sh"]


def test_a_steps_own_image_comes_before_the_tasks(read):
    files = {**STEP_FILES, "steps/two/tests/Dockerfile": b"FROM x\n", "tests/Dockerfile": b"FROM y\n"}
    task = read(SEPARATE + STEPS, files)
    assert [task.verifier_image(step).context for step in task.steps] == ["tests", "steps/two/tests"]


def test_the_settings_of_a_separate_verifier_are_its_own_else_a_copy_of_the_environments(read):
    assert read("[environment]\ncpus = 3\n" + SEPARATE).verifier_environment().cpus == 3
    assert read("[environment]\ncpus = 3\n[verifier.environment]\ncpus = 1").verifier_environment().cpus == 1


# Multi-step tasks


def test_a_step_inherits_the_agents_limit_and_not_the_verifiers(read):
    toml = "[agent]\ntimeout_sec = 9\n[verifier]\ntimeout_sec = 8\n" + STEPS + "[steps.agent]\ntimeout_sec = 7\n"
    task = read(toml, STEP_FILES)
    assert [task.agent_timeout_s(step) for step in task.steps] == [9.0, 7.0]
    assert [task.verifier_timeout_s(step) for step in task.steps] == [600.0, 600.0]
    assert (task.agent_timeout_s(), task.verifier_timeout_s()) == (9.0, 8.0)


def test_the_tests_of_a_step_lie_over_those_of_the_task(read):
    task = read(STEPS, STEP_FILES)
    assert [task.tests_folders(step) for step in task.steps] == [("tests",), ("tests", "steps/two/tests")]


def test_a_step_without_any_test_script_is_refused(problems_of):
    found = problems_of(STEPS, {**STEP_FILES, "tests/test.sh": None})
    assert [problem.file for problem in found] == ["t/steps/one/tests/test.sh"]


def test_a_step_without_an_instruction_is_refused_and_the_task_needs_none(problems_of):
    found = problems_of(STEPS, {**STEP_FILES, "steps/one/instruction.md": None, "instruction.md": None})
    assert [problem.file for problem in found] == ["t/steps/one/instruction.md"]


def test_the_solution_of_a_step_comes_before_the_tasks(read):
    task = read(STEPS, {**STEP_FILES, "steps/two/solution/solve.sh": b"#!/bin/sh\n"})
    assert [task.solution_folder(step) for step in task.steps] == ["solution", "steps/two/solution"]
    assert not read("", {"solution/solve.sh": None}).has_solution()


def test_variables_of_a_step_lie_over_those_of_the_task(read):
    toml = '[verifier.env]\nA = "1"\nB = "1"\n' + STEPS + '[steps.verifier.env]\nB = "2"\n'
    task = read(toml, STEP_FILES)
    assert [task.verifier_env(step) for step in task.steps] == [{"A": "1", "B": "1"}, {"A": "1", "B": "2"}]


def test_a_phase_that_overrides_the_network_changes_it_after_the_start(read):
    task = read('[environment]\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"')
    assert task.agent_network().changes
    assert task.agent_network().phase.mode is NetworkMode.NO_NETWORK
    assert not task.verifier_network().changes
    assert read("").agent_network().phase.mode is None


# Artifacts, variables, instruction, links


def test_the_publish_folder_is_the_implicit_first_artifact(read):
    assert read('artifacts = ["/app/x"]').artifacts() == (ArtifactEntry("/logs/artifacts"), ArtifactEntry("/app/x"))
    named = '[[artifacts]]\nsource = "/logs/artifacts/"\nexclude = ["*.o"]'
    assert read(named).artifacts() == (ArtifactEntry("/logs/artifacts/", exclude=("*.o",)),)


@pytest.mark.parametrize(
    ("value", "found"),
    [("${A}", ("A", None)), ("${A:-b c}", ("A", "b c")), ("${A:-}", ("A", "")), ("pre${A}", None), ("$A", None)],
)
def test_only_a_whole_value_is_a_reference(value, found):
    variable = reference(value)
    assert (None if variable is None else (variable.name, variable.default)) == found


def test_variables_come_from_what_is_handed_in_and_never_from_the_environment(monkeypatch):
    monkeypatch.setenv("PLANTED", "secret of the server")
    env = {"A": "${GIVEN}", "B": "${PLANTED}", "C": "${PLANTED:-d}", "D": "x${PLANTED}"}
    resolved = resolve(env, {"GIVEN": "1"})
    assert resolved.env == {"A": "1", "C": "d", "D": "x${PLANTED}"}
    assert resolved.missing == ("PLANTED",)


@pytest.mark.parametrize(
    ("text", "kept", "removed"),
    [
        ("Do it.\n", "Do it.\n", 0),
        ("<!-- a CANARY b -->\n# canary 2\n\n\nDo it.\n", "Do it.\n", 2),
        ("# Canary deployment\nDo it.\n", "Do it.\n", 1),
        ("\n\nDo it.\n", "Do it.\n", 0),
        ("# Title\n# canary\n", "# Title\n# canary\n", 0),
        ("<!-- canary\n-->\n", "<!-- canary\n-->\n", 0),
    ],
)
def test_canary_lines_at_the_top_are_kept_from_the_agent_and_counted(text, kept, removed):
    assert read_instruction(text) == Instruction(kept, removed)


def test_a_link_to_a_file_counts_as_a_file_and_a_link_to_a_folder_is_not_entered(golden):
    del golden["solution/solve.sh"]
    golden["tests/real.sh"] = b"#!/bin/sh\necho\n"
    tree = Tree(golden, {"solution/solve.sh": "../tests/real.sh", "environment/more": "../tests"})
    problems: list[Problem] = []
    found = read_task(tree, "t", "n/t", problems)
    assert found is not None
    assert problems == []
    assert found[1]["solution/solve.sh"] == b"#!/bin/sh\necho\n"
    assert not any(path.startswith("environment/more") for path in found[1])


@pytest.mark.requirement("G-EVAL-17.files", "G-EVAL-21.3")
@pytest.mark.parametrize("target", ["../../other/x", "/etc/passwd", "loop", "gone"])
def test_a_link_that_leaves_the_task_or_leads_nowhere_is_refused(golden, target):
    problems: list[Problem] = []
    read_task(Tree(golden, {"tests/loop": target}), "t", "n/t", problems)
    assert [problem.file for problem in problems] == ["t/tests/loop"]


# The example tasks


def test_the_separate_example_is_read(examples):
    problems: list[Problem] = []
    found = read_task(read_folder(examples / "jacobian/finite-partition"), "finite-partition", "x/y", problems)
    assert found is not None
    assert problems == []
    task = found[0]
    assert task.name == "jacobian/finite-partition"
    assert (task.agent_timeout_s(), task.verifier_timeout_s()) == (600.0, 120.0)
    assert task.verifier_image() == ImagePlan("tests", None, compose=False, has_tests=True)
    assert task.artifacts() == (ArtifactEntry("/logs/artifacts"), ArtifactEntry("/app/submission.json"))
    assert needs(task)["verifier_mode"] == "separate"


def test_the_multi_step_example_is_read(examples):
    problems: list[Problem] = []
    found = read_task(read_folder(examples / "harbor-cookbook/multi-step"), "multi-step", "x/y", problems)
    assert found is not None
    assert problems == []
    task = found[0]
    assert [step.name for step in task.steps] == ["scaffold", "implement", "document"]
    assert [step.min_reward for step in task.steps] == [1.0, 0.5, None]
    assert task.config.environment.network.mode is None
    assert task.verifier_env(task.steps[1])["EXPECTED_NAME"] == "Harbor"
    assert [entry.source for entry in task.artifacts(task.steps[2])] == [
        "/logs/artifacts",
        "/app/greet.sh",
        "/app/README.md",
    ]
