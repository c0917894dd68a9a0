"""The keys of `[metadata.tollbar]` that tasks and datasets share, and decimals as canonical text."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from tollbar.datasets.problems import Document, KeyPath
from tollbar.datasets.reader import Table
from tollbar.datasets.taskmodel import OwnKeys

_DECIMAL: Final = re.compile(r"-?\d{1,10}(\.\d{1,12})?\Z")
_LIMIT: Final = Decimal(10**9)
OWN_PATH: Final[KeyPath] = ("metadata", "tollbar")
_MODEL: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*:\S+\Z")


def canonical_decimal(text: str) -> str | None:
    """Returns decimal text without superfluous zeros, or None when it is none or beyond 10**9 in size."""
    if not _DECIMAL.match(text) or abs(Decimal(text)) > _LIMIT:
        return None
    plain = format(Decimal(text), "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain


def own_table(document: Document, metadata: dict[str, Any]) -> Table | None:
    """Returns the table `[metadata.tollbar]`, or None."""
    return Table(document, ("metadata",), metadata).table("tollbar")


def read_threshold(table: Table) -> str | None:
    """Reads `pass_threshold`, decimal text."""
    text = table.text("pass_threshold", check=_decimal_problem)
    return None if text is None else canonical_decimal(text)


def read_weights(table: Table) -> dict[str, str]:
    """Reads `weights`: dimension -> decimal text above 0."""
    entries = table.table("weights")
    if entries is None:
        return {}
    weights: dict[str, str] = {}
    for name in entries.names():
        text = entries.text(name, check=_decimal_problem)
        value = None if text is None else canonical_decimal(text)
        if value is None:
            continue
        if Decimal(value) <= 0:
            entries.problem(name, "must be above 0", allowed="above 0")
        elif not 1 <= len(name) <= 128 or not name.isprintable():
            entries.problem(name, "must be named by 1 to 128 printable characters")
        else:
            weights[name] = value
    return weights


def read_own_keys(document: Document, metadata: dict[str, Any]) -> OwnKeys:
    """Reads `[metadata.tollbar]` of a task."""
    table = own_table(document, metadata)
    if table is None:
        return OwnKeys()
    keys = OwnKeys(
        weights=read_weights(table),
        pass_threshold=read_threshold(table),
        verifier_model=table.text("verifier_model", check=_model_problem),
        keep_agent_processes=table.flag("keep_agent_processes") or False,
    )
    table.close()
    return keys


def _decimal_problem(text: str) -> str | None:
    return None if canonical_decimal(text) is not None else 'must be a decimal number in quotes, e.g. "0.5"'


def _model_problem(text: str) -> str | None:
    return None if _MODEL.match(text) else "must be provider:model"
