"""Strict JSON in, canonical JSON out.

In: NaN, Infinity and duplicate keys are refused, because two readers would disagree about them.
Out: keys sorted, separators `,` and `:`, UTF-8 without escapes, so that equal values have equal hashes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

from tollbar.kit.errors import MalformedJson


class DuplicateKey(ValueError):
    """The same member name stands twice in one object."""


class NotFinite(ValueError):
    """A number is NaN, an infinity, or too large for a double."""


def loads_strict(data: bytes | str) -> Any:
    """Returns the value of a JSON text; raises `ValueError` (its subclasses name what is wrong)."""
    return json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def read_json(data: bytes) -> Any:
    """Returns the value of a request body; raises `MalformedJson` (400)."""
    try:
        return loads_strict(data.decode("utf-8"))
    except DuplicateKey as error:
        raise MalformedJson(str(error)) from None
    except NotFinite as error:
        raise MalformedJson(str(error)) from None
    except UnicodeDecodeError:
        raise MalformedJson("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedJson(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise MalformedJson("it is nested too deeply") from None
    except ValueError:
        raise MalformedJson("a number is too long") from None


def canonical(value: Any) -> bytes:
    """Returns the canonical form of a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def compact(value: Any) -> str:
    """Returns JSON text without white space, members in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_sha256(value: Any) -> str:
    """Returns the SHA-256 (64 hex digits) of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateKey("a member name stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise NotFinite(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotFinite("a number is too large")
    return value
