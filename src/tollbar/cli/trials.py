"""`tollbar trials list` and `show`. What a Trial wrote is untrusted and is shown escaped."""

from __future__ import annotations

from typing import Annotated, Any, Final

from cyclopts import Parameter

from tollbar.cli.jobviews import cost_rows
from tollbar.cli.lists import FIRST_PAGE, Pages, show_list
from tollbar.cli.output import Column, Kind, Moment, Rows
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import marked, number
from tollbar.client.schemas import Trial, TrialResult

TrialId = Annotated[str, Parameter(help="The Trial's id, trial_...")]

_TRIALS: Final = (
    Column[Trial]("TRIAL", lambda trial: trial["trial_id"], Kind.WHOLE),
    Column[Trial]("NAME", lambda trial: trial["name"]),
    Column[Trial]("STATUS", lambda trial: trial["status"]),
    Column[Trial]("REWARD", lambda trial: marked(number(trial["reward"]), trial)),
    Column[Trial]("REASON", lambda trial: trial["reason"]),
    Column[Trial]("CREATED", lambda trial: trial["created_at"], Kind.TIME),
)


def list_trials(
    *,
    job: Annotated[str | None, Parameter(help="Only the Trials of this Job.")] = None,
    status: Annotated[str | None, Parameter(help="Only Trials in this state, such as failed.")] = None,
    pages: Pages = FIRST_PAGE,
    options: Global = NO_OPTIONS,
) -> None:
    """List Trials, newest first.

    Example: tollbar trials list --job job_01KDC4P2R8N5W3T7H9K1M6Q0VZ --status failed
    """
    session = Session(options)
    with session.client() as client:
        show_list(
            session.out,
            pages,
            lambda limit, cursor: client.trials(job_id=job, status=status, limit=limit, cursor=cursor),
            _TRIALS,
        )


def show_trial(trial: TrialId, /, *, options: Global = NO_OPTIONS) -> None:
    """Show a Trial: its reward or the reason why it has none, verifier, times, cost, artifacts.

    Example: tollbar trials show trial_01KDC4P3A1B2C3D4E5F6G7H8J9
    """
    session = Session(options)
    with session.client() as client:
        found = client.trial_result(trial)
    session.out.record(found, _rows(found))
    if not session.out.is_json and found["artifacts"]["items"]:
        session.out.note(f"its artifacts: tollbar artifacts list {found['trial_id']}")


def _rows(trial: TrialResult) -> Rows:
    verifier = trial["verifier"] or {}
    return [
        ("trial", trial["trial_id"]),
        ("job", trial["job_id"]),
        ("name", trial["name"]),
        ("attempt", f"{trial['attempt']} (try {trial['try_no']})"),
        ("status", trial["status"]),
        ("reward", marked(number(trial["reward"]), trial)),
        ("pass", trial["pass"]),
        ("reason", _reason(trial)),
        ("agent", trial["agent_outcome"]),
        *_steps(trial),
        *_structured(trial["structured_result"]),
        ("verifier", _pairs({name: verifier[name] for name in ("mode", "exit_code", "tests") if name in verifier})),
        ("times", ", ".join(f"{name} {seconds:g} s" for name, seconds in (trial["timings_s"] or {}).items())),
        *cost_rows(trial["cost"]),
        ("model", _used(trial["usage"] or {})),
        ("artifacts", _artifacts(trial)),
        *_kept(trial),
        ("finished", Moment(trial["finished_at"])),
    ]


def _used(usage: dict[str, Any]) -> str | None:
    """Returns how often which models were called, and the tokens."""
    if not usage.get("calls"):
        return None
    by_model = ", ".join(f"{item['calls']} calls of {item['model']}" for item in usage.get("by_model") or [])
    entered = sum(usage.get(name) or 0 for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens"))
    return f"{by_model or usage['calls']}: {entered} tokens in, {usage.get('output_tokens')} out"


def _reason(trial: TrialResult) -> str | None:
    parts = [trial["reason"], trial.get("reason_detail"), trial.get("message")]
    return ", ".join(str(part) for part in parts if part)


def _structured(result: dict[str, Any] | None) -> Rows:
    if not result:
        return []
    dimensions = _numbers(result.get("dimensions"))
    composite = result.get("composite")
    details = result.get("details")
    return [
        ("dimensions", dimensions),
        ("composite", number(composite) if isinstance(composite, int | float) else None),
        ("details (untrusted)", _pairs(details) if isinstance(details, dict) else details),
    ]


def _steps(trial: TrialResult) -> Rows:
    """Returns a row for each step that ran, after how many of how many did; none for a task without steps."""
    steps = trial.get("steps")
    if not steps:
        return []
    ran = f"{len(steps['items'])} of {trial.get('steps_total')}, reward by {steps['strategy']}"
    return [("steps", ran), *((f"step {step['name']}", _step(step)) for step in steps["items"])]


def _step(step: dict[str, Any]) -> str:
    reward = "no reward" if step["reward"] is None else f"reward {number(step['reward'])}"
    said = [reward, step["reason"], f"gate {step['gate']}" if step["gate"] else None]
    return ", ".join(part for part in said if part)


def _kept(trial: TrialResult) -> Rows:
    kept = trial.get("kept")
    if not kept:
        return []
    return [("sandbox", f"kept until {kept['until']} on {kept['host']}: tollbar trials shell {trial['trial_id']}")]


def _numbers(values: object) -> str | None:
    if not isinstance(values, dict):
        return None
    return ", ".join(f"{name} {number(value)}" for name, value in values.items() if isinstance(value, int | float))


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _artifacts(trial: TrialResult) -> str:
    page = trial["artifacts"]
    more = "" if page["next_cursor"] is None else " and more"
    return f"{len(page['items'])}{more}"
