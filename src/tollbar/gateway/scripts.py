"""The scripts of an installation by their names: those that tollbar brings, and an operator's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from tollbar.gateway.errors import InvalidScript, ScriptNotFound
from tollbar.gateway.scripted import Script, load

_PACKAGED: Final = "library"


@dataclass(frozen=True)
class Scripts:
    """Scripts by name; `scripted:NAME` is the model that answers from one."""

    by_name: Mapping[str, Script]

    def get(self, name: str) -> Script:
        """Returns a script. Raises `ScriptNotFound`."""
        found = self.by_name.get(name)
        if found is None:
            raise ScriptNotFound(name, sorted(self.by_name))
        return found


def read_scripts(folder: Path | None) -> Scripts:
    """Returns the packaged scripts and those of a folder, each under its file's name; an own one hides a packaged one.

    Raises `InvalidScript` naming the file.
    """
    packaged = files("tollbar.gateway.scripted").joinpath(_PACKAGED)
    texts = {entry.name: entry.read_text("utf-8") for entry in packaged.iterdir() if entry.name.endswith(".toml")}
    if folder is not None and folder.is_dir():
        texts |= {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.toml"))}
    return Scripts({name.removesuffix(".toml"): _load(name, text) for name, text in texts.items()})


def _load(name: str, text: str) -> Script:
    try:
        return load(text)
    except InvalidScript as error:
        raise InvalidScript(error.path, error.problem, name=name) from None
