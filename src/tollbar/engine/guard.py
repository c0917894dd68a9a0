"""Refuses pickle: a row that is labelled as pickled is never loaded, whoever wrote it.

The engine library unpickles such rows even when JSON is configured. Only reading is replaced: the refusal itself
must still be storable.
"""

from __future__ import annotations

from typing import Any, NoReturn

from dbos._serialization import DefaultSerializer


def _refuse(cls: Any, serialized_data: str) -> NoReturn:
    del cls, serialized_data
    msg = "the engine's row is pickled and was refused"
    raise ValueError(msg)


def install() -> None:
    """Puts the refusal in place; done when the package is imported, before anything else of the library."""
    DefaultSerializer.deserialize = _refuse
