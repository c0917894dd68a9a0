"""Values of a compose file: variables, sizes, lists that may be tables; each refusal names the place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tollbar.sandboxes.errors import EnvironmentRefused

FILE: Final = "docker-compose.yaml"
_MAX_NODES: Final = 10_000
_VARIABLE: Final = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?::?-(?P<default>[^${}]*))?\})"
)
_SIZE: Final = re.compile(r"(\d+)\s*(b|k|m|g|kb|mb|gb)?\Z", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def refused(where: str, problem: str) -> EnvironmentRefused:
    """Returns the refusal of a key, to be raised."""
    return EnvironmentRefused("key", f"{FILE}: {where} {problem}")


def filled(value: Any) -> Any:
    """Returns the document with its variables replaced: none has a value here, so each is its default, or empty.

    Raises `EnvironmentRefused` for a variable in another form, and for a document that its aliases make huge.
    """
    left = [_MAX_NODES]

    def fill(node: Any, where: str) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise refused("the file", "has too many members.")
        if isinstance(node, dict):
            return {str(key): fill(member, f"{where}.{key}" if where else str(key)) for key, member in node.items()}
        if isinstance(node, list):
            return [fill(member, f"{where}[{number}]") for number, member in enumerate(node)]
        return _filled(node, where) if isinstance(node, str) else node

    return fill(value, "")


def _filled(value: str, where: str) -> str:
    def one(match: re.Match[str]) -> str:
        return "$" if match["escaped"] else match["default"] or ""

    rest = _VARIABLE.sub("", value)
    if "$" in rest:
        raise refused(where, "has a variable in a form that is not offered; $NAME, ${NAME} and ${NAME:-default} are.")
    return _VARIABLE.sub(one, value)


def text(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise refused(where, "must be text.")
    return str(value)


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise refused(where, "must be true or false.")
    return value


def count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refused(where, "must be a whole number.")
    return value


def number(value: Any, where: str) -> float:
    try:
        found = float(text(value, where))
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise refused(where, "must be a number above 0.")
    return found


def size(value: Any, where: str) -> int:
    """Returns bytes of `512m`, `1gb` or a number."""
    found = _SIZE.match(text(value, where).strip())
    if found is None:
        raise refused(where, "must be a size such as 512m.")
    return int(found[1]) * _UNITS[(found[2] or "").lower().removesuffix("b") or "b"]


def table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refused(where, "must be a table.")
    return value


def texts(value: Any, where: str) -> list[str]:
    """Returns one text, or a list of them, as a list."""
    if isinstance(value, list):
        return [text(member, f"{where}[{at}]") for at, member in enumerate(value)]
    return [text(value, where)]


def words(value: Any, where: str) -> str | list[str] | None:
    """Returns a command: a text for Compose to split, or a list of words."""
    return value if value is None or isinstance(value, str) else texts(value, where)


def pairs(value: Any, where: str) -> dict[str, str]:
    """Returns names with their texts, from a table or from a list of `NAME=text`; one without a text is left out."""
    if isinstance(value, dict):
        return {name: _pair(member, f"{where}.{name}") for name, member in value.items() if member is not None}
    split = (entry.partition("=") for entry in texts(value, where))
    return {name: member for name, equals, member in split if equals}


def _pair(value: Any, where: str) -> str:
    return str(value).lower() if isinstance(value, bool) else text(value, where)


def inside(folder: Path, value: str, where: str) -> str:
    """Returns a path of the task relative to `folder`. Raises `EnvironmentRefused` for one that leads out of it."""
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "://" in value:
        raise refused(where, "must be a path inside the folder of this file.")
    whole = (folder / path).resolve()
    if not whole.is_relative_to(folder.resolve()) or not whole.exists():
        raise refused(where, f"names {value}, which is not in the folder of this file.")
    return path.as_posix()


def only(value: Mapping[str, Any], allowed: Mapping[str, Callable[[Any, str], Any]], where: str) -> dict[str, Any]:
    """Returns a table's members, each as its reader gives it back. Raises `EnvironmentRefused` for any other key."""
    for name in value:
        if name not in allowed:
            raise refused(f"{where}.{name}", "is not allowed in a task.")
    return {name: allowed[name](member, f"{where}.{name}") for name, member in value.items()}
