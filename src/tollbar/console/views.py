"""From the objects of the wire to what a page shows. A page scores nothing that the services do not say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tollbar.console import matrix, repeat, words
from tollbar.jobs.states import JobState
from tollbar.kit.text import printable

_ENDED: Final = ("succeeded", "failed", "cancelled")
_COUNTED: Final = (*_ENDED, "running", "verifying", "starting", "stopping", "pending")


def job_line(job: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Returns a Job as the list shows it."""
    counts, budget = job["trial_counts"], job["budget"]
    cap, error = budget["max_cost_usd"], job["error"]
    return {
        "id": job["job_id"],
        "name": printable(job["name"]),
        "tag": None if job["tag"] is None else printable(job["tag"]),
        "status": job["status"],
        "symbol": words.SYMBOLS[job["status"]],
        "why": None if error is None else error["code"],
        "simulated": job["simulated"],
        "done": sum(counts[name] for name in _ENDED),
        "total": counts["total"],
        "n_scored": job["n_scored"],
        "n_total": job["n_total"],
        "score": words.number(job["score"]),
        "interval": words.interval(job["intervals"]["score"]),
        "spent": words.money(budget["spent_usd"]),
        "cap": "no cap" if cap is None else f"of {words.money(cap)}",
        "created": words.moment(job["created_at"], now),
    }


def job_page(job: Mapping[str, Any], found: Mapping[str, Any], now: datetime, only: str | None) -> dict[str, Any]:
    """Returns what the page of one Job shows; `only` is the reason that its matrix is filtered by."""
    missing = sum(job["trial_counts"][name] for name in ("failed", "cancelled"))
    reasons = matrix.reasons(found["reasons"], missing)
    chosen = only if only in {reason["code"] for reason in reasons} else None
    return {
        "job": {**job_line(job, now), **_facts(job, now)},
        "ending": _ending(job),
        "score": _measure(job, "score"),
        "passes": _measure(job, "pass"),
        "money": _money(job),
        "attempts": range(1, job["attempts"] + 1),
        "tasks": matrix.rows(found["tasks"], reasons, chosen),
        "complete": found["complete"],
        "reasons": reasons,
        "only": chosen,
        "by_k": _by_k(job) if job["n_scored"] else [],
        "command": repeat.command(job),
        "call": repeat.call(job),
    }


def _facts(job: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    agent = job["agent"]["name"]
    return {
        "final": job["final"],
        "phase": job["phase"],
        "can_stop": not job["final"] and job["status"] != JobState.STOPPING,
        "coverage": _percent(job["n_scored"], job["n_total"]),
        "counts": [f"{job['trial_counts'][name]} {name}" for name in _COUNTED if job["trial_counts"][name]],
        "tasks": words.plural(job["total_tasks"], "task"),
        "attempts": words.plural(job["attempts"], "attempt"),
        "threshold": words.number(job["threshold"]),
        "agent": agent if job["agent"]["model"] is None else f"{agent} with {job['agent']['model']}",
        "profile": words.profile(job),
        "runner": words.runner(job),
        "dataset": words.dataset(job),
        "manifest": job["dataset_ref"]["manifest_sha256"],
        "dataset_checked": job["dataset_checked"],
        "selection": [f"{name} {printable(value)}" for name, value in job["selection"].items() if value is not None],
        "request_id": None if job["request_id"] is None else printable(job["request_id"]),
        "finished": words.moment(job["finished_at"], now),
        "took": words.duration(job["started_at"], job["finished_at"]),
    }


def _ending(job: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns why a Job did not complete, or seems to come to nothing, in a heading and a sentence."""
    error = job["error"]
    if error is not None:
        kept = " Finished Trials keep their rewards." if job["n_scored"] else ""
        heading = words.ENDINGS.get(error["code"], "It did not complete")
        return {"heading": heading.rstrip("."), "code": error["code"], "text": printable(error["message"]) + kept}
    if job["status"] in {JobState.CANCELLED, JobState.STOPPING}:
        text = "Running Trials are ended; finished ones keep their rewards."
        return {"heading": "A person stopped this Job", "code": "", "text": text}
    for warning in job["warnings"]:
        return {"heading": _HEADINGS[warning["code"]], "code": warning["reason"], "text": printable(warning["message"])}
    return None


_HEADINGS: Final = {"NO_TRIAL_SCORED_YET": "No reward so far", "NO_LIVING_WORKER": "The Job waits"}


def _measure(job: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a score with its interval, and both as positions from 0 to 100 where they lie between 0 and 1."""
    value, interval = job[name], job["intervals"][name]
    drawn: dict[str, float] | None = None
    if value is not None and interval is not None and 0 <= interval[0] <= interval[1] <= 1:
        drawn = {"at": 100 * value, "low": 100 * interval[0], "width": 100 * (interval[1] - interval[0])}
    return {"shown": words.number(value), "interval": words.interval(interval), "drawn": drawn}


def _money(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the cost against the cap; the parts of the bar are shares of the cap in percent."""
    budget, cap = job["budget"], job["budget"]["max_cost_usd"]
    return {
        "spent": words.money(budget["spent_usd"]),
        "spent_exact": words.exact(budget["spent_usd"]),
        "cap": words.money(cap),
        "has_cap": cap is not None,
        "reserved": words.money(budget["reserved_usd"]),
        "reserved_exact": words.exact(budget["reserved_usd"]),
        "left": words.money(budget["remaining_usd"]),
        "warned": budget["warning"] and budget["warning"]["percent"],
        "share": budget["max_cost_per_trial_usd"] and words.money(budget["max_cost_per_trial_usd"]),
        "notes": _notes(job["cost"]),
        "parts": [(name, words.money(job["cost"][f"{name}_usd"])) for name in ("model", "sandbox", "verifier")],
        "spent_share": _percent(Decimal(budget["spent_usd"]), Decimal(cap or 0)),
        "reserved_share": _percent(Decimal(budget["reserved_usd"]), Decimal(cap or 0)),
    }


_NOTES: Final = {
    "unpriced_calls": "model calls without a price: the cost is at least this",
    "worst_case_calls": "model calls charged at their bound",
    "clamped_calls": "model calls with less output than asked: the score may be lower for it",
    "truncated_calls": "model answers cut at their limit: the score may be lower for it",
}


def _notes(cost: Mapping[str, Any]) -> list[str]:
    """Returns what of the model calls can have changed the cost or the score."""
    return [f"{cost[name]} {text}" for name, text in _NOTES.items() if cost[name]]


def _percent(part: Decimal | int, whole: Decimal | int) -> float:
    return round(float(100 * part / whole), 2) if whole else 0.0


def _by_k(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "k": k,
            "at": words.number(value),
            "hat": words.number(job["pass^k"][k]),
            "tasks": job["pass_tasks"][k],
        }
        for k, value in job["pass@k"].items()
    ]
