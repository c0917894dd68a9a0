"""`tollbar jobs submit`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tollbar.cli.datasets import split_version
from tollbar.cli.exits import Exit
from tollbar.cli.folders import open_folder
from tollbar.cli.jobviews import job_rows
from tollbar.cli.judging import Bar
from tollbar.cli.nearest import with_nearest_dataset, with_nearest_profile
from tollbar.cli.output import Output, Rows
from tollbar.cli.problems import Unanswered, Usage
from tollbar.cli.pushing import Upload
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import money
from tollbar.cli.watching import watch
from tollbar.client.errors import ServerUnreachable, UnexpectedAnswer
from tollbar.client.schemas import Job
from tollbar.kit.jsonio import loads_strict

if TYPE_CHECKING:
    from tollbar.client import Client

_FLAG: Final = Parameter(negative="", show_default=False)


def submit_job(
    dataset: Annotated[str, Parameter(help="NAME, NAME@VERSION, or a folder such as ./checkout.")],
    /,
    *,
    profile: Annotated[str | None, Parameter(help="NAME[@VERSION]; default: the project's default profile.")] = None,
    runner: Annotated[str | None, Parameter(help="NAME[@REVISION]; default: the profile's runner.")] = None,
    attempts: Annotated[int, Parameter(name=["--attempts", "-k"], help="How often each task is tried, 1 to 100.")] = 1,
    max_cost: Annotated[str | None, Parameter(help="The most that the Job may spend, in USD, such as 0.50.")] = None,
    no_cap: Annotated[bool, _FLAG, Parameter(help="Submit without a cap of its own.")] = False,
    param: Annotated[
        tuple[str, ...], Parameter(negative="", show_default=False, help="KEY=VALUE for the agent; repeatable.")
    ] = (),
    split: Annotated[str | None, Parameter(help="Only the tasks of this split.")] = None,
    config: Annotated[str | None, Parameter(help="Only the tasks of this named subset.")] = None,
    task: Annotated[str | None, Parameter(help="Only this task.")] = None,
    tag: Annotated[str | None, Parameter(help="A word to find the Job by.")] = None,
    request_id: Annotated[
        str | None, Parameter(help="Makes repeating safe; default: a new one, told on stderr.")
    ] = None,
    watch_it: Annotated[bool, _FLAG, Parameter(name="--watch", help="Wait until the Job ends.")] = False,
    fail_under: Annotated[float | None, Parameter(help="With --watch: exit 6 when the score is below this.")] = None,
    min_coverage: Annotated[
        float | None, Parameter(help="With --watch: exit 1 when a smaller share is scored; 1 with --fail-under.")
    ] = None,
    dry_run: Annotated[
        bool, _FLAG, Parameter(help="Show what would run, start nothing; a folder is still pushed.")
    ] = False,
    options: Global = NO_OPTIONS,
) -> int:
    """Submit a Job: every task of a dataset, by one agent, under a cap.

    A folder is first pushed as a private version that is labelled by its
    content. The value of --param is read as JSON where it is JSON, else as text.

    Example: tollbar jobs submit demo/mini@1 --max-cost 0.05 --watch
    """
    session = Session(options)
    bar = Bar(fail_under, min_coverage)
    _check(bar, max_cost=max_cost, no_cap=no_cap, watch_it=watch_it, dry_run=dry_run)
    name, version = split_version(profile) if profile is not None else (None, None)
    wanted: dict[str, Any] = {
        "profile_name": name,
        "profile_version": version,
        "runner": runner,
        "attempts": attempts,
        "params": _params(param) or None,
        "tag": tag,
        "max_cost_usd": max_cost,
    }
    with session.client() as client, ExitStack() as stack:
        selector = _selector(client, session.out, dataset)
        selector |= {"split": split, "config": config, "task_id": task}
        wanted["dataset"] = _given(selector)
        stack.enter_context(with_nearest_dataset(client, selector["name"]))
        stack.enter_context(with_nearest_profile(client, name or ""))
        if dry_run:
            found = client.dry_run_job(_given(wanted))
            session.out.record(found, _dry_rows(found))
            return Exit.DONE
        job = _submit(client, session.out, _given(wanted), request_id)
        if watch_it:
            return watch(client, session.out, job["job_id"], bar)
    session.out.record(job, job_rows(job))
    if not job["final"]:
        session.out.note(f"watch it: tollbar jobs watch {job['job_id']}")
    return bar.judge(job)


def _check(bar: Bar, *, max_cost: str | None, no_cap: bool, watch_it: bool, dry_run: bool) -> None:
    if max_cost is not None and no_cap:
        raise Usage("--max-cost and --no-cap exclude each other")
    if max_cost is None and not no_cap and not dry_run:
        raise Usage("the Job needs a cap", fix="add --max-cost USD, or --no-cap to go without")
    if bar.is_set and not watch_it:
        raise Usage("--fail-under and --min-coverage need --watch: a Job is judged when it has ended")
    if dry_run and watch_it:
        raise Usage("--dry-run starts nothing that --watch could wait for")


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _selector(client: Client, out: Output, text: str) -> dict[str, Any]:
    """Returns what is to be run as `name` and `version`; a folder is pushed first."""
    if text.startswith(("./", "../", "/", "~/")) or Path(text).is_dir():
        version = Upload(client, out, open_folder(Path(text).expanduser())).push_private()
        return {"name": version["name"], "version": version["version"]}
    name, label = split_version(text)
    return {"name": name, "version": label}


def _params(pairs: Sequence[str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise Usage(f"--param {pair} is not KEY=VALUE")
        if key in params:
            raise Usage(f"--param {key} is given twice")
        params[key] = _json_or_text(value)
    return params


def _json_or_text(text: str) -> Any:
    try:
        return loads_strict(text)
    except (ValueError, RecursionError):
        return text


def _submit(client: Client, out: Output, wanted: dict[str, Any], request_id: str | None) -> Job:
    """Submits under a `request_id` that the caller knows before anything is sent."""
    name = request_id or f"cli-{secrets.token_hex(16)}"
    if request_id is None:
        out.note(f"request_id {name}")
    try:
        job, is_new = client.submit_job({**wanted, "request_id": name})
    except (ServerUnreachable, UnexpectedAnswer) as error:
        again = () if request_id is not None else ("--request-id", name)
        raise Unanswered(error.message, again) from None
    if not is_new:
        out.note(f"this request_id was submitted before: {job['job_id']}")
    return job


def _dry_rows(found: dict[str, Any]) -> Rows:
    ref, agent, runner = (found.get(name) or {} for name in ("dataset_ref", "agent", "runner"))
    profile = found.get("profile") or {}
    rows: list[tuple[str, object]] = [
        ("dataset", f"{ref.get('name')}@{ref.get('version')}"),
        ("profile", f"{profile.get('name')}@{profile.get('version')}"),
        ("agent", agent.get("name")),
        ("model", agent.get("model")),
        ("runner", f"{runner.get('name')}@{runner.get('source_ref') or runner.get('revision')}"),
        ("tasks", found.get("total_tasks")),
        ("attempts", found.get("attempts")),
        ("trials", found.get("n_total")),
        ("cap", money(found.get("max_cost_usd"))),
    ]
    if "worst_case_usd" in found:
        rows.append(("worst case per Trial", money(found["worst_case_usd"])))
    refused = found.get("refused") or []
    rows += [("refused", f"{item.get('task')}: {item.get('message')}") for item in refused if isinstance(item, dict)]
    rows += [("warning", warning) for warning in found.get("warnings") or []]
    return rows
