"""`tollbar config` and `tollbar help exit-codes`: nothing here calls a server."""

from __future__ import annotations

from typing import Final

from tollbar.cli.config import VARIABLES, project_file
from tollbar.cli.exits import MEANINGS
from tollbar.cli.output import Column, Kind
from tollbar.cli.session import NO_OPTIONS, Global, Session

_HIDDEN: Final = "set, not shown"
Row = dict[str, str | int | None]

_SETTINGS: Final = (
    Column[Row]("NAME", lambda row: row["name"], Kind.WHOLE),
    Column[Row]("VALUE", lambda row: row["value"]),
    Column[Row]("FROM", lambda row: row["origin"]),
)
_EXITS: Final = (
    Column[Row]("CODE", lambda row: row["code"], Kind.WHOLE),
    Column[Row]("MEANING", lambda row: row["meaning"], Kind.WHOLE),
    Column[Row]("WHEN", lambda row: row["when"]),
    Column[Row]("HTTP", lambda row: row["http"]),
)


def explain(*, options: Global = NO_OPTIONS) -> None:
    """Show each value of the configuration and where it comes from.

    Values are looked for in this order: option, environment, the project's
    .tollbar.toml, the user's config.toml, the local server of `tollbar up`.
    A context's values stand right behind those of whatever chose the context.

    Example: tollbar config explain --context staging
    """
    session = Session(options)
    found = session.configuration
    rows: list[Row] = []
    for name in VARIABLES:
        setting = found.settings.get(name)
        value = setting and (_HIDDEN if name == "api_key" else setting.value)
        rows.append({"name": name, "value": value, "origin": setting and setting.origin})
    session.out.listing({"items": rows, "next_cursor": None}, _SETTINGS)


def show_path(*, options: Global = NO_OPTIONS) -> None:
    """Show which configuration files are read, and the data folder of the local server.

    Example: tollbar config path
    """
    session = Session(options)
    places = session.places
    project = project_file(places.folder)
    paths = {
        "user_file": str(places.user_file),
        "project_file": str(project) if project else None,
        "data_dir": str(places.data_dir),
    }
    session.out.record(paths, list(paths.items()))


def exit_codes(*, options: Global = NO_OPTIONS) -> None:
    """Show the exit codes of all commands.

    Example: tollbar help exit-codes
    """
    rows: list[Row] = [
        {"code": int(code), "meaning": meaning.word, "when": meaning.when, "http": meaning.http or None}
        for code, meaning in MEANINGS.items()
    ]
    Session(options).out.listing({"items": rows, "next_cursor": None}, _EXITS)
