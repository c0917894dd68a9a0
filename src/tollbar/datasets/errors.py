"""What can be wrong with an upload, a name, or a selector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollbar.datasets.problems import Problem
from tollbar.kit.errors import TollbarError

_MAX_LISTED: Final = 500


class UnsupportedTaskFormat(TollbarError):
    """The upload is not a dataset that can be read; lists all of its problems, not only the first."""

    code = "UNSUPPORTED_TASK_FORMAT"
    status = 422

    def __init__(self, problems: Sequence[Problem]) -> None:
        noun = "problem" if len(problems) == 1 else "problems"
        super().__init__(
            f"{len(problems)} {noun} in the upload. {problems[0].text() if problems else ''}".rstrip(),
            problem_count=len(problems),
            problems=[problem.wire() for problem in problems[:_MAX_LISTED]],
        )
        self.problems = tuple(problems)


class DatasetNotFound(TollbarError):
    """No dataset of that name that this project can use."""

    code = "DATASET_NOT_FOUND"
    status = 404

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no dataset {name} here.", hint="List them with: tollbar datasets list")


class DatasetRevisionNotFound(TollbarError):
    """The dataset has no such version or revision that this project can use."""

    code = "DATASET_REVISION_NOT_FOUND"
    status = 404

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f"The dataset {name} has no version {version}.", hint="List them with: tollbar datasets show")


class DatasetSelectionNotFound(TollbarError):
    """The split or config does not exist, or nothing is left of the selection."""

    code = "DATASET_SELECTION_NOT_FOUND"
    status = 404

    def __init__(self, dataset: str, problem: str) -> None:
        super().__init__(f"Nothing to select from {dataset}: {problem}.")


class TaskMemberNotFound(TollbarError):
    """The dataset version has no such task."""

    code = "TASK_MEMBER_NOT_FOUND"
    status = 404

    def __init__(self, dataset: str, task_id: str) -> None:
        super().__init__(f"{dataset} has no task {task_id}.")


class DatasetConfigRequired(TollbarError):
    """The version has several configs and no default one; `configs` names them."""

    code = "DATASET_CONFIG_REQUIRED"
    status = 422

    def __init__(self, dataset: str, configs: Sequence[str]) -> None:
        super().__init__(
            f"{dataset} has several configs and no default one.",
            hint="Name one of them in the selector's member config.",
            configs=list(configs),
        )


class InvalidDatasetSelector(TollbarError):
    """What to run is not named by exactly one well-formed selector."""

    code = "INVALID_DATASET_SELECTOR"
    status = 422

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The selector is not valid: {problem}.", hint="Give exactly one of dataset, dataset_ref and task_ref."
        )


class DatasetManifestConflict(TollbarError):
    """What is published under that name and version has another hash, or cannot be changed any more."""

    code = "DATASET_MANIFEST_CONFLICT"
    status = 409

    def __init__(self, what: str, problem: str, hint: str | None = None) -> None:
        super().__init__(f"{what} {problem}.", hint=hint)


class NamespaceTaken(TollbarError):
    """The namespace of the dataset belongs to another workspace."""

    code = "WORKSPACE_ACCESS_DENIED"
    status = 403

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"The namespace {namespace} belongs to another workspace.", hint="Publish under another namespace."
        )
