"""`tollbar jobs logs` and `tollbar trials logs`: what happened, line by line. Contents are untrusted, shown escaped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tollbar.cli.output import Column, Output
from tollbar.cli.problems import Usage
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.client.schemas import LogItem, LogPage

if TYPE_CHECKING:
    from tollbar.client import Client
    from tollbar.client.errors import ClientError

JobId = Annotated[str, Parameter(help="The Job's id, job_...")]
TrialId = Annotated[str, Parameter(help="The Trial's id, trial_...")]
_PART: Final = 1000

_LINES: Final = (
    Column[LogItem]("AT", lambda line: line["at"]),
    Column[LogItem]("LEVEL", lambda line: line["level"]),
    Column[LogItem]("TRIAL", lambda line: line["trial_id"]),
    Column[LogItem]("WHAT", lambda line: line["content"]),
)


@dataclass(frozen=True)
class Part:
    """Which part of a log."""

    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative="", show_default=False, help="Go on until it has ended.")
    ] = False
    tail: Annotated[int | None, Parameter(help="Only the last so many lines, 1 to 1000.")] = None
    cursor: Annotated[str | None, Parameter(help="Begin after the next_cursor of an earlier answer.")] = None


FROM_THE_BEGINNING: Final = Part()
WantedPart = Annotated[Part, Parameter(name="*")]


def show_job_logs(job: JobId, /, *, part: WantedPart = FROM_THE_BEGINNING, options: Global = NO_OPTIONS) -> None:
    """Show what happened to a Job and its Trials, in order.

    With --json one document of at most 1000 lines; with --follow each line is
    one line of JSON. Ctrl-C leaves the Job running.

    Example: tollbar jobs logs job_01KDC4P2R8N5W3T7H9K1M6Q0VZ --follow
    """
    session = Session(options)
    with session.client() as client:
        _show(client, session.out, part, lambda at, tail: client.job_logs(job, cursor=at, tail=tail, limit=_PART))


def show_trial_logs(trial: TrialId, /, *, part: WantedPart = FROM_THE_BEGINNING, options: Global = NO_OPTIONS) -> None:
    """Show what happened to a Trial, in order.

    With --json one document of at most 1000 lines; with --follow each line is
    one line of JSON. Ctrl-C leaves the Trial running.

    Example: tollbar trials logs trial_01KDC4P3A1B2C3D4E5F6G7H8J9 --follow
    """
    session = Session(options)
    with session.client() as client:
        _show(client, session.out, part, lambda at, tail: client.trial_logs(trial, cursor=at, tail=tail, limit=_PART))


def _show(client: Client, out: Output, part: Part, read: Callable[[str | None, int | None], LogPage]) -> None:
    """Writes a log part by part, so that its length does not matter."""
    if part.tail is not None and (part.follow or part.cursor is not None):
        raise Usage("--tail is the end of what there is: it goes neither with --follow nor with --cursor")
    if not part.follow:
        page = read(part.cursor, part.tail)
        if out.is_json:
            out.document(page)
            return
        _lines(out, page)
        if page["has_more"]:
            out.note(f"there are more: --follow, or --cursor {page['next_cursor']}")
        return

    def trouble(error: ClientError, pause_s: float) -> None:
        out.note(f"{error.message.rstrip('.')}; asking again in {pause_s:g} s")

    try:
        for page in client.follow_log(lambda at: read(at, None), cursor=part.cursor, on_trouble=trouble):
            _lines(out, page)
    except KeyboardInterrupt:
        out.note("left; it goes on")


def _lines(out: Output, page: LogPage) -> None:
    if out.is_json:
        for item in page["items"]:
            out.json_line(item)
    else:
        out.lines(page["items"], _LINES)
