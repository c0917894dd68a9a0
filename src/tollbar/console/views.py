"""From the objects of the wire to what a page shows. A page computes nothing that the services do not say."""

from __future__ import annotations

import shlex
from decimal import Decimal
from typing import Any, Final

from tollbar.kit.jsonio import compact

_SYMBOLS: Final = {
    "pending": "○",
    "running": "◐",
    "stopping": "◑",
    "completed": "●",
    "failed": "✗",
    "cancelled": "■",
}
_NONE: Final = "-"


def money(usd: str | None) -> str:
    """Returns an amount with two decimals, or two significant digits below a cent; `-` for unknown."""
    if usd is None:
        return _NONE
    amount = Decimal(usd)
    if amount == 0 or amount >= Decimal("0.01"):
        return f"{amount:.2f} USD"
    return f"{amount.normalize():.2g} USD" if amount >= Decimal("0.0001") else f"{usd} USD"


def number(value: float | None) -> str:
    """Returns a score as it is shown; `-` for unknown, never 0."""
    return _NONE if value is None else f"{value:.3g}"


def interval(value: list[float] | None) -> str | None:
    return None if value is None else f"{value[0]:.3g} to {value[1]:.3g}"


def job_line(job: dict[str, Any]) -> dict[str, Any]:
    """Returns a Job as the list shows it."""
    counts, budget = job["trial_counts"], job["budget"]
    return {
        "id": job["job_id"],
        "name": job["name"],
        "tag": job["tag"],
        "status": job["status"],
        "symbol": _SYMBOLS[job["status"]],
        "done": counts["succeeded"] + counts["failed"] + counts["cancelled"],
        "total": counts["total"],
        "score": number(job["score"]),
        "interval": interval(job["intervals"]["score"]),
        "spent": money(budget["spent_usd"]),
        "cap": "no cap" if budget["max_cost_usd"] is None else money(budget["max_cost_usd"]),
        "created_at": job["created_at"],
    }


def job_page(job: dict[str, Any], matrix: dict[str, Any]) -> dict[str, Any]:
    """Returns what the page of one Job shows."""
    budget, cap = job["budget"], job["budget"]["max_cost_usd"]
    runner = f"{job['runner']['name']}@{job['runner']['source_ref'] or job['runner']['revision']}"
    shown = {
        **job_line(job),
        "error": job["error"],
        "final": job["final"],
        "n_scored": job["n_scored"],
        "n_total": job["n_total"],
        "pass_rate": number(job["pass"]),
        "pass_interval": interval(job["intervals"]["pass"]),
        "threshold": f"{job['threshold']:g}",
        "meter": None if cap is None else float(min(Decimal(1), Decimal(budget["spent_usd"]) / Decimal(cap))),
        "reserved": money(budget["reserved_usd"]),
        "verifier_cost": money(job["cost"]["verifier_usd"]),
        "agent": job["agent"]["name"],
        "profile": f"{job['profile']['name']}@{job['profile']['version']}",
        "runner": runner,
        "command": _command(job, runner),
        "call": _call(job, runner),
    }
    return {
        "job": shown,
        "attempts": range(1, job["attempts"] + 1),
        "tasks": [
            {"task_id": task["task_id"], "cells": [_cell(cell) for cell in task["cells"]]} for task in matrix["tasks"]
        ],
        "complete": matrix["complete"],
        "reasons": matrix["reasons"],
        "passes": _passes(job) if job["n_scored"] else [],
    }


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    base = {"trial_id": cell["trial_id"], "attempt": cell["attempt"]}
    if cell["reward"] is not None:
        reward = number(cell["reward"])
        passed = bool(cell["pass"])
        words = f"{cell['status']}, reward {reward}, {'passes' if passed else 'does not pass'}"
        return {
            **base,
            "kind": "pass" if passed else "below",
            "symbol": "✓" if passed else "✗",
            "shown": reward,
            "words": words,
        }
    if cell["reason"] is not None:
        words = f"{cell['status']}, no reward: {cell['reason']}"
        return {**base, "kind": "none", "symbol": "!", "shown": "", "words": words}
    return {**base, "kind": "open", "symbol": "…", "shown": "", "words": cell["status"]}


def _passes(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"k": k, "at": number(value), "hat": number(job["pass^k"][k]), "tasks": job["pass_tasks"][k]}
        for k, value in job["pass@k"].items()
    ]


def _command(job: dict[str, Any], runner: str) -> str:
    dataset = f"{job['dataset_ref']['name']}@{job['dataset_ref']['version']}"
    words = ["tollbar", "jobs", "submit", dataset, "--profile", f"{job['profile']['name']}@{job['profile']['version']}"]
    words += ["--runner", runner, "--attempts", str(job["attempts"])]
    cap = job["budget"]["max_cost_usd"]
    words += ["--no-cap"] if cap is None else ["--max-cost", cap]
    return shlex.join(words)


def _call(job: dict[str, Any], runner: str) -> str:
    return compact(
        {
            "dataset": f"{job['dataset_ref']['name']}@{job['dataset_ref']['version']}",
            "profile_name": job["profile"]["name"],
            "profile_version": job["profile"]["version"],
            "runner": runner,
            "attempts": job["attempts"],
            "request_id": "CHOOSE-ONE",
            "max_cost_usd": job["budget"]["max_cost_usd"] or "1",
        }
    )
