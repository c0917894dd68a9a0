"""The wire objects as they are read: names and types alone, no rules (those are the server's).

A member that this version does not know stays in the object, so that `--json` shows exactly what the server sent.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

T = TypeVar("T")

JobStatus = Literal["pending", "running", "stopping", "completed", "failed", "cancelled"]


class Page(TypedDict, Generic[T]):
    """One page of a list; `next_cursor` is None on the last one."""

    items: list[T]
    next_cursor: str | None


class LogItem(TypedDict):
    """One line of a log. `content` is untrusted."""

    id: str
    at: str
    source: str
    stream: str | None
    level: str
    phase: str | None
    code: str | None
    trial_id: str | None
    content: str


class LogPage(TypedDict):
    """A part of a log; `next_cursor` goes on after it, `eof` says that nothing will follow."""

    items: list[LogItem]
    next_cursor: str
    has_more: bool
    eof: bool
    collection_status: str
    truncated: bool
    dropped_bytes: int
    sources: list[dict[str, Any]]


class Workspace(TypedDict):
    workspace_id: str
    name: str


class Project(TypedDict):
    project_id: str
    workspace_id: str
    name: str


class Me(TypedDict):
    """Who the key is, where it works, and what it may do."""

    auth_method: str
    key: dict[str, Any]
    workspace: Workspace
    project: Project | None
    capabilities: list[str]


class Dataset(TypedDict):
    name: str
    type: str
    visibility: str
    splits: list[str]
    authors: list[str]
    versions: list[str]
    version_count: int
    default_version: str | None
    catalog_updated_at: str | None
    description: NotRequired[str]
    configs: NotRequired[list[str]]


class DatasetVersion(TypedDict):
    name: str
    type: str
    version: str
    revision: str
    manifest_sha256: str
    digest: str
    task_count: int
    splits: dict[str, int]
    configs: list[str]
    threshold: float
    check: dict[str, Any] | None
    published_at: str | None


class DatasetTask(TypedDict):
    name: str
    task_id: str
    version: str
    revision: str
    digest: str
    split: str | None
    task_ref: dict[str, str]


class DatasetRef(TypedDict):
    name: str
    version: str
    manifest_sha256: str


class JobError(TypedDict):
    code: str
    message: str
    scope: NotRequired[str]


class Intervals(TypedDict):
    level: float
    score: list[float] | None


class Budget(TypedDict):
    """Amounts are decimal text of USD; `max_cost_usd` None means no cap of the Job's own."""

    max_cost_usd: str | None
    spent_usd: str
    reserved_usd: str
    remaining_usd: str | None
    state: str
    stopped_by: dict[str, Any] | None
    warning: NotRequired[dict[str, Any] | None]
    """Set once 80 % of the cap is spent."""
    max_cost_per_trial_usd: NotRequired[str | None]


class Cost(TypedDict):
    total_usd: str
    model_usd: str
    sandbox_usd: str
    verifier_usd: str


# Members such as `pass` and `pass@k` are no Python names, so these types are written as calls.
Scores = TypedDict(
    "Scores",
    {
        "score": float | None,
        "pass": float | None,
        "pass@k": dict[str, float | None],
        "pass^k": dict[str, float | None],
        "n_scored": int,
        "n_total": int,
        "threshold": float,
        "intervals": Intervals,
    },
)


class Job(Scores):
    job_id: str
    type: str
    name: str
    status: JobStatus
    phase: str
    error: JobError | None
    request_id: str | None
    tag: str | None
    dataset_ref: DatasetRef
    profile: dict[str, Any]
    agent: dict[str, Any]
    runner: dict[str, Any]
    attempts: int
    total_tasks: int
    trial_counts: dict[str, int]
    final: bool
    budget: Budget
    cost: Cost
    simulated: bool
    poll_after_s: float | None
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    url: str


ResultTrial = TypedDict(
    "ResultTrial",
    {
        "trial_id": str,
        "task_id": str,
        "attempt": int,
        "status": str,
        "reward": float | None,
        "pass": bool | None,
        "reason": str | None,
        "cost_usd": str | None,
        "simulated": NotRequired[bool],
    },
)
"""A Trial as a Job's result lists it."""


class JobResult(Job):
    usage: dict[str, Any]
    trials: Page[ResultTrial]


_TrialHead = TypedDict("_TrialHead", {"pass": bool | None})


class Trial(_TrialHead):
    trial_id: str
    type: str
    job_id: str
    name: str
    task: dict[str, Any]
    attempt: int
    try_no: int
    status: str
    reward: float | None
    reason: str | None
    agent_outcome: str | None
    simulated: NotRequired[bool]
    created_at: str | None
    started_at: str | None
    finished_at: str | None


class Artifact(TypedDict):
    """One output of a Trial; `size` (bytes) and `sha256` are null when it was never written."""

    artifact_id: str
    name: str
    kind: str
    media_type: str | None
    size: int | None
    sha256: str | None
    state: str
    upload_state: str


class TrialResult(Trial):
    structured_result: dict[str, Any] | None
    steps: NotRequired[dict[str, Any] | None]
    steps_run: NotRequired[int | None]
    steps_total: NotRequired[int | None]
    kept: NotRequired[dict[str, str] | None]
    verifier: dict[str, Any] | None
    timings_s: dict[str, float]
    usage: dict[str, Any]
    cost: Cost
    artifacts: Page[Artifact]


class Runner(TypedDict):
    name: str
    revision: str
    source_ref: str | None
    visibility: str
    backend: str


class Profile(TypedDict):
    name: str
    version_count: int
    default_version: str | None
    updated_at: str | None
