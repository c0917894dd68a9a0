"""The routes that the command line and scripts use, as methods; each returns the server's object unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, TypeVar, cast

from tollbar.client.address import coded, segment
from tollbar.client.download import copy_artifact, save_artifact
from tollbar.client.errors import ClientError
from tollbar.client.follow import Patience, follow, follow_log
from tollbar.client.schemas import (
    Artifact,
    Dataset,
    DatasetTask,
    DatasetVersion,
    Job,
    JobResult,
    LogPage,
    Me,
    Page,
    Profile,
    Runner,
    Trial,
    TrialResult,
)
from tollbar.client.transport import Params, Transport, Upload

T = TypeVar("T")
TIMEOUT_S: Final = 30.0
UPLOAD_TIMEOUT_S: Final = 600.0
TAR: Final = "application/x-tar"


def _no_report(error: ClientError, pause_s: float) -> None:
    """Takes a failure that may pass and does nothing with it."""


class Client:
    """One server, one key; close it, or use it in `with`. Not for several threads.

    Every method may raise `ApiError` (the server refused), `ServerUnreachable` and `UnexpectedAnswer`; making one
    raises `UnusableSetting`. Nothing is retried but the questions of `follow_job`. Times are in seconds.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        workspace: str | None = None,
        project: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Transport(url, api_key, workspace=workspace, project=project, timeout_s=timeout_s)
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def me(self) -> Me:
        """Returns who the key is and what it may do."""
        return cast("Me", self._get("me"))

    def datasets(
        self, *, limit: int | None = None, cursor: str | None = None, type_: str | None = None, q: str | None = None
    ) -> Page[Dataset]:
        """Returns a page of datasets, newest first; `q` is a part of the name."""
        return cast("Page[Dataset]", self._get("datasets", limit=limit, cursor=cursor, type=type_, q=q))

    def dataset(self, name: str) -> Dataset:
        """Returns one dataset."""
        return cast("Dataset", self._get(f"datasets/{coded(name)}"))

    def dataset_version(self, name: str, revision: str) -> DatasetVersion:
        """Returns one version by its label or revision."""
        return cast("DatasetVersion", self._get(f"datasets/{coded(name)}/versions/{segment(revision)}"))

    def check_dataset(self, name: str, revision: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Starts a version's check: returns its two Jobs (`oracle`, `nop`) and what needs no run (`lint`)."""
        path = f"datasets/{coded(name)}/versions/{segment(revision)}/check"
        return self._transport.json("POST", path, body=request)[1]

    def dataset_tasks(
        self, name: str, revision: str, *, split: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[DatasetTask]:
        """Returns a page of the tasks of a version, by name."""
        path = f"datasets/{coded(name)}/versions/{segment(revision)}/tasks"
        return cast("Page[DatasetTask]", self._get(path, split=split, limit=limit, cursor=cursor))

    def push_dataset(
        self, name: str, archive: IO[bytes], size: int, *, version: str | None = None, visibility: str | None = None
    ) -> tuple[DatasetVersion, bool]:
        """Publishes a tar of `size` bytes as a version; returns it and whether it is new."""
        status, value = self._transport.json(
            "POST",
            f"datasets/{coded(name)}/versions",
            params={"version": version, "visibility": visibility},
            upload=Upload(archive, size, TAR, UPLOAD_TIMEOUT_S),
        )
        return cast("DatasetVersion", value), status == 201

    def submit_job(self, request: Mapping[str, Any]) -> tuple[Job, bool]:
        """Submits a Job; returns it and whether it is new. With a `request_id` it is safe to submit again."""
        status, value = self._transport.json("POST", "job", body=request)
        return cast("Job", value), status == 202

    def dry_run_job(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what a submission would resolve to; nothing is written or started."""
        return self._transport.json("POST", "job", body={**request, "dry_run": True})[1]

    def jobs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        type_: str | None = None,
        status: str | None = None,
        tag: str | None = None,
    ) -> Page[Job]:
        """Returns a page of the project's Jobs, newest first."""
        return cast("Page[Job]", self._get("job", limit=limit, cursor=cursor, type=type_, status=status, tag=tag))

    def job(self, job_id: str) -> Job:
        """Returns a Job as it is now."""
        return cast("Job", self._get(f"job/{segment(job_id)}"))

    def job_result(
        self, job_id: str, *, trials_limit: int | None = None, trials_cursor: str | None = None
    ) -> JobResult:
        """Returns a Job's scores and cost with a page of its Trials; `final` is false until it ends."""
        path = f"job/{segment(job_id)}/result"
        return cast("JobResult", self._get(path, trials_limit=trials_limit, trials_cursor=trials_cursor))

    def stop_job(self, job_id: str) -> Job:
        """Stops a Job and returns it; one that ended stays as it is."""
        return cast("Job", self._transport.json("POST", f"job/{segment(job_id)}/stop")[1])

    def follow_job(
        self,
        job_id: str,
        *,
        patience: Patience | None = None,
        on_trouble: Callable[[ClientError, float], None] = _no_report,
    ) -> Iterator[Job]:
        """Yields a Job at each question until it is final; outlives a restart of the server (see `follow`)."""
        return follow(
            lambda: self.job(job_id), pause=self._pause, patience=patience or Patience(), on_trouble=on_trouble
        )

    def trials(
        self,
        *,
        job_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Trial]:
        """Returns a page of Trials, newest first."""
        return cast("Page[Trial]", self._get("trials", job_id=job_id, status=status, limit=limit, cursor=cursor))

    def trial(self, trial_id: str) -> Trial:
        """Returns a Trial as it is now."""
        return cast("Trial", self._get(f"trials/{segment(trial_id)}"))

    def trial_result(self, trial_id: str) -> TrialResult:
        """Returns a Trial's reward or reason, structured result, cost and first artifacts."""
        return cast("TrialResult", self._get(f"trials/{segment(trial_id)}/result"))

    def artifacts(self, trial_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Artifact]:
        """Returns a page of a Trial's artifacts, by name."""
        return cast("Page[Artifact]", self._get(f"trials/{segment(trial_id)}/artifacts", limit=limit, cursor=cursor))

    def copy_artifact(self, trial_id: str, artifact: Artifact, target: IO[bytes]) -> None:
        """Streams an artifact's bytes into `target`; raises `DownloadDamaged` unless size and SHA-256 agree."""
        copy_artifact(self._transport, trial_id, artifact, target)

    def save_artifact(self, trial_id: str, artifact: Artifact, path: Path) -> None:
        """Saves an artifact as a file, whole and verified or not at all."""
        save_artifact(self._transport, trial_id, artifact, path)

    def runners(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Runner]:
        """Returns a page of runners."""
        return cast("Page[Runner]", self._get("runners", limit=limit, cursor=cursor))

    def profiles(
        self, *, include_archived: bool = False, limit: int | None = None, cursor: str | None = None
    ) -> Page[Profile]:
        """Returns a page of profiles."""
        archived = "true" if include_archived else None
        return cast("Page[Profile]", self._get("profiles", include_archived=archived, limit=limit, cursor=cursor))

    def limits(self) -> Page[dict[str, Any]]:
        """Returns what bounds the key's project, all at once."""
        project = self.me()["project"] or {"workspace_id": "-", "project_id": "-"}
        path = f"workspaces/{segment(project['workspace_id'])}/projects/{segment(project['project_id'])}/limits"
        return {"items": self._get(path)["items"], "next_cursor": None}

    def billing_account(self) -> dict[str, Any]:
        """Returns what the project has spent today and this month, and what is left; decimal text of USD."""
        return self._get("billing/account")

    def billing_usage(
        self, *, start: str | None = None, end: str | None = None, group_by: str | None = None
    ) -> Page[dict[str, Any]]:
        """Returns what was spent in a window (times with offset), in sums by day, product, endpoint or sku."""
        return cast("Page[dict[str, Any]]", self._get("billing/usage", start=start, end=end, group_by=group_by))

    def billing_ledger(self, *, limit: int | None = None, cursor: str | None = None) -> Page[dict[str, Any]]:
        """Returns a page of charges, newest first."""
        return cast("Page[dict[str, Any]]", self._get("billing/ledger", limit=limit, cursor=cursor))

    def billing_prices(self, *, limit: int | None = None, cursor: str | None = None) -> Page[dict[str, Any]]:
        """Returns a page of what things cost."""
        return cast("Page[dict[str, Any]]", self._get("billing/prices", limit=limit, cursor=cursor))

    def model_prices(self, model: str) -> dict[str, Any]:
        """Returns what `provider:model` costs now; decimal text of USD per million tokens."""
        return self._get("billing/model-prices", model=model)

    def job_logs(
        self, job_id: str, *, cursor: str | None = None, tail: int | None = None, limit: int | None = None
    ) -> LogPage:
        """Returns a part of what happened to a Job and its Trials, oldest first."""
        return cast("LogPage", self._get(f"job/{segment(job_id)}/logs", cursor=cursor, tail=tail, limit=limit))

    def trial_logs(
        self, trial_id: str, *, cursor: str | None = None, tail: int | None = None, limit: int | None = None
    ) -> LogPage:
        """Returns a part of what happened to a Trial and of what it writes, oldest first."""
        return cast("LogPage", self._get(f"trials/{segment(trial_id)}/logs", cursor=cursor, tail=tail, limit=limit))

    def follow_log(
        self,
        read: Callable[[str | None], LogPage],
        *,
        cursor: str | None = None,
        patience: Patience | None = None,
        on_trouble: Callable[[ClientError, float], None] = _no_report,
    ) -> Iterator[LogPage]:
        """Yields a log part by part until it has ended; outlives a restart of the server. `read` takes the cursor."""
        return follow_log(
            read, cursor=cursor, pause=self._pause, patience=patience or Patience(), on_trouble=on_trouble
        )

    def _get(self, path: str, **params: str | int | None) -> dict[str, Any]:
        given: Params = params
        return self._transport.json("GET", path, params=given)[1]


def every(page: Callable[[str | None], Page[T]]) -> Iterator[T]:
    """Yields all items of a list; `page(cursor)` returns the page after a cursor (None: the first one)."""
    cursor: str | None = None
    while True:
        answer = page(cursor)
        yield from answer["items"]
        following = answer["next_cursor"]
        if following is None or following == cursor:
            return
        cursor = following
