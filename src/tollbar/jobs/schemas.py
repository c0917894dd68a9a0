"""The wire objects of Jobs and Trials (contract, section 15), built from rows. Numbers are rounded here alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tollbar.budget.schemas import BudgetView, Spent
from tollbar.jobs import statistics
from tollbar.jobs.states import JOB_TERMINAL, JobState, TrialState, job_phase
from tollbar.jobs.statistics import Interval, Scores, TaskScore
from tollbar.jobs.tables import JobRow, JobTaskRow, TrialRow
from tollbar.kit.clock import wire_time
from tollbar.kit.money import format_usd

UNTRUSTED: Final = "Artifact contents and structured_result.details were written by the evaluated run."
POLL_AFTER_S: Final = 2


@dataclass(frozen=True)
class JobView:
    """Everything that a Job's object is made of: rows whose number does not depend on the number of Trials."""

    job: JobRow
    tasks: Sequence[JobTaskRow]
    active: Mapping[str, int]
    budget: BudgetView
    origin: str
    """Public origin of this server, for links."""
    only_reason: str | None = None
    """The one reason of every Trial that ended so far, where none has a reward."""
    is_served: bool = True
    """A living worker runs sandboxes of the Job's backend, or it needs none any more."""
    is_checked: bool = True
    """The project has checked this version of the dataset to the end."""

    @property
    def n_total(self) -> int:
        return self.job.n_slots

    def counts(self) -> dict[str, int]:
        """Returns how many Trials are in each state of the wire, and how many are scored."""
        ended = {
            "succeeded": sum(task.n_succeeded for task in self.tasks),
            "failed": sum(task.n_failed for task in self.tasks),
            "cancelled": sum(task.n_cancelled for task in self.tasks),
        }
        active = {state: self.active.get(state, 0) for state in ("starting", "running", "verifying", "stopping")}
        waiting = self.n_total - sum(ended.values()) - sum(active.values())
        return {"total": self.n_total, "pending": max(0, waiting), **active, **ended, "scored": ended["succeeded"]}

    def scores(self) -> Scores:
        """Returns the scores so far, from the sums per task."""
        found = [
            TaskScore(task.n_succeeded, task.n_passed, task.reward_sum / task.n_succeeded)
            for task in self.tasks
            if task.n_succeeded
        ]
        return statistics.score(found, attempts=self.job.attempts, n_total=self.n_total)


def rounded(value: float | None) -> float | None:
    """Returns a computed number as it goes out: 6 decimal places."""
    return None if value is None else round(value, 6)


def _interval(value: Interval | None) -> list[float] | None:
    return None if value is None else [round(value[0], 6), round(value[1], 6)]


def scores_object(scores: Scores, threshold: float) -> dict[str, Any]:
    """Returns the top-level members that say how good, how sure, and of how many."""
    return {
        "score": rounded(scores.score),
        "pass": rounded(scores.pass_rate),
        "pass@k": {str(k): rounded(value) for k, value in scores.pass_at.items()},
        "pass^k": {str(k): rounded(value) for k, value in scores.pass_hat.items()},
        "pass_tasks": {str(k): count for k, count in scores.pass_tasks.items()},
        "n_scored": scores.n_scored,
        "n_total": scores.n_total,
        "threshold": threshold,
        "intervals": {
            "level": 0.95,
            "score": _interval(scores.score_interval),
            "pass": _interval(scores.pass_interval),
        },
    }


def error_object(job: JobRow) -> dict[str, str] | None:
    if job.error_code is None:
        return None
    body = {"code": job.error_code, "message": job.error_message or ""}
    return body if job.error_scope is None else {**body, "scope": job.error_scope}


def execution_object(job: JobRow) -> dict[str, Any]:
    """Returns how the Job's Trials run, as it was resolved; times in seconds."""
    return {
        "timeout_sec": job.timeout_s,
        "sandbox_form": job.sandbox_form,
        "keep_failed_sec": job.keep_failed_s,
    }


def job_object(view: JobView) -> dict[str, Any]:
    """Returns the Job of the wire: status, phase, scores so far, counts, budget and cost."""
    job, counts, state = view.job, view.counts(), JobState(view.job.state)
    return {
        "job_id": job.id,
        "type": job.type,
        "name": job.name,
        "status": state.value,
        "phase": job_phase(state, expanded=job.expanded, any_verifying=_only_verifying(counts)),
        "error": error_object(job),
        "request_id": job.request_id,
        "tag": job.tag,
        "dataset_ref": job.dataset_ref,
        "dataset_checked": view.is_checked,
        "selection": job.selection,
        "profile": job.profile,
        "agent": {"name": job.agent, "model": job.model},
        "runner": {key: job.runner[key] for key in ("name", "revision", "source_ref")},
        "params": job.params,
        "seed": job.seed,
        "priority": 1000 - job.rank_priority,
        "execution": execution_object(job),
        "max_concurrent": job.max_running,
        "retry_of": job.retry_of,
        "attempts": job.attempts,
        "total_tasks": job.total_tasks,
        "trial_counts": counts,
        "warnings": warnings_of(view),
        "final": state in JOB_TERMINAL,
        **scores_object(view.scores(), job.threshold),
        "budget": {**view.budget.budget_object(), "max_cost_per_trial_usd": usd_or_none(job.trial_cap_pusd)},
        "cost": view.budget.cost_object(),
        "simulated": view.budget.counts.simulated > 0,
        "poll_after_s": None if state in JOB_TERMINAL else POLL_AFTER_S,
        "created_at": wire_time(job.created_at),
        "started_at": wire_time(job.started_at),
        "finished_at": wire_time(job.finished_at),
        "url": f"{view.origin}/jobs/{job.id}",
    }


