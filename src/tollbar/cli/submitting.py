"""`tollbar jobs submit`."""

from __future__ import annotations

import secrets
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
from tollbar.cli.request import ANY, Request
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import money
from tollbar.cli.watching import watch
from tollbar.client.errors import ApiError, ServerUnreachable, UnexpectedAnswer
from tollbar.client.schemas import Job

if TYPE_CHECKING:
    from tollbar.client import Client

_FLAG: Final = Parameter(negative="", show_default=False)


def submit_job(
    dataset: Annotated[str, Parameter(help="NAME, NAME@VERSION, or a folder such as ./checkout.")],
    /,
    *,
    wanted: Request = ANY,
    request_id: Annotated[
        str | None, Parameter(help="Makes repeating safe; default: a new one, told on stderr.")
    ] = None,
    watch_it: Annotated[bool, _FLAG, Parameter(name="--watch", help="Wait until the Job ends.")] = False,
    fail_under: Annotated[float | None, Parameter(help="With --watch: exit 6 when the score is below this.")] = None,
    min_coverage: Annotated[
        float | None, Parameter(help="With --watch: exit 1 when a smaller share is scored; 1 with --fail-under.")
    ] = None,
    dry_run: Annotated[bool, _FLAG, Parameter(help="Show what would run, start nothing; a folder is pushed.")] = False,
    options: Global = NO_OPTIONS,
) -> int:
    """Submit a Job: every task of a dataset, by one agent, under a cap.

    A folder is first pushed as a private version that is labelled by its
    content. The value of --param is read as JSON where it is JSON, else as text.

    Example: tollbar jobs submit demo/mini@1 --max-cost 0.05 --watch
    """
    session = Session(options)
    bar = Bar(fail_under, min_coverage)
    wanted.check_cap()
    _check_watch(bar, watch_it=watch_it, dry_run=dry_run)
    members = wanted.members()
    with session.client() as client, ExitStack() as stack:
        if not dry_run and wanted.max_cost is None and not wanted.no_cap:
            wanted.require_cap(_default_cap(client))
        name, version = _source(client, session.out, dataset)
        members["dataset"] = wanted.selector(name, version)
        stack.enter_context(with_nearest_dataset(client, name))
        stack.enter_context(with_nearest_profile(client, wanted.profile_name or ""))
        if dry_run:
            found = client.dry_run_job(members)
            session.out.record(found, _dry_rows(found))
            return Exit.DONE
        job = submit_members(client, session.out, members, request_id)
        if watch_it:
            return watch(client, session.out, job["job_id"], bar)
    session.out.record(job, job_rows(job))
    if not job["final"]:
        session.out.note(f"watch it: tollbar jobs watch {job['job_id']}")
    return bar.judge(job)


def _default_cap(client: Client) -> str | None:
    """Returns the project's default cap; None also where the key may not read it, or an older server has none."""
    try:
        return client.billing_account()["default_job_cap_usd"]
    except ApiError as error:
        if error.status in {403, 404}:
            return None
        raise


def _check_watch(bar: Bar, *, watch_it: bool, dry_run: bool) -> None:
    if bar.is_set and not watch_it:
        raise Usage("--fail-under and --min-coverage need --watch: a Job is judged when it has ended")
    if dry_run and watch_it:
        raise Usage("--dry-run starts nothing that --watch could wait for")


def _source(client: Client, out: Output, text: str) -> tuple[str, str | None]:
    """Returns name and version of what is to be run; a folder is pushed first."""
    if text.startswith(("./", "../", "/", "~/")) or Path(text).is_dir():
        version = Upload(client, out, open_folder(Path(text).expanduser())).push_private()
        return version["name"], version["version"]
    return split_version(text)


def submit_members(client: Client, out: Output, members: dict[str, Any], request_id: str | None) -> Job:
    """Submits under a `request_id` that the caller knows before anything is sent."""
    name = request_id or f"cli-{secrets.token_hex(16)}"
    if request_id is None:
        out.note(f"request_id {name}")
    try:
        job, is_new = client.submit_job({**members, "request_id": name})
    except (ServerUnreachable, UnexpectedAnswer) as error:
        again = () if request_id is not None else ("--request-id", name)
        raise Unanswered(error.message, again) from None
    if not is_new:
        out.note(f"this request_id was submitted before: {job['job_id']}")
    return job


def _price(model: dict[str, Any]) -> str:
    prices = model["prices"]
    said = f"{model['name']}: {prices.get('input_usd')} in, {prices.get('output_usd')} out, in USD per million tokens"
    if model.get("usual_call_usd") is not None:
        said += f"; a small call reserves {money(model['least_call_usd'])} to {money(model['usual_call_usd'])}"
    return f"{said} SIMULATED" if model.get("simulated") else said


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
    if found.get("max_cost_per_trial_usd") is not None:
        rows.append(("cap of a Trial", money(found["max_cost_per_trial_usd"])))
    if "worst_case_usd" in found:
        rows.append(("worst case per Trial", money(found["worst_case_usd"])))
    if "worst_case_total_usd" in found:
        rows.append(("worst case in all", money(found["worst_case_total_usd"])))
    rows += [("model's price", _price(model)) for model in found.get("models") or [] if model.get("prices")]
    day = found.get("project_day") or {}
    if day.get("daily_cap_usd") is not None:
        rows.append(("left of the day", f"{money(day['remaining_today_usd'])} of {money(day['daily_cap_usd'])}"))
    refused = found.get("refused") or []
    rows += [("refused", f"{item.get('task')}: {item.get('message')}") for item in refused if isinstance(item, dict)]
    rows += [("warning", warning) for warning in found.get("warnings") or []]
    return rows
