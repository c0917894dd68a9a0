"""Objects as the server sends them (the contract's examples), with the members that a test changes."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

JOB_ID = "job_01KDC4P2R8N5W3T7H9K1M6Q0VZ"
TRIAL_ID = "trial_01KDC4P3F9G8H7J6K5M4N3P2Q1"
LOG = b"agent log line\n"

_JOB: dict[str, Any] = {
    "job_id": JOB_ID,
    "type": "agent",
    "name": "team/checkout@2 with team/claude-sonnet@4",
    "status": "running",
    "phase": "running",
    "error": None,
    "request_id": "nightly-2026-11-30",
    "tag": "nightly",
    "dataset_ref": {"kind": "dataset", "name": "team/checkout", "version": "2", "manifest_sha256": "05b3" * 16},
    "selection": {"config": None, "split": None, "task_id": None},
    "profile": {"name": "team/claude-sonnet", "version": "4", "sha256": "bbfd" * 16},
    "agent": {"name": "claude-code", "model": "anthropic:claude-sonnet-4-5"},
    "runner": {"name": "envhub/base", "revision": "527a" * 16, "source_ref": "main"},
    "attempts": 3,
    "total_tasks": 4,
    "trial_counts": {
        "total": 12, "pending": 4, "starting": 0, "running": 2, "verifying": 1, "stopping": 0,
        "succeeded": 5, "failed": 0, "cancelled": 0, "scored": 5,
    },
    "final": False,
    "score": 0.75,
    "pass": 0.75,
    "pass@k": {"1": 0.75, "2": 1.0, "3": 1.0},
    "pass^k": {"1": 0.75, "2": 0.5, "3": 1.0},
    "pass_tasks": {"1": 2, "2": 2, "3": 1},
    "n_scored": 5,
    "n_total": 12,
    "threshold": 1.0,
    "intervals": {"level": 0.95, "score": [0.0, 1.0], "pass": [0.0, 1.0]},
    "budget": {
        "max_cost_usd": "5", "spent_usd": "0.181", "reserved_usd": "0.62", "remaining_usd": "4.199",
        "state": "open", "stopped_by": None,
    },
    "cost": {
        "total_usd": "0.181", "model_usd": "0.173", "sandbox_usd": "0.008", "verifier_usd": "0",
        "price_snapshot": "genai-prices/0.2.3/4f1c09be72da", "unpriced_calls": 0,
    },
    "simulated": False,
    "poll_after_s": 0.05,
    "created_at": "2026-11-30T12:00:00.000Z",
    "started_at": "2026-11-30T12:00:01.204Z",
    "finished_at": None,
    "url": f"https://tollbar.example/jobs/{JOB_ID}",
}  # fmt: skip


def job(**changes: Any) -> dict[str, Any]:
    """A Job that runs."""
    return {**copy.deepcopy(_JOB), **changes}


def completed(**changes: Any) -> dict[str, Any]:
    """A Job that completed: 11 of 12 Trials scored, score 0.5."""
    counts = {**_JOB["trial_counts"], "pending": 0, "running": 0, "verifying": 0, "succeeded": 11, "failed": 1}
    ended = {
        "status": "completed", "phase": "done", "final": True, "score": 0.5, "pass": 0.416667, "n_scored": 11,
        "trial_counts": {**counts, "scored": 11}, "poll_after_s": None, "finished_at": "2026-11-30T12:09:40.911Z",
    }  # fmt: skip
    return job(**ended, **changes)


def capped() -> dict[str, Any]:
    """A Job that met its cap."""
    error = {"code": "BUDGET_EXCEEDED", "scope": "job", "message": "The cap of 5 USD leaves no room for the next call."}
    return {**completed(), "status": "cancelled", "error": error}


def stopped() -> dict[str, Any]:
    """A Job that a person stopped."""
    return {**completed(), "status": "cancelled"}


def failed() -> dict[str, Any]:
    """A Job without any reward."""
    error = {"code": "NO_TRIAL_SCORED", "message": "No Trial has a reward."}
    return {**completed(), "status": "failed", "error": error, "score": None, "pass": None, "n_scored": 0}


def result(of: dict[str, Any] | None = None) -> dict[str, Any]:
    """The result of a Job, with two of its Trials."""
    trials = [
        {
            "trial_id": "trial_01KDC4P3A1B2C3D4E5F6G7H8J9", "task_id": "add-button", "attempt": 1,
            "status": "succeeded", "reward": 1.0, "pass": True, "reason": None, "cost_usd": "0.031",
        },
        {
            "trial_id": "trial_01KDC4P3M7N8P9Q0R1S2T3V4W5", "task_id": "migrate-db", "attempt": 2,
            "status": "failed", "reward": None, "pass": None, "reason": "VERIFIER_TIMEOUT", "cost_usd": "0.0044",
        },
    ]  # fmt: skip
    usage = {"calls": 96, "input_tokens": 41200, "output_tokens": 8100, "by_model": []}
    return {**(of or completed()), "usage": usage, "trials": {"items": trials, "next_cursor": None}}


def trial(**changes: Any) -> dict[str, Any]:
    """A Trial."""
    return {
        "trial_id": TRIAL_ID, "type": "agent", "job_id": JOB_ID, "name": "fix-tax__3",
        "task": {"name": "team/fix-tax", "task_id": "fix-tax", "digest": "sha256:" + "9cac" * 16, "split": "test"},
        "attempt": 3, "try_no": 1, "status": "succeeded", "reward": 0.5, "pass": False, "reason": None,
        "agent_outcome": "completed", "created_at": "2026-11-30T12:00:00.000Z",
        "started_at": "2026-11-30T12:00:01.204Z", "finished_at": "2026-11-30T12:04:02.118Z", **changes,
    }  # fmt: skip


def trial_result(**changes: Any) -> dict[str, Any]:
    """A Trial's result."""
    more = {
        "structured_result": {
            "dimensions": {"correctness": 0.5, "style": 0.5},
            "composite": 0.5,
            "details": {"correctness": "1 of 2 cases"},
        },
        "verifier": {"mode": "separate", "exit_code": 0, "tests": "task", "sealed_sha256": "c9d0" * 16},
        "timings_s": {"prepare": 1.9, "agent": 58.2, "seal": 0.2, "verifier": 3.1},
        "usage": {"calls": 9, "output_tokens": 760},
        "cost": {"total_usd": "0.0402", "model_usd": "0.0386", "sandbox_usd": "0.0016", "verifier_usd": "0"},
        "substitutions": [],
        "artifact_refusals": [],
        "artifacts": artifacts(),
    }
    return {**trial(), **more, **changes}


