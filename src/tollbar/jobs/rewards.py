"""Reads what a verifier wrote, strictly: a reward is one finite number, or there is none and a reason.

An invalid reward is never 0. `reward.json` decides when it exists, valid or not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tollbar.kit.jsonio import DuplicateKey, NotFinite, loads_strict
from tollbar.kit.text import unstorable

MAX_REWARD_BYTES: Final = 64 << 10
MAX_DETAILS_BYTES: Final = 256 << 10
_MAX_VALUE: Final = 1e9
_MAX_KEYS: Final = 64
_MAX_DEPTH: Final = 64
_UNREADABLE: Final = object()
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FAILURE_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class RewardFiles:
    """The bytes of regular files below `/logs/verifier`, each read to its limit and one byte more; None: no file."""

    json: bytes | None
    txt: bytes | None
    details: bytes | None


@dataclass(frozen=True)
class Unscored:
    """There is no reward; `reason` and `detail` are stable words."""

    reason: str
    detail: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class Graded:
    """A reward with what stands beside it."""

    reward: float
    dimensions: Mapping[str, float] = field(default_factory=dict[str, float])
    composite: float | None = None
    details: Any = None
    failure_code: str | None = None
    flags: tuple[str, ...] = ()
    members: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)
    """What the reward file held, by name; a lone number stands under `reward`."""

    def structured(self) -> dict[str, Any] | None:
        """Returns what stands beside the reward on the wire (`structured_result`), or None when there is nothing."""
        if not self.dimensions and self.details is None:
            return None
        found = {"dimensions": dict(self.dimensions), "composite": self.composite, "details": self.details}
        return found if self.failure_code is None else {**found, "failure_code": self.failure_code}


class _Invalid(Exception):
    def __init__(self, detail: str, reason: str = "REWARD_INVALID") -> None:
        super().__init__(detail)
        self.outcome = Unscored(reason, detail)


def read(files: RewardFiles, weights: Mapping[str, float]) -> Graded | Unscored:
    """Returns the reward that the files hold; `weights` are those declared for the task (empty: none)."""
    try:
        return _read(files, weights)
    except _Invalid as error:
        return error.outcome


def _read(files: RewardFiles, weights: Mapping[str, float]) -> Graded:
    if files.json is not None:
        members = _read_json(files.json)
    elif files.txt is not None:
        members = {"reward": _read_txt(files.txt)}
    else:
        raise _Invalid("absent", "REWARD_MISSING")
    flags: list[str] = []
    if files.json is not None and files.txt is not None and _differs(files.txt, members):
        flags.append("reward_files_differ")
    extra, details, failure_code = _details(files.details, flags)
    dimensions = _dimensions(members, extra)
    composite = _composite(members, dimensions, weights)
    reward = _scalar(members, composite)
    return Graded(reward, dimensions, composite, details, failure_code, tuple(flags), members)


def mean(steps: Sequence[Graded], weights: Mapping[str, float]) -> Graded | Unscored:
    """Returns the mean over the steps of a task, key by key; a key that a step lacks counts 0 there.

    A dimension that a step lacks is left out instead: only the reward follows the format's own rule.
    """
    members = _means([step.members for step in steps], absent_is_zero=True)
    dimensions = _means([step.dimensions for step in steps], absent_is_zero=False)
    composite = _composite(members, dimensions, weights)
    code = next((step.failure_code for step in reversed(steps) if step.failure_code), None)
    flags = tuple(dict.fromkeys(flag for step in steps for flag in step.flags))
    try:
        return Graded(_scalar(members, composite), dimensions, composite, None, code, flags, members)
    except _Invalid as error:
        return error.outcome


def _means(tables: Sequence[Mapping[str, float]], *, absent_is_zero: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table[name] for table in tables if name in table]
        found[name] = math.fsum(values) / (len(tables) if absent_is_zero else len(values))
    return found


def _scalar(members: Mapping[str, float], composite: float | None) -> float:
    if "reward" in members:
        return members["reward"]
    if len(members) == 1:
        return next(iter(members.values()))
    if composite is None:
        raise _Invalid("missing_dimension")
    return composite


def _dimensions(members: Mapping[str, float], extra: Mapping[str, float]) -> dict[str, float]:
    """Other members than `reward` (a single member is a dimension, too), over those of the details file."""
    own = {name: value for name, value in members.items() if name != "reward"}
    return dict(extra) | own


def _composite(
    members: Mapping[str, float], dimensions: Mapping[str, float], weights: Mapping[str, float]
) -> float | None:
    """Weighted mean over declared dimensions (None when one is missing); undeclared: the reward, else the mean."""
    if weights:
        if any(name not in dimensions for name in weights):
            return None
        total = math.fsum(weights.values())
        return math.fsum(weight * dimensions[name] for name, weight in weights.items()) / total
    if "reward" in members:
        return members["reward"]
    return math.fsum(members.values()) / len(members)


def _differs(txt: bytes, members: Mapping[str, float]) -> bool:
    try:
        other = _read_txt(txt)
    except _Invalid:
        return True
    return other != members.get("reward", next(iter(members.values())))


def _decode(data: bytes, limit: int) -> str:
    if len(data) > limit:
        raise _Invalid("size", "REWARD_TOO_LARGE")
    if data.startswith(_BOM):
        raise _Invalid("bom")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _Invalid("encoding") from None
    if not text.strip(" \t\r\n"):
        raise _Invalid("empty", "REWARD_MISSING")
    return text


def _read_txt(data: bytes) -> float:
    text = _decode(data, MAX_REWARD_BYTES).strip(" \t\r\n")
    if not _NUMBER.fullmatch(text):
        word = text.lower().lstrip("+-")
        raise _Invalid("not_finite" if word in {"nan", "inf", "infinity"} else "not_a_number")
    return _bounded(float(text))


def _read_json(data: bytes) -> dict[str, float]:
    value = _parse(_decode(data, MAX_REWARD_BYTES))
    if not isinstance(value, dict):
        raise _Invalid("not_an_object")
    members: dict[str, Any] = value
    if not members:
        raise _Invalid("no_keys")
    return _numbers(members)


def _numbers(members: Mapping[str, Any]) -> dict[str, float]:
    if len(members) > _MAX_KEYS:
        raise _Invalid("too_many_keys")
    if any(not 1 <= len(name) <= 128 or not name.isprintable() for name in members):
        raise _Invalid("bad_key")
    return {name: _number(member) for name, member in members.items()}


def _parse(text: str) -> Any:
    try:
        return loads_strict(text)
    except DuplicateKey:
        raise _Invalid("duplicate_key") from None
    except NotFinite:
        raise _Invalid("not_finite") from None
    except json.JSONDecodeError:
        raise _Invalid("syntax") from None
    except (ValueError, RecursionError):
        raise _Invalid("out_of_range") from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Invalid("not_a_number")
    if abs(value) > _MAX_VALUE:
        raise _Invalid("out_of_range")
    return _bounded(float(value))


def _bounded(value: float) -> float:
    if not math.isfinite(value):
        raise _Invalid("not_finite")
    if abs(value) > _MAX_VALUE:
        raise _Invalid("out_of_range")
    return value + 0.0 if value else 0.0


def _details(data: bytes | None, flags: list[str]) -> tuple[dict[str, float], Any, str | None]:
    """Returns (dimensions, free details, failure code); a bad details file never touches the reward."""
    if data is None:
        return {}, None, None
    try:
        value = _parse(_decode(data, MAX_DETAILS_BYTES))
    except _Invalid:
        value = _UNREADABLE
    if value is _UNREADABLE or _too_deep(value) or unstorable(value) is not None:
        flags.append("details_invalid")
        return {}, None, None
    code = value.get("failure_code") if isinstance(value, dict) else None
    failure = code if isinstance(code, str) and _FAILURE_CODE.fullmatch(code) else None
    try:
        numbers = _numbers(value) if isinstance(value, dict) else None
    except _Invalid:
        numbers = None
    if numbers is None:
        return {}, value, failure
    return numbers, None, failure


def _too_deep(value: Any) -> bool:
    """Says whether lists and objects are nested deeper than every later reader takes."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [member for item in level for member in _members(item)]
        if not level:
            return False
    return True


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
