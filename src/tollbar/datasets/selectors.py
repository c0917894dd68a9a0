"""Reads what a submission runs: a selector, a `dataset_ref` or a `task_ref`, into one form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.datasets.errors import InvalidDatasetSelector
from tollbar.datasets.names import is_digest, is_hex, is_name, namespace_of

KINDS: Final = ("dataset", "dataset_ref", "task_ref")
_DATASET: Final = frozenset({"name", "version", "task_id", "split", "config", "namespace", "revision"})
_DATASET_REF: Final = ("name", "version", "manifest_sha256")
_TASK_REF: Final = ("dataset", "version", "task_id", "digest")
_MAX_TEXT: Final = 512


@dataclass(frozen=True)
class Selector:
    """What was asked for; names are not looked up yet. `manifest_sha256` and `digest` pin what must be found."""

    name: str
    versions: tuple[str, ...] = ()
    """Labels or revisions that must all mean the same version; none: the newest."""
    split: str | None = None
    config: str | None = None
    task_id: str | None = None
    manifest_sha256: str | None = None
    digest: str | None = None

    @property
    def shown(self) -> str:
        """Returns `name@version` for messages."""
        return "@".join([self.name, *self.versions[:1]])


def read_selector(source: Mapping[str, Any]) -> Selector:
    """Reads the members `dataset`, `dataset_ref` and `task_ref` of a submission, of which exactly one is given.

    Raises `InvalidDatasetSelector`.
    """
    given = [kind for kind in KINDS if source.get(kind) is not None]
    if len(given) != 1:
        raise InvalidDatasetSelector("none was given" if not given else f"{' and '.join(given)} were given")
    kind, value = given[0], source[given[0]]
    if kind == "dataset" and isinstance(value, str):
        return _from_text(value)
    if not isinstance(value, Mapping):
        shape = "text name@version or an object" if kind == "dataset" else "an object"
        raise InvalidDatasetSelector(f"{kind} must be {shape}")
    members = _texts(kind, value)
    if kind == "dataset":
        return _from_object(members)
    return _from_dataset_ref(members) if kind == "dataset_ref" else _from_task_ref(members)


def _from_text(text: str) -> Selector:
    name, at, version = text.rpartition("@")
    if not at:
        return Selector(_name(version))
    if not version:
        raise InvalidDatasetSelector("there is no version after the @")
    return Selector(_name(name), (version,))


def _from_object(members: dict[str, str]) -> Selector:
    _refuse_unknown("dataset", members, _DATASET)
    if "name" not in members:
        raise InvalidDatasetSelector("dataset.name is missing")
    name, namespace = members["name"], members.get("namespace")
    if namespace is not None and "/" not in name:
        name = f"{namespace}/{name}"
    name = _name(name)
    if namespace is not None and namespace_of(name) != namespace:
        raise InvalidDatasetSelector("dataset.namespace is not the namespace of dataset.name")
    return Selector(
        name,
        tuple(members[key] for key in ("version", "revision") if key in members),
        split=members.get("split"),
        config=members.get("config"),
        task_id=members.get("task_id"),
    )


def _from_dataset_ref(members: dict[str, str]) -> Selector:
    _check_ref("dataset_ref", "dataset", members, _DATASET_REF)
    if not is_hex(members["manifest_sha256"]):
        raise InvalidDatasetSelector("dataset_ref.manifest_sha256 must be 64 lower-case hex digits")
    return Selector(_name(members["name"]), (members["version"],), manifest_sha256=members["manifest_sha256"])


def _from_task_ref(members: dict[str, str]) -> Selector:
    _check_ref("task_ref", "task", members, _TASK_REF)
    if not is_digest(members["digest"]):
        raise InvalidDatasetSelector("task_ref.digest must be sha256: and 64 lower-case hex digits")
    return Selector(
        _name(members["dataset"]), (members["version"],), task_id=members["task_id"], digest=members["digest"]
    )


def _check_ref(kind: str, word: str, members: dict[str, str], needed: tuple[str, ...]) -> None:
    _refuse_unknown(kind, members, frozenset({"kind", *needed}))
    if members.get("kind", word) != word:
        raise InvalidDatasetSelector(f'{kind}.kind must be "{word}"')
    for name in needed:
        if name not in members:
            raise InvalidDatasetSelector(f"{kind}.{name} is missing")


def _refuse_unknown(kind: str, members: Mapping[str, str], known: frozenset[str]) -> None:
    unknown = sorted(set(members) - known)
    if unknown:
        raise InvalidDatasetSelector(f"{kind} has no member {unknown[0]!r}; it has {', '.join(sorted(known))}")


def _texts(kind: str, value: Mapping[str, Any]) -> dict[str, str]:
    """Returns the members that are not null; each is text."""
    members: dict[str, str] = {}
    for name, member in value.items():
        if member is None:
            continue
        if not isinstance(member, str) or not 1 <= len(member) <= _MAX_TEXT or not member.isprintable():
            raise InvalidDatasetSelector(f"{kind}.{str(name)[:40]} must be text of 1 to {_MAX_TEXT} characters")
        members[name] = member
    return members


def _name(text: str) -> str:
    if not is_name(text):
        raise InvalidDatasetSelector("a dataset is named namespace/name")
    return text
