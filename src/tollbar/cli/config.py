"""Which server, key and form a command uses: option, environment, project file, user file, local server."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollbar.cli.localserver import LocalServer, read_local_server
from tollbar.cli.output import Form
from tollbar.cli.problems import BadConfiguration
from tollbar.client.address import read_address

VARIABLES: Final[Mapping[str, str]] = {
    "url": "TOLLBAR_URL",
    "api_key": "TOLLBAR_API_KEY",
    "workspace": "TOLLBAR_WORKSPACE",
    "project": "TOLLBAR_PROJECT",
    "context": "TOLLBAR_CONTEXT",
    "output": "TOLLBAR_OUTPUT",
}
PROJECT_FILE: Final = ".tollbar.toml"
_IN_PROJECT_FILE: Final = ("url", "workspace", "project", "context", "output")
_IN_USER_FILE: Final = ("context", "output", "contexts")
_IN_CONTEXT: Final = ("url", "workspace", "project")
_MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Places:
    """Where configuration is looked for; `user_file` and `data_dir` follow the system's customs."""

    environ: Mapping[str, str]
    folder: Path
    user_file: Path
    data_dir: Path

    @classmethod
    def of_system(cls, environ: Mapping[str, str]) -> Places:
        from platformdirs import user_config_path, user_data_path  # only a command that needs a server pays for it

        own = environ.get("TOLLBAR_DATA_DIR")
        data_dir = Path(own).expanduser() if own else user_data_path("tollbar")
        return cls(environ, Path.cwd(), user_config_path("tollbar") / "config.toml", data_dir)


@dataclass(frozen=True)
class Setting:
    """A value and where it comes from."""

    value: str
    origin: str


@dataclass(frozen=True)
class _Layer:
    """Values that stand on one level; earlier layers win."""

    origin: str
    values: Mapping[str, str]
    is_project_file: bool = False


@dataclass(frozen=True)
class Configuration:
    """Every value that is set, by name, with its origin."""

    settings: Mapping[str, Setting]
    untrusted_url: bool = False
    """The URL was named by a file of the project alone, and leads to another machine that the user did not name."""

    def get(self, name: str) -> str | None:
        found = self.settings.get(name)
        return None if found is None else found.value


def resolve(options: Mapping[str, str], places: Places) -> Configuration:
    """Returns what a command that needs a server uses; raises `BadConfiguration`, `NoKey`, `UnusableSetting`.

    The local server gives its URL when nothing else does, and its key to no other URL.
    """
    stated = read_stated(options, places)
    found = dict(stated.settings)
    _add_local(found, places.data_dir)
    return Configuration(found, stated.untrusted_url)


def read_stated(options: Mapping[str, str], places: Places) -> Configuration:
    """Returns what options, variables and files state; raises `BadConfiguration`, `UnusableSetting`.

    A context's values stand right behind those of whatever chose the context.
    """
    user = _user_file(places.user_file)
    contexts: Mapping[str, Mapping[str, str]] = user.get("contexts", {})
    found: dict[str, Setting] = {}
    in_project = False
    for layer in _layers(options, places, user):
        had_context, had_url = "context" in found, "url" in found
        for name, value in layer.values.items():
            found.setdefault(name, Setting(value, layer.origin))
        in_project = in_project or (layer.is_project_file and not had_url and "url" in layer.values)
        if not had_context and "context" in layer.values:
            name = layer.values["context"]
            for key, value in _context(contexts, name, layer.origin).items():
                found.setdefault(key, Setting(value, f"context {name} in {places.user_file}"))
    _check_output(found)
    return Configuration(found, in_project and _is_foreign(found["url"].value, contexts))


def project_file(folder: Path) -> Path | None:
    """Returns the nearest project file between a folder and the root of its repository (outside one: there alone)."""
    above = [folder, *folder.parents]
    roots = [index for index, place in enumerate(above) if (place / ".git").exists()]
    for place in above[: roots[0] + 1 if roots else 1]:
        if (place / PROJECT_FILE).is_file():
            return place / PROJECT_FILE
    return None


