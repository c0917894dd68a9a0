"""`tollbar jobs retry`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tollbar.cli.jobs import JobId
from tollbar.cli.jobviews import job_rows
from tollbar.cli.judging import Bar
from tollbar.cli.problems import Usage
from tollbar.cli.request import given
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.submitting import submit_members


def retry_job(
    job: JobId,
    /,
    *,
    max_cost: Annotated[
        str | None, Parameter(help="The most that the retry may spend, in USD; 5/0.20: and each Trial.")
    ] = None,
    no_cap: Annotated[
        bool, Parameter(negative="", show_default=False, help="No cap of its own; the project's default holds.")
    ] = False,
    tag: Annotated[str | None, Parameter(help="A word to find the Job by; default: that of the first Job.")] = None,
    request_id: Annotated[
        str | None, Parameter(help="Makes repeating safe; default: a new one, told on stderr.")
    ] = None,
    watch_it: Annotated[
        bool, Parameter(name="--watch", negative="", show_default=False, help="Wait until the Job ends.")
    ] = False,
    options: Global = NO_OPTIONS,
) -> int:
    """Run again what an ended Job left without a reward, as a new Job.

    Whatever has a reward, a zero included, is kept and never run again. The
    result of the new Job shows both together.

    Example: tollbar jobs retry job_01KDC4P2R8N5W3T7H9K1M6Q0VZ --max-cost 1
    """
    if (max_cost is None) is not no_cap:
        raise Usage("the retry needs a cap", fix="add --max-cost USD, or --no-cap to go without")
    session = Session(options)
    whole, _, share = (max_cost or "").partition("/")
    members = {"max_cost_usd": whole or None, "max_cost_per_trial_usd": share or None, "tag": tag}
    with session.client() as client:
        found = submit_members(client, session.out, {"retry_of": job, **given(members)}, request_id)
        if watch_it:
            from tollbar.cli.watching import watch  # brings asyncio with the clock

            return watch(client, session.out, found["job_id"], Bar(None, None))
    session.out.record(found, job_rows(found))
    return 0
