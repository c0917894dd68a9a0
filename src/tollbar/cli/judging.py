"""How a Job that ended is told, and `--fail-under`: a score is judged only when enough of it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.cli.exits import Exit, of_job
from tollbar.cli.problems import Below, JobEnded, NothingToJudge
from tollbar.cli.text import measured, money, number

_ALL: Final = 1.0


@dataclass(frozen=True)
class Bar:
    """What a Job must reach; both values are between 0 and 1."""

    fail_under: float | None = None
    min_coverage: float | None = None

    @property
    def is_set(self) -> bool:
        return self.fail_under is not None or self.min_coverage is not None

    def judge(self, job: Mapping[str, Any]) -> Exit:
        """Returns `DONE` for a Job that may go on; raises `JobEnded`, `NothingToJudge`, `Below`.

        Call it when the Job has been written: what it raises follows data.
        """
        ended = of_job(job)
        if ended is not Exit.DONE:
            raise _told(job, ended)
        if not self.is_set:
            return ended
        if not job["final"]:
            raise NothingToJudge(
                "the Job has not ended, so its score cannot be judged yet",
                fix=f"wait for it: tollbar jobs watch {job['job_id']}{self._options()}",
            )
        scored, total = job["n_scored"], job["n_total"]
        wanted = _ALL if self.min_coverage is None else self.min_coverage
        if job["score"] is None or scored < wanted * total:
            raise NothingToJudge(
                f"only {scored} of {total} Trials have a reward, so the score is not judged",
                why=[f"--min-coverage is {number(wanted)}", *_reasons(job)],
                fix=f"see why: tollbar jobs result {job['job_id']}",
            )
        if self.fail_under is not None and job["score"] < self.fail_under:
            raise Below(
                f"the score is below {number(self.fail_under)}",
                why=[f"score {measured(job, 'score')}"],
                fix=f"see the Trials: tollbar jobs result {job['job_id']}",
            )
        return ended

    def _options(self) -> str:
        under = "" if self.fail_under is None else f" --fail-under {self.fail_under:g}"
        return under + ("" if self.min_coverage is None else f" --min-coverage {self.min_coverage:g}")


def _told(job: Mapping[str, Any], code: Exit) -> JobEnded:
    """Returns the error that tells how a Job ended."""
    error = job.get("error")
    look = f"see its Trials: tollbar jobs result {job['job_id']}"
    if error is None:
        return JobEnded("the Job was stopped", "CANCELLED", code, why=["finished Trials keep their rewards"], fix=look)
    if code is not Exit.CAPPED:
        return JobEnded("the Job failed", error["code"], code, why=[error["message"], *_reasons(job)], fix=look)
    budget = job["budget"]
    cap = "the project's daily budget" if error.get("scope") == "project_day" else "its cap"
    spent = f"spent {money(budget['spent_usd'])}, reserved {money(budget['reserved_usd'])}"
    why = [f"cap {money(budget['max_cost_usd'])}, {spent}", error["message"], "finished Trials keep their rewards"]
    return JobEnded(f"the Job was stopped by {cap}", error["code"], code, why=why, fix=look)


def _reasons(job: Mapping[str, Any]) -> list[str]:
    """Returns why Trials have no reward, as far as the object lists its Trials."""
    counts: dict[str, int] = {}
    for trial in (job.get("trials") or {}).get("items", []):
        if trial["reward"] is None:
            reason = str(trial["reason"] or trial["status"])
            counts[reason] = counts.get(reason, 0) + 1
    return [f"{count} x {reason}" for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