def _layers(options: Mapping[str, str], places: Places, user: Mapping[str, Any]) -> Iterator[_Layer]:
    yield _Layer("option", options)
    for name, variable in VARIABLES.items():
        if value := places.environ.get(variable):
            yield _Layer(variable, {name: value})
    path = project_file(places.folder)
    if path is not None:
        yield _Layer(str(path), _project_values(path), is_project_file=True)
    yield _Layer(str(places.user_file), {name: user[name] for name in ("context", "output") if name in user})


def _project_values(path: Path) -> dict[str, str]:
    table = _read_toml(path)
    if "api_key" in table:
        raise BadConfiguration(
            f"{path} holds a key",
            why=["a project file is shared with everyone who has the project"],
            fix="remove it there, revoke it, and: export TOLLBAR_API_KEY=...",
        )
    _check_keys(path, table, _IN_PROJECT_FILE)
    return _texts(path, table)


def _user_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    table = _read_toml(path)
    _check_keys(path, table, _IN_USER_FILE)
    contexts = table.pop("contexts", {})
    if not isinstance(contexts, dict):
        raise BadConfiguration(f"contexts in {path} is not a table")
    checked: dict[str, dict[str, str]] = {}
    for name, context in contexts.items():
        if not isinstance(context, dict):
            raise BadConfiguration(f"contexts.{name} in {path} is not a table")
        _check_keys(path, context, _IN_CONTEXT, f"contexts.{name}.")
        checked[name] = _texts(path, context)
    return {**_texts(path, table), "contexts": checked}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise BadConfiguration(f"{path} is too large for a configuration file")
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read", why=[str(error.strerror)]) from None
    except ValueError as error:
        raise BadConfiguration(f"{path} is not valid TOML", why=[str(error)]) from None


def _check_keys(path: Path, table: Mapping[str, Any], known: tuple[str, ...], prefix: str = "") -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            fix = f"did you mean {prefix}{near[0]}?" if near else f"known keys: {', '.join(known)}"
            raise BadConfiguration(f"{prefix}{key} in {path} is not a known key", fix=fix)


def _texts(path: Path, table: Mapping[str, Any]) -> dict[str, str]:
    for key, value in table.items():
        if not isinstance(value, str) or not value:
            raise BadConfiguration(f"{key} in {path} must be text in quotes")
    return dict(table)


def _context(contexts: Mapping[str, Mapping[str, str]], name: str, origin: str) -> Mapping[str, str]:
    if name in contexts:
        return contexts[name]
    near = difflib.get_close_matches(name, contexts, n=1)
    known = f"known: {', '.join(contexts)}" if contexts else "no context is configured"
    raise BadConfiguration(
        f"there is no context {name} (from {origin})", why=[known], fix=f"did you mean {near[0]}?" if near else None
    )


def _check_output(found: Mapping[str, Setting]) -> None:
    setting = found.get("output")
    if setting is not None and setting.value not in set(Form):
        raise BadConfiguration(f"output from {setting.origin} must be {', '.join(Form)}")


def _add_local(found: dict[str, Setting], data_dir: Path) -> None:
    if "url" in found and "api_key" in found:
        return
    local: LocalServer | None = read_local_server(data_dir)
    if local is None:
        return
    origin = f"the local server in {data_dir}"
    url = found.setdefault("url", Setting(local.url, origin)).value
    if "api_key" not in found and read_address(url).origin == read_address(local.url).origin:
        found["api_key"] = Setting(local.read_key(), origin)


def _is_foreign(url: str, contexts: Mapping[str, Mapping[str, str]]) -> bool:
    """Says whether a key must not follow a URL that only a project's file names."""
    address = read_address(url)
    known = {read_address(context["url"]).origin for context in contexts.values() if "url" in context}
    return not address.loopback and address.origin not in known
