"""`tollbar datasets check`."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from cyclopts import Parameter

from tollbar.cli.datasets import split_version
from tollbar.cli.exits import Exit
from tollbar.cli.nearest import with_nearest_dataset
from tollbar.cli.output import Output, Rows
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import number
from tollbar.client import Client


def check_dataset(
    dataset: Annotated[str, Parameter(help="NAME, or NAME@VERSION.")],
    /,
    *,
    max_cost: Annotated[str | None, Parameter(help="The most that both Jobs may spend together, in USD.")] = None,
    runner: Annotated[str | None, Parameter(help="NAME[@REVISION]; default: envhub/base.")] = None,
    request_id: Annotated[
        str | None, Parameter(help="Makes repeating safe; default: a new one, told on stderr.")
    ] = None,
    options: Global = NO_OPTIONS,
) -> int:
    """Check a dataset: the oracle runs it three times, the agent that does nothing once.

    First it says what can be seen without a run, and which tasks this server
    cannot run. Exit code 1 when a task has a problem. The outcome stands on the
    version: tollbar datasets show NAME@VERSION.

    Example: tollbar datasets check demo/mini@1 --max-cost 0.05
    """
    session = Session(options)
    name, wanted = split_version(dataset)
    with session.client() as client, with_nearest_dataset(client, name):
        version = wanted or client.dataset(name)["default_version"] or ""
        _tell_refused(client, session.out, name, version, runner)
        members: dict[str, Any] = {"request_id": request_id or f"cli-{secrets.token_hex(16)}"}
        if runner is not None:
            members["runner"] = runner
        if request_id is None:
            session.out.note(f"request_id {members['request_id']}")
        if max_cost is not None:
            members["max_cost_usd"] = max_cost
        started = client.check_dataset(name, version, members)
        for found in started["lint"]:
            session.out.note(f"{found['task']}: {found['message']} ({found['code']})")
        for agent in ("oracle", "nop"):
            _wait(client, session.out, agent, started[agent]["job_id"])
        outcome = client.dataset_version(name, version)["check"]
    assert outcome is not None, "both Jobs have ended"
    session.out.record(outcome | {"lint": started["lint"]}, _rows(outcome))
    return Exit.FAILED if outcome["problems"] else Exit.DONE


def _tell_refused(client: Client, out: Output, name: str, version: str, runner: str | None) -> None:
    """Says, before anything is started, which tasks cannot run here; one that all cannot is the server's refusal."""
    source = {"dataset": {"name": name, "version": version}}
    request = {**source, "profile_name": "tollbar/oracle", **({} if runner is None else {"runner": runner})}
    for refused in client.dry_run_job(request)["refused"]:
        out.note(f"{refused['task']} cannot run here: {refused['message']}")


def _wait(client: Client, out: Output, agent: str, job_id: str) -> None:
    for job in client.follow_job(job_id):
        counts = job["trial_counts"]
        ended = counts["succeeded"] + counts["failed"] + counts["cancelled"]
        out.progress(f"{agent} {job_id}: {ended} of {counts['total']} ended")
    out.settle()


def _rows(outcome: dict[str, Any]) -> Rows:
    return [
        ("oracle", number(outcome["oracle_score"])),
        ("nop", number(outcome["nop_score"])),
        ("flaky", ", ".join(outcome["flaky_tasks"]) or "none"),
        ("problems", len(outcome["problems"]) or "none"),
        *((found["task"], f"{found['verdict']}: {found['message']}") for found in outcome["problems"]),
        ("oracle Job", outcome["oracle_job_id"]),
        ("nop Job", outcome["nop_job_id"]),
    ]