def artifact(**changes: Any) -> dict[str, Any]:
    """An artifact whose bytes are `LOG`."""
    return {
        "artifact_id": "art_01KDC4Q7R0A1B2C3D4E5F6G7H8", "name": "agent/log.txt", "kind": "log",
        "media_type": "text/plain", "size": len(LOG), "sha256": hashlib.sha256(LOG).hexdigest(),
        "state": "available", "upload_state": "uploaded", "created_at": "2026-11-30T12:04:01.900Z", **changes,
    }  # fmt: skip


def missing(**changes: Any) -> dict[str, Any]:
    """An artifact that was declared and never written."""
    lost = {"media_type": None, "size": None, "sha256": None, "state": "missing", "upload_state": "failed"}
    return artifact(artifact_id="art_01KDC4Q7T1B2C3D4E5F6G7H8J9", name="report.json", **lost, **changes)


def artifacts() -> dict[str, Any]:
    """A page of both."""
    return {"items": [artifact(), missing()], "next_cursor": None}


def dataset(**changes: Any) -> dict[str, Any]:
    """A dataset as a list holds it."""
    return {
        "name": "team/checkout", "type": "environment", "visibility": "private", "splits": ["dev", "test"],
        "authors": ["Ana Ruiz"], "versions": ["2", "1"], "version_count": 2, "default_version": "2",
        "catalog_updated_at": "2026-11-29T08:15:00.000Z", **changes,
    }  # fmt: skip


def version(**changes: Any) -> dict[str, Any]:
    """A version of a dataset."""
    return {
        "name": "team/checkout", "type": "environment", "version": "2", "revision": "05b3" * 16, "revision_ref": None,
        "manifest_sha256": "05b3" * 16, "digest": "sha256:" + "11c1" * 16, "task_count": 4,
        "splits": {"dev": 0, "test": 4}, "configs": [], "threshold": 1.0,
        "check": {"oracle_score": 1.0, "nop_score": 0.0, "flaky_tasks": [], "checked_at": "2026-11-29T08:20:00.000Z"},
        "published_at": "2026-11-29T08:15:00.000Z", **changes,
    }  # fmt: skip


def task() -> dict[str, Any]:
    """A task of that version."""
    digest = "sha256:" + "9cac" * 16
    return {
        "name": "team/add-button", "task_id": "add-button", "version": "2", "revision": "05b3" * 16, "digest": digest,
        "split": "test",
        "task_ref": {
            "kind": "task", "dataset": "team/checkout", "version": "2", "task_id": "add-button", "digest": digest,
        },
    }  # fmt: skip


def runner() -> dict[str, Any]:
    """A runner."""
    return {
        "name": "envhub/base", "revision": "527a" * 16, "source_ref": "main", "visibility": "public",
        "created_at": "2026-11-20T09:00:00.000Z", "backend": "bwrap", "capabilities": {"regrade": True},
    }  # fmt: skip


def profile() -> dict[str, Any]:
    """A profile as a list holds it."""
    return {
        "name": "tollbar/oracle", "version_count": 1, "default_version": "1", "updated_at": "2026-11-20T09:00:00.000Z",
    }  # fmt: skip


def me() -> dict[str, Any]:
    """Who a project key is."""
    return {
        "auth_method": "api_key",
        "key": {"key_id": "key_01", "kind": "project", "preset": "Project automation", "expires_at": None},
        "workspace": {"workspace_id": "ws_01", "name": "Main"},
        "project": {"project_id": "prj_01", "workspace_id": "ws_01", "name": "Checkout"},
        "capabilities": ["jobs.read", "jobs.run"],
    }


def page(*items: Any, next_cursor: str | None = None) -> dict[str, Any]:
    """A page of a list."""
    return {"items": list(items), "next_cursor": next_cursor}
