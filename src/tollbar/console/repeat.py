"""The command and the tool call that make the same Job again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from tollbar.console import words
from tollbar.kit.text import printable


def command(job: Mapping[str, Any]) -> str:
    """Returns the command line; what a run or a person wrote in it is quoted for the shell."""
    parts = ["tollbar", "jobs", "submit", words.dataset(job)]
    for option, name in (("--split", "split"), ("--config", "config"), ("--task", "task_id")):
        if job["selection"].get(name) is not None:
            parts += [option, job["selection"][name]]
    parts += ["--profile", words.profile(job), "--runner", words.runner(job), "--attempts", str(job["attempts"])]
    if job["tag"] is not None:
        parts += ["--tag", job["tag"]]
    cap, share = job["budget"]["max_cost_usd"], job["budget"]["max_cost_per_trial_usd"]
    caps = (cap or "") + ("" if share is None else f"/{share}")
    parts += ["--max-cost", caps] if caps else ["--no-cap"]
    return printable(shlex.join(parts))


def call(job: Mapping[str, Any]) -> str:
    """Returns the arguments of `envloop_job_submit`, indented; the two that the caller must choose say so."""
    chosen = {name: value for name, value in job["selection"].items() if value is not None}
    ref = job["dataset_ref"]
    arguments = {
        "dataset": {"name": ref["name"], "version": ref["version"], **chosen} if chosen else words.dataset(job),
        "profile_name": job["profile"]["name"],
        "profile_version": job["profile"]["version"],
        "runner": words.runner(job),
        "attempts": job["attempts"],
        **({} if job["tag"] is None else {"tag": job["tag"]}),
        "request_id": "CHOOSE-A-NEW-ONE",
        "max_cost_usd": job["budget"]["max_cost_usd"] or "CHOOSE-A-CAP",
    }
    return printable(json.dumps(arguments, indent=2, ensure_ascii=False))
