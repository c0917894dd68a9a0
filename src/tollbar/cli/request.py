"""The options of `jobs submit` that say what is to be run, and the members of a submission that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter

from tollbar.cli.datasets import split_version
from tollbar.cli.problems import Usage
from tollbar.kit.jsonio import loads_strict


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a Job is to be, as far as options say it."""

    profile: Annotated[str | None, Parameter(help="NAME[@VERSION]; default: the project's default profile.")] = None
    runner: Annotated[str | None, Parameter(help="NAME[@REVISION]; default: the profile's runner.")] = None
    attempts: Annotated[int, Parameter(name=["--attempts", "-k"], help="How often each task is tried, 1 to 100.")] = 1
    max_cost: Annotated[
        str | None, Parameter(help="The most that the Job may spend, in USD, such as 0.50; 5/0.20: and each Trial.")
    ] = None
    no_cap: Annotated[
        bool, Parameter(negative="", show_default=False, help="No cap of the Job's own; the project's default holds.")
    ] = False
    param: Annotated[
        tuple[str, ...], Parameter(negative="", show_default=False, help="KEY=VALUE for the agent; repeatable.")
    ] = ()
    split: Annotated[str | None, Parameter(help="Only the tasks of this split.")] = None
    config: Annotated[str | None, Parameter(help="Only the tasks of this named subset.")] = None
    task: Annotated[str | None, Parameter(help="Only this task.")] = None
    tag: Annotated[str | None, Parameter(help="A word to find the Job by.")] = None
    keep_failed: Annotated[
        str | None,
        Parameter(help="Keep the sandboxes of Trials that do not pass so long, such as 1h; see trials shell."),
    ] = None

    set_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            negative="",
            show_default=False,
            help="How it runs: priority=-100..100, max_concurrent=N, timeout=30m, sandbox_form=held; repeatable.",
        ),
    ] = ()

    def check_cap(self) -> None:
        """Raises `Usage` for options that contradict each other."""
        if self.max_cost is not None and self.no_cap:
            raise Usage("--max-cost and --no-cap exclude each other")

    def require_cap(self, default_usd: str | None) -> None:
        """Raises `Usage` unless a person has said what the Job may spend: here, or as the project's default cap."""
        if self.max_cost is None and not self.no_cap and default_usd is None:
            raise Usage("the Job needs a cap", fix="add --max-cost USD, or --no-cap to go without")

    @property
    def profile_name(self) -> str | None:
        return None if self.profile is None else split_version(self.profile)[0]

    def members(self) -> dict[str, Any]:
        """Returns the submission without its dataset; raises `Usage` for a parameter that is none."""
        version = None if self.profile is None else split_version(self.profile)[1]
        whole, _, share = (self.max_cost or "").partition("/")
        return given(
            {
                "profile_name": self.profile_name,
                "profile_version": version,
                "runner": self.runner,
                "attempts": self.attempts,
                "params": self._params() or None,
                "tag": self.tag,
                "max_cost_usd": whole or None,
                "max_cost_per_trial_usd": share or None,
                **self._how(),
            }
        )

    def selector(self, name: str, version: str | None) -> dict[str, Any]:
        """Returns which tasks of a dataset are meant."""
        return given(
            {"name": name, "version": version, "split": self.split, "config": self.config, "task_id": self.task}
        )

    def _params(self) -> dict[str, Any]:
        return {key: _json_or_text(value) for key, value in _pairs("--param", self.param).items()}

    def _how(self) -> dict[str, Any]:
        """Returns the members that say how the Trials run."""
        said = _pairs("--set", self.set_)
        unknown = sorted(set(said) - _SETTABLE)
        if unknown:
            raise Usage(f"--set {unknown[0]} is none of {', '.join(sorted(_SETTABLE))}")
        execution = given(
            {
                "timeout_sec": _seconds("--set timeout", said["timeout"]) if "timeout" in said else None,
                "sandbox_form": said.get("sandbox_form"),
                "keep_failed_sec": None if self.keep_failed is None else _seconds("--keep-failed", self.keep_failed),
            }
        )
        numbers = {name: _whole(name, said[name]) for name in ("priority", "max_concurrent") if name in said}
        return {**numbers, "execution": execution or None}


_SETTABLE: Final = frozenset({"priority", "max_concurrent", "timeout", "sandbox_form"})
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
ANY: Final = Wanted()
Request = Annotated[Wanted, Parameter(name="*")]


def given(members: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members that have a value."""
    return {name: value for name, value in members.items() if value is not None}


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Returns KEY=VALUE texts as a mapping; raises `Usage` for one that is none, or stands twice."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Usage(f"{option} {text} is not KEY=VALUE")
        if key in found:
            raise Usage(f"{option} {key} is given twice")
        found[key] = value
    return found


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Usage(f"--set {name}={text} is no whole number") from None


def _seconds(option: str, text: str) -> int:
    """Returns a time such as 90s, 30m, 1h or 2d in seconds; raises `Usage`."""
    number, unit = text[:-1], _UNITS_S.get(text[-1:])
    if unit is None or not number.isascii() or not number.isdigit():
        raise Usage(f"{option} {text} is no time such as 90s, 30m, 1h or 2d")
    return int(number) * unit


def _json_or_text(text: str) -> Any:
    try:
        return loads_strict(text)
    except (ValueError, RecursionError):
        return text
