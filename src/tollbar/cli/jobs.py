"""`tollbar jobs list`, `show`, `watch`, `stop` and `result`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tollbar.cli.jobviews import JOBS, TRIALS, job_rows
from tollbar.cli.judging import Bar
from tollbar.cli.lists import FIRST_PAGE, Pages, show_list
from tollbar.cli.output import Output
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.client.schemas import JobResult

JobId = Annotated[str, Parameter(help="The Job's id, job_...")]
FailUnder = Annotated[float | None, Parameter(help="Exit 6 when the score is below this.")]
MinCoverage = Annotated[
    float | None, Parameter(help="Exit 1 when a smaller share of the Trials is scored; 1 with --fail-under.")
]


def list_jobs(
    *,
    status: Annotated[str | None, Parameter(help="Only Jobs in this state, such as running.")] = None,
    kind: Annotated[str | None, Parameter(name="--type", help="Only this type: agent or regrade.")] = None,
    tag: Annotated[str | None, Parameter(help="Only Jobs with this tag.")] = None,
    pages: Pages = FIRST_PAGE,
    options: Global = NO_OPTIONS,
) -> None:
    """List the project's Jobs, newest first.

    Example: tollbar jobs list --status running
    """
    session = Session(options)
    with session.client() as client:
        show_list(
            session.out,
            pages,
            lambda limit, cursor: client.jobs(limit=limit, cursor=cursor, type_=kind, status=status, tag=tag),
            JOBS,
        )


def show_job(job: JobId, /, *, options: Global = NO_OPTIONS) -> None:
    """Show a Job as it is now: state, scores so far, cost and cap.

    Example: tollbar jobs show job_01KDC4P2R8N5W3T7H9K1M6Q0VZ --json
    """
    session = Session(options)
    with session.client() as client:
        found = client.job(job)
    session.out.record(found, job_rows(found))


def watch_job(
    job: JobId,
    /,
    *,
    fail_under: FailUnder = None,
    min_coverage: MinCoverage = None,
    options: Global = NO_OPTIONS,
) -> int:
    """Wait until a Job ends and tell each change; Ctrl-C leaves the Job running.

    With --json each change is one line of JSON, and the last line is the Job.
    The exit code is that of the Job.

    Example: tollbar jobs watch job_01KDC4P2R8N5W3T7H9K1M6Q0VZ --fail-under 0.8
    """
    from tollbar.cli.watching import watch  # brings asyncio with the clock

    session = Session(options)
    with session.client() as client:
        return watch(client, session.out, job, Bar(fail_under, min_coverage))


def stop_job(job: JobId, /, *, options: Global = NO_OPTIONS) -> None:
    """Stop a Job: running Trials are cancelled, finished ones keep their rewards.

    A Job that has ended stays as it is.

    Example: tollbar jobs stop job_01KDC4P2R8N5W3T7H9K1M6Q0VZ
    """
    session = Session(options)
    with session.client() as client:
        found = client.stop_job(job)
    session.out.record(found, job_rows(found))


def show_result(
    job: JobId,
    /,
    *,
    fail_under: FailUnder = None,
    min_coverage: MinCoverage = None,
    pages: Pages = FIRST_PAGE,
    options: Global = NO_OPTIONS,
) -> int:
    """Show a Job's scores, cost and Trials; exits as the Job did.

    --limit, --cursor and --all say which Trials are listed.

    Example: tollbar jobs result job_01KDC4P2R8N5W3T7H9K1M6Q0VZ --fail-under 0.8 --min-coverage 0.95
    """
    session = Session(options)
    with session.client() as client:
        first = client.job_result(job, trials_limit=None if pages.all else pages.limit, trials_cursor=pages.cursor)
        if pages.all:
            first["trials"] = pages.read(
                lambda limit, cursor: client.job_result(job, trials_limit=limit, trials_cursor=cursor)["trials"]
            )
    _write(session.out, first)
    return Bar(fail_under, min_coverage).judge(first)


def _write(out: Output, result: JobResult) -> None:
    """With JSON one document; for people the Job, then its Trials, which begin with their id."""
    out.record(result, job_rows(result))
    if not out.is_json:
        out.separate()
        out.listing(result["trials"], TRIALS)
