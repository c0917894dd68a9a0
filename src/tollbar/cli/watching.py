"""Waiting for a Job: every change is told once, and leaving never stops anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tollbar.cli.jobviews import ended, job_rows, score, spending, state, warning
from tollbar.cli.judging import Bar
from tollbar.cli.output import Output
from tollbar.cli.problems import Detached, Unfollowed
from tollbar.client.errors import ApiError, ClientError, ServerUnreachable, UnexpectedAnswer
from tollbar.client.schemas import Job
from tollbar.kit.clock import SystemClock, wire_time

if TYPE_CHECKING:
    from tollbar.client import Client

_TOLD: Final = (
    "job_id", "status", "phase", "error", "trial_counts", "score", "pass", "n_scored", "n_total", "intervals", "budget",
)  # fmt: skip


def watch(client: Client, out: Output, job_id: str, bar: Bar) -> int:
    """Tells each change until the Job ends, writes it, and returns its exit code; raises what `bar.judge` raises.

    With JSON each change is one line `{"type": "job", "at", ...}` and the last line is the Job itself. Raises
    `Detached` on Ctrl-C and `Unfollowed` when the server stays away.
    """
    try:
        job = _follow(client, out, job_id)
    except KeyboardInterrupt:
        raise Detached(f"detached: {job_id} goes on", why=_ways_back(job_id)) from None
    except (ServerUnreachable, UnexpectedAnswer, ApiError) as error:
        if isinstance(error, ApiError) and error.status < 429:
            raise
        raise Unfollowed(error.message, why=["the Job goes on without this command", *_ways_back(job_id)]) from None
    finally:
        out.settle()
    if out.is_json:
        out.json_line(job)
    else:
        out.record(job, job_rows(job))
    return bar.judge(job)


def _follow(client: Client, out: Output, job_id: str) -> Job:
    seen: object = None

    def trouble(error: ClientError, pause_s: float) -> None:
        out.note(f"{error.message.rstrip('.')}; asking again in {pause_s:g} s")

    job: Job | None = None
    warned = False
    for job in client.follow_job(job_id, on_trouble=trouble):
        now = (job["status"], job["phase"], job["trial_counts"], job["error"], job["budget"].get("warning"))
        if now != seen:
            seen = now
            _tell(out, job)
        warned = _note_warning(out, job, warned)
    assert job is not None
    return job


def _tell(out: Output, job: Job) -> None:
    if out.is_json:
        told: dict[str, Any] = {name: job.get(name) for name in _TOLD}
        out.json_line({"type": "job", "at": wire_time(SystemClock().now()), **told})
    else:
        out.progress(f"{job['job_id']} {state(job)}, {ended(job)} ended, score {score(job)}, {spending(job)}")


def _note_warning(out: Output, job: Job, told: bool) -> bool:
    """Says once that most of the cap is spent; returns whether it was said."""
    note = warning(job["budget"])
    if note is not None and not told:
        out.note(f"{job['job_id']}: {note}")
    return told or note is not None


def _ways_back(job_id: str) -> list[str]:
    return [f"watch it again: tollbar jobs watch {job_id}", f"stop it: tollbar jobs stop {job_id}"]
