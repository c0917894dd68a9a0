"""Reads a submission and brings it to one form, whichever interface it came through.

Two submissions are the same request when their normal forms are equal: defaults filled in, `name@version` turned
into the selector object, money as canonical decimals, null members dropped, `request_id` left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.agents.command import COMMAND_RULE, is_command
from tollbar.jobs.errors import (
    InvalidAttempts,
    InvalidCommand,
    InvalidJob,
    InvalidJobId,
    InvalidJobType,
    InvalidPriority,
    InvalidRequestId,
    InvalidTag,
    QueueNotFound,
    UnsupportedCapability,
    UnsupportedTaskForm,
)
from tollbar.jobs.forms import AskedForm
from tollbar.kit.errors import InvalidRequest
from tollbar.kit.jsonio import canonical_sha256
from tollbar.kit.money import format_usd, parse_usd

MIN_CAP_USD: Final = "0.000001"
MAX_CAP_USD: Final = "100000"
_CAPS: Final = ("max_cost_usd", "max_cost_per_trial_usd")
MAX_ATTEMPTS: Final = 100
MAX_KEEP_S: Final = 7 * 86400.0
"""The longest that a sandbox is kept."""

_SELECTORS: Final = ("dataset", "dataset_ref", "task_ref")
_BESIDE_RETRY: Final = frozenset(
    {"type", "retry_of", "request_id", *_CAPS, "tag", "priority", "max_concurrent", "queue_id", "dry_run"}
)
_KNOWN: Final = frozenset(
    {
        "type", *_SELECTORS, "request_id", "attempts", "runner", "profile_name", "profile_version", "profile_id",
        "profile", "params", "tag", *_CAPS, "seed", "priority", "queue_id", "execution",
        "allow_base_substitution", "dry_run", "command", "max_concurrent",
        "retry_of",
    }
)  # fmt: skip
_ELSEWHERE: Final = ("source_train_job_id", "source_train_trial_id", "image", "trials", "spec")
_OTHER_TYPES: Final = frozenset({"train", "inference", "sandbox"})


@dataclass(frozen=True)
class Execution:
    """How Trials run: times in seconds, and the form of their sandboxes (`forms.AskedForm`)."""

    timeout_s: float | None = None
    sandbox_form: AskedForm = AskedForm.AUTO
    keep_failed_s: float = 0.0

    @property
    def asked_form(self) -> str | None:
        """Returns the form, None where the choice is left to the server."""
        return None if self.sandbox_form is AskedForm.AUTO else self.sandbox_form.value


@dataclass(frozen=True)
class Submission:
    """A submission in its normal form; names are not resolved yet."""

    request_id: str | None
    source: dict[str, Any]
    """Exactly one of `dataset`, `dataset_ref`, `task_ref` with its object."""
    attempts: int
    runner: str | None
    profile_name: str | None
    profile_version: str | None
    params: dict[str, Any]
    """Upper-case names."""
    tag: str | None
    cap_pusd: int | None
    trial_cap_pusd: int | None
    """The most that all tries of one Trial may cost together."""
    seed: int | None
    priority: int
    execution: Execution
    allow_base_substitution: bool | None
    dry_run: bool
    command: str | None = None
    """What the agent `command` runs."""
    max_concurrent: int | None = None
    """The most Trials of the Job that run at once."""

    def normal(self) -> dict[str, Any]:
        """Returns what is compared between two submissions under one `request_id`."""
        whole: dict[str, Any] = {
            "type": "agent",
            **self.source,
            "attempts": self.attempts,
            "runner": self.runner,
            "profile_name": self.profile_name,
            "profile_version": self.profile_version,
            "params": self.params or None,
            "tag": self.tag,
            **{name: None if cap is None else format_usd(cap) for name, cap in zip(_CAPS, self._caps, strict=True)},
            "seed": self.seed,
            "priority": self.priority,
            "timeout_sec": self.execution.timeout_s,
            "sandbox_form": self.execution.asked_form,
            "keep_failed_sec": self.execution.keep_failed_s or None,
            "allow_base_substitution": self.allow_base_substitution,
            "command": self.command,
            "max_concurrent": self.max_concurrent,
        }
        return {name: value for name, value in whole.items() if value is not None}

    @property
    def _caps(self) -> tuple[int | None, int | None]:
        return self.cap_pusd, self.trial_cap_pusd

    def sha256(self) -> str:
        return canonical_sha256(self.normal())


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the names of members that differ, sorted; never their values."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def request_id_of(request: Mapping[str, Any]) -> str | None:
    """Returns the caller's `request_id`; raises `InvalidRequestId`."""
    value = request.get("request_id")
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= 128 or not value.isprintable():
        raise InvalidRequestId
    return value


def read(request: Mapping[str, Any]) -> Submission:
    """Reads a submission's JSON object; each bad member is refused with its own code."""
    given = {name: value for name, value in request.items() if value is not None}
    _refuse_foreign(given)
    name, version = _profile(given)
    return Submission(
        request_id=request_id_of(given),
        source=_source(given),
        attempts=_attempts(given.get("attempts", 1)),
        runner=_text(given, "runner"),
        profile_name=name,
        profile_version=version,
        params=_params(given.get("params", {})),
        tag=_tag(given.get("tag")),
        cap_pusd=_cap(given, "max_cost_usd"),
        trial_cap_pusd=_cap(given, "max_cost_per_trial_usd"),
        seed=_seed(given),
        priority=_priority(given.get("priority", 0)),
        execution=_execution(given.get("execution", {})),
        allow_base_substitution=_flag(given, "allow_base_substitution"),
        dry_run=_flag(given, "dry_run") or False,
        command=_command(given.get("command")),
        max_concurrent=_concurrent(given.get("max_concurrent")),
    )


