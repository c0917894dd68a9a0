"""How Jobs and their Trials look to people. A score never stands without its interval and coverage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tollbar.cli.output import Column, Kind, Moment, Rows
from tollbar.cli.text import by_k, in_short, marked, measured, money, number
from tollbar.client.schemas import Job, ResultTrial

_ENDED: Final = ("succeeded", "failed", "cancelled")
_COUNTED: Final = ("pending", "starting", "running", "verifying", "stopping", *_ENDED)


def state(job: Mapping[str, Any]) -> str:
    """Returns `running (scoring)`, `cancelled (BUDGET_EXCEEDED)`, `completed`."""
    error, status, phase = job.get("error"), job["status"], job["phase"]
    if error:
        return f"{status} ({error['code']})"
    return status if phase in {status, "done", "queued"} else f"{status} ({phase})"


def ended(job: Mapping[str, Any]) -> str:
    """Returns how many Trials have ended, of how many."""
    counts = job["trial_counts"]
    return f"{sum(counts[name] for name in _ENDED)}/{counts['total']}"


def score(job: Mapping[str, Any]) -> str:
    """Returns the score with interval and coverage, marked when no real model was measured."""
    return measured(job, "score")


def spending(job: Mapping[str, Any]) -> str:
    """Returns what was spent, of which cap."""
    budget = job["budget"]
    cap = budget["max_cost_usd"]
    spent = money(budget["spent_usd"])
    note = " (!)" if warning(budget) else ""
    shown = spent if cap is None else f"{spent.removesuffix(' USD')} of {money(cap)}{note}"
    return marked(shown, job)


def warning(owner: Mapping[str, Any]) -> str | None:
    """Returns `80 % of the cap is spent` for a budget that says so."""
    found = owner.get("warning")
    return f"{found['percent']} % of the cap is spent" if found else None


def _short_score(job: Mapping[str, Any]) -> str:
    return marked(in_short(job, "score"), job)


_CALLS: Final = {
    "unpriced_calls": "without a price",
    "worst_case_calls": "charged at their bound",
    "clamped_calls": "with less output than asked",
    "truncated_calls": "cut at the output limit",
}

JOBS: Final = (
    Column[Job]("JOB", lambda job: job["job_id"], Kind.WHOLE),
    Column[Job]("STATUS", state),
    Column[Job]("SCORE [95 %]", _short_score, Kind.WHOLE),
    Column[Job]("SCORED", lambda job: f"{job['n_scored']}/{job['n_total']}", Kind.WHOLE),
    Column[Job]("SPENT", spending, Kind.WHOLE),
    Column[Job]("CREATED", lambda job: job["created_at"], Kind.TIME),
    Column[Job]("ENDED", ended),
    Column[Job]("TAG", lambda job: job["tag"]),
    Column[Job]("NAME", lambda job: job["name"]),
)

TRIALS: Final = (
    Column[ResultTrial]("TRIAL", lambda trial: trial["trial_id"], Kind.WHOLE),
    Column[ResultTrial]("TASK", lambda trial: trial["task_id"]),
    Column[ResultTrial]("NO", lambda trial: trial["attempt"]),
    Column[ResultTrial]("REWARD", lambda trial: marked(number(trial["reward"]), trial), Kind.WHOLE),
    Column[ResultTrial]("STATUS", lambda trial: trial["status"]),
    Column[ResultTrial]("REASON", lambda trial: trial["reason"]),
    Column[ResultTrial]("COST", lambda trial: marked(money(trial["cost_usd"]), trial), Kind.WHOLE),
)


def job_rows(job: Mapping[str, Any]) -> Rows:
    """Returns a Job's rows for people."""
    return [
        ("job", job["job_id"]),
        ("name", job.get("name")),
        ("status", state(job)),
        *_error_rows(job),
        *(("warning", one["message"]) for one in job.get("warnings") or []),
        ("score", score(job)),
        ("pass", measured(job, "pass")),
        ("threshold", number(job["threshold"])),
        ("pass@k", by_k(job["pass@k"])),
        ("pass^k", by_k(job["pass^k"])),
        ("trials", _counts(job)),
        *cost_rows(job["cost"]),
        *_budget_rows(job["budget"]),
        *_chosen_rows(job),
        ("attempts", job["attempts"]),
        ("retry of", job.get("retry_of")),
        ("priority", job.get("priority") or None),
        ("seed", job.get("seed")),
        ("tag", job.get("tag")),
        ("request_id", job.get("request_id")),
        ("created", Moment(job["created_at"])),
        ("started", Moment(job["started_at"])),
        ("finished", Moment(job["finished_at"])),
        ("page", job.get("url")),
    ]


def cost_rows(cost: Mapping[str, Any]) -> Rows:
    """Returns what a Job or a Trial cost, its parts, and what can have changed it or its score."""
    least = "at least " if cost.get("unpriced_calls") else ""
    parts = [
        f"{name} {money(cost[f'{name}_usd'])}"
        for name in ("model", "sandbox", "verifier")
        if _some(cost, f"{name}_usd")
    ]
    rows: list[tuple[str, object]] = [("cost", least + marked(money(cost["total_usd"]), cost))]
    if parts:
        rows.append(("cost of", ", ".join(parts)))
    if _some(cost, "overrun_usd"):
        rows.append(("above its bound", money(cost["overrun_usd"])))
    counts = [f"{cost[name]} {text}" for name, text in _CALLS.items() if cost.get(name)]
    return [*rows, ("model calls", ", ".join(counts))] if counts else rows


def _some(cost: Mapping[str, Any], name: str) -> bool:
    return cost.get(name, "0") not in {"0", None}


def _error_rows(job: Mapping[str, Any]) -> Rows:
    error = job.get("error")
    if not error:
        return []
    scope = f" (cap: {error['scope']})" if error.get("scope") else ""
    return [("error", f"{error['code']}: {error['message']}{scope}")]


def _counts(job: Mapping[str, Any]) -> str | None:
    counts = job.get("trial_counts")
    if counts is None:
        return None
    parts = [f"{counts[name]} {name}" for name in _COUNTED if counts.get(name)]
    return f"{counts['total']}: {', '.join(parts)}" if parts else str(counts["total"])


def _budget_rows(budget: Mapping[str, Any]) -> Rows:
    stopped = budget.get("stopped_by")
    rows: list[tuple[str, object]] = [
        ("cap", money(budget["max_cost_usd"])),
        ("reserved", money(budget["reserved_usd"])),
        ("left", money(budget["remaining_usd"])),
        ("budget", budget["state"]),
    ]
    if budget.get("max_cost_per_trial_usd") is not None:
        rows.insert(1, ("cap of a Trial", money(budget["max_cost_per_trial_usd"])))
    if note := warning(budget):
        rows.append(("warning", note))
    if stopped:
        rows.append(("stopped by", ", ".join(f"{name} {value}" for name, value in stopped.items())))
    return rows


def _dataset(ref: Mapping[str, Any], checked: object) -> str:
    return f"{ref['name']}@{ref['version']}{' (not checked)' if checked is False else ''}"


def _chosen_rows(job: Mapping[str, Any]) -> Rows:
    ref, profile, agent, runner = (job.get(name) or {} for name in ("dataset_ref", "profile", "agent", "runner"))
    return [
        ("dataset", _dataset(ref, job.get("dataset_checked")) if ref else None),
        ("profile", f"{profile['name']}@{profile['version']}" if profile else None),
        ("agent", agent.get("name")),
        ("model", agent.get("model")),
        ("runner", f"{runner['name']}@{runner['source_ref'] or runner['revision']}" if runner else None),
    ]
