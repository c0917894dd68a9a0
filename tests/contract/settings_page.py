"""The page of all settings, made from the class that reads them; `make docs` writes it, a test compares it."""

from __future__ import annotations

import sys
import types
import typing
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tollbar.settings import Settings

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

_HEAD: Final = """# Settings of the server

Set them as environment variables before `tollbar up`. An option of the command wins over its variable. This page is
made from `settings.py`; `make docs` writes it anew.

| variable | type | default | meaning |
|---|---|---|---|
"""

_USER_FOLDER: Final = "the user's data folder (on Linux `~/.local/share/tollbar`)"


def _type(annotation: Any) -> str:
    """Returns the type in a reader's words."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return " or ".join(_type(part) for part in typing.get_args(annotation) if part is not type(None))
    if typing.get_origin(annotation) is tuple:
        return f"JSON list of {_type(typing.get_args(annotation)[0])}"
    words = {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "true or false",
        Path: "folder",
        SecretStr: "secret",
    }
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _range(field: FieldInfo) -> str:
    """Returns the allowed range as it follows the type: `, 1 to 256`; empty when every value is allowed."""
    bounds = {
        name: getattr(part, name) for part in field.metadata for name in ("ge", "gt", "le") if hasattr(part, name)
    }
    if "ge" in bounds and "le" in bounds:
        return f", {bounds['ge']} to {bounds['le']}"
    if "ge" in bounds:
        return f", at least {bounds['ge']}"
    return f", above {bounds['gt']:g}" if "gt" in bounds else ""


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Path):
        return _USER_FOLDER
    if value is PydanticUndefined:
        return "required"
    if value is None or value == ():
        return "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def render() -> str:
    """Returns the whole page."""
    rows = [
        f"| `TOLLBAR_{name.upper()}` | {_type(field.annotation)}{_range(field)} | {_default(field)} "
        f"| {field.description} |\n"
        for name, field in Settings.model_fields.items()
    ]
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