def _refuse_foreign(given: Mapping[str, Any]) -> None:
    kind = given.get("type", "agent")
    if kind in _OTHER_TYPES:
        raise UnsupportedCapability(f"Jobs of type {kind} are not offered here.")
    if kind == "regrade":
        raise UnsupportedCapability("Regrades are not in this version.")
    if kind != "agent":
        raise InvalidJobType
    if "job_id" in given:
        raise InvalidJobId
    if "task" in given:
        raise UnsupportedTaskForm
    for name in _ELSEWHERE:
        if name in given:
            raise UnsupportedCapability(f"{name} is not offered here.")
    if given.get("queue_id", "default") != "default":
        raise QueueNotFound
    unknown = sorted(set(given) - _KNOWN)
    if unknown:
        raise InvalidRequest([{"path": name, "problem": "is not a member of a submission"} for name in unknown])


def _source(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the selectors as given, `name@version` as the object that it means; the catalogue judges them."""
    if "retry_of" in given:
        beside = sorted(set(given) - _BESIDE_RETRY)
        if beside:
            raise InvalidJob(f"A retry takes the frozen snapshot of its source: {', '.join(beside)} cannot be given.")
        return {"retry_of": _text(given, "retry_of")}
    found: dict[str, Any] = {name: given[name] for name in _SELECTORS if name in given}
    for name, value in found.items():
        if name == "dataset" and isinstance(value, str):
            head, _, version = value.rpartition("@")
            found[name] = {"name": head, "version": version} if head else {"name": value}
        elif isinstance(value, dict):
            found[name] = {key: member for key, member in value.items() if member is not None}
    return found


def _attempts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ATTEMPTS:
        raise InvalidAttempts
    return value


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= 256):
        raise InvalidRequest([{"path": name, "problem": "must be text of 1 to 256 characters"}])
    return value


def _profile(given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Reads `profile_name` and `profile_version`, or what the outside client sends in their place: `profile_id`."""
    name, version = _text(given, "profile_name"), _text(given, "profile_version")
    combined = _text(given, "profile_id")
    if combined is not None:
        if name is not None or version is not None:
            raise InvalidJob("Give profile_id, or profile_name with profile_version, not both.")
        head, _, tail = combined.rpartition("@")
        name, version = (head, tail) if head else (combined, None)
    if version is not None and name is None:
        raise InvalidJob("profile_version needs profile_name.")
    return name, version


def _params(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest([{"path": "params", "problem": "must be an object"}])
    params: dict[str, Any] = {}
    for name, member in value.items():
        upper = str(name).upper()
        if upper in params:
            raise InvalidJob(f"The parameter {upper} is given twice (names are case-insensitive).")
        params[upper] = member
    return params


def _tag(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= 128 or not value.isprintable():
        raise InvalidTag
    return value


def _cap(given: Mapping[str, Any], name: str) -> int | None:
    if name not in given:
        return None
    return parse_usd(given[name], field=name, minimum=MIN_CAP_USD, maximum=MAX_CAP_USD)


def _seed(given: Mapping[str, Any]) -> int | None:
    profile = given.get("profile", {})
    if not isinstance(profile, dict) or set(profile) - {"seed"}:
        raise InvalidRequest([{"path": "profile", "problem": "must be an object with the one member seed"}])
    value = given.get("seed", profile.get("seed"))
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63):
        raise InvalidRequest([{"path": "seed", "problem": "must be a whole number of at most 64 bits"}])
    return value


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -100 <= value <= 100:
        raise InvalidPriority
    return value


def _execution(value: Any) -> Execution:
    known = ("timeout_sec", "sandbox_form", "keep_failed_sec", "delete_delay_sec")
    if not isinstance(value, dict) or set(value) - set(known):
        raise InvalidRequest([{"path": "execution", "problem": f"must be an object of {', '.join(known)}"}])
    if value.get("delete_delay_sec", 0) != 0:
        raise UnsupportedCapability(
            "Not every sandbox can be kept (execution.delete_delay_sec); execution.keep_failed_sec keeps those of"
            " Trials that did not pass."
        )
    form = value.get("sandbox_form")
    if form is not None and form not in list(AskedForm):
        problem = f"must be one of {', '.join(AskedForm)}"
        raise InvalidRequest([{"path": "execution.sandbox_form", "problem": problem}])
    timeout_s = _seconds(value, "timeout_sec", 7 * 86400)
    keep_s = _seconds(value, "keep_failed_sec", MAX_KEEP_S, least=0)
    return Execution(timeout_s, AskedForm(form or AskedForm.AUTO), keep_s or 0.0)


def _seconds(execution: Mapping[str, Any], name: str, most: float, *, least: float | None = None) -> float | None:
    """Reads a time: above 0, or from `least` on, and at most `most`."""
    value = execution.get(name)
    if value is None:
        return None
    fine = not isinstance(value, bool) and isinstance(value, int | float)
    if not fine or not (value > 0 if least is None else value >= least) or not value <= most:
        problem = f"must be a number of seconds, at most {most:g}"
        raise InvalidRequest([{"path": f"execution.{name}", "problem": problem}])
    return float(value)


def _command(value: Any) -> str | None:
    if value is not None and not is_command(value):
        raise InvalidCommand(COMMAND_RULE)
    return value


def _concurrent(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000):
        raise InvalidRequest([{"path": "max_concurrent", "problem": "must be a whole number from 1 to 10000"}])
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool | None:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest([{"path": name, "problem": "must be true or false"}])
    return value