def warnings_of(view: JobView) -> list[dict[str, str]]:
    """Returns what whoever watches the Job should look at now."""
    return [*_fruitless(view), *_unserved(view)]


def _fruitless(view: JobView) -> list[dict[str, str]]:
    if view.only_reason is None:
        return []
    ended = view.counts()["failed"]
    what = "the only Trial that ended" if ended == 1 else f"all {ended} Trials that ended"
    message = f"No reward so far: {what} failed with {view.only_reason}. Its Trials say more."
    return [{"code": "NO_TRIAL_SCORED_YET", "reason": view.only_reason, "message": message}]


def _unserved(view: JobView) -> list[dict[str, str]]:
    if view.is_served:
        return []
    backend = view.job.runner["backend"]
    where = ", on a machine where a Docker engine answers" if backend == "docker" else ""
    message = f"The Job waits: no living worker runs {backend} sandboxes. Start one: tollbar worker{where}."
    return [{"code": "NO_LIVING_WORKER", "reason": backend, "message": message}]


def usd_or_none(pusd: int | None) -> str | None:
    return None if pusd is None else format_usd(pusd)


def _only_verifying(counts: Mapping[str, int]) -> bool:
    return counts["verifying"] > 0 and not any(counts[state] for state in ("pending", "starting", "running"))


def trial_status(state: str) -> str:
    """Returns the wire's word: `admitted` is ours alone."""
    return TrialState.PENDING.value if state == TrialState.ADMITTED.value else state


def states_of(status: str) -> list[str]:
    """Returns the states that a wire word covers."""
    return ["pending", "admitted"] if status == "pending" else [status]


def result_item(trial: TrialRow, spent: Spent) -> dict[str, Any]:
    """Returns a Trial as a Job's result lists it."""
    return {
        "trial_id": trial.id,
        "task_id": trial.task_id,
        "attempt": trial.attempt,
        "status": trial_status(trial.state),
        "reward": trial.reward,
        "pass": trial.passed,
        "reason": trial.reason,
        "reason_detail": trial.reason_detail,
        "agent_outcome": trial.agent_outcome,
        **steps_counts(trial),
        "cost_usd": format_usd(spent.total_pusd),
        "simulated": spent.simulated,
    }


def matrix_cell(trial: TrialRow) -> dict[str, Any]:
    """Returns a Trial as a cell of the matrix."""
    return {
        "trial_id": trial.id,
        "attempt": trial.attempt,
        "status": trial_status(trial.state),
        "reward": trial.reward,
        "pass": trial.passed,
        "reason": trial.reason,
        "agent_outcome": trial.agent_outcome,
    }


def steps_counts(trial: TrialRow) -> dict[str, int | None]:
    """Returns how many steps ran, of how many: a mean over fewer steps than there are must show it.

    None for a task without steps.
    """
    steps = trial.steps
    run, total = (None, None) if steps is None else (len(steps["items"]), steps["total"])
    return {"steps_run": run, "steps_total": total}


def steps_object(trial: TrialRow) -> dict[str, Any] | None:
    """Returns the steps that ran, in their order, and how the reward follows from them; None without steps."""
    if trial.steps is None:
        return None
    return {"strategy": trial.steps["strategy"], "items": trial.steps["items"]}


def kept_object(trial: TrialRow) -> dict[str, Any] | None:
    """Returns until when and on which machine the Trial's sandbox is kept, or None."""
    return None if trial.kept_until is None else {"until": wire_time(trial.kept_until), "host": trial.kept_on}


def trial_object(trial: TrialRow, kind: str, *, simulated: bool) -> dict[str, Any]:
    """Returns the Trial of the wire. `simulated`: a model call of it was answered from a script."""
    return {
        "trial_id": trial.id,
        "type": kind,
        "job_id": trial.job_id,
        "name": f"{trial.task_id}__{trial.attempt}",
        "task": {"name": trial.task_name, "task_id": trial.task_id, "digest": trial.task_digest, "split": trial.split},
        "attempt": trial.attempt,
        "try_no": trial.try_no,
        "status": trial_status(trial.state),
        "reward": trial.reward,
        "pass": trial.passed,
        "reason": trial.reason,
        "reason_detail": trial.reason_detail,
        "message": trial.message,
        "agent_outcome": trial.agent_outcome,
        "simulated": simulated,
        **steps_counts(trial),
        "kept": kept_object(trial),
        "created_at": wire_time(trial.created_at),
        "started_at": wire_time(trial.started_at),
        "finished_at": wire_time(trial.finished_at),
    }


def trial_result_object(
    trial: TrialRow, kind: str, spent: Spent, usage: Mapping[str, Any], artifacts: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a Trial's result: reward or reason, structured result, evidence, cost of all its tries."""
    return {
        **trial_object(trial, kind, simulated=spent.simulated),
        "structured_result": trial.structured,
        "steps": steps_object(trial),
        "verifier": trial.verifier,
        "timings_s": trial.timings,
        "usage": usage,
        "cost": spent.wire(),
        "agent_report": trial.agent_report,
        "substitutions": trial.substitutions,
        "sandbox_forms": trial.sandbox_forms,
        "flags": trial.flags,
        "artifact_refusals": trial.refusals,
        "sealed_sha256": trial.sealed_sha256,
        "artifacts": artifacts,
        "untrusted": UNTRUSTED,
    }
