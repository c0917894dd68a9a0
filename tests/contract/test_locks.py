"""The locks pin every package by version and hash, name no host, and belong to this project file."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.contract.source import ROOT

LOCKS: Final = ("requirements.lock", "requirements-dev.lock")
_PIN: Final = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9.-]*)(?:\[[a-z,]+\])?==(?P<version>\S+)(?: ; [^\\]+?)?(?P<more> \\)?$"
)
_HASH: Final = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _lines(lock: str) -> list[str]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.lstrip().startswith("#")]


def _pins(lock: str) -> dict[str, set[str]]:
    """Returns the versions of each package: several where a marker chooses."""
    pins: dict[str, set[str]] = {}
    for line in _lines(lock):
        if (match := _PIN.match(line)) is not None:
            pins.setdefault(match["name"], set()).add(match["version"])
    return pins


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_a_pin_with_its_hashes(lock: str) -> None:
    lines = _lines(lock)
    assert lines
    assert [line for line in lines if not (_PIN.match(line) or _HASH.match(line))] == []
    bare = [
        line for line, after in zip(lines, [*lines[1:], ""], strict=True) if _PIN.match(line) and not _HASH.match(after)
    ]
    assert bare == []


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_a_host_or_a_path(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert re.findall(r"\w+://|--(?:extra-)?index-url|--find-links| @ |(?<!\w)/\w+/", text) == []


def test_the_development_lock_has_the_same_versions() -> None:
    development = _pins("requirements-dev.lock")
    assert {name: pins for name, pins in _pins("requirements.lock").items() if development.get(name) != pins} == {}


def _wanted() -> list[tuple[str, Requirement]]:
    project = _project()
    groups = [
        ("requirements.lock", project["project"]["dependencies"]),
        ("requirements-dev.lock", project["dependency-groups"]["dev"]),
        ("requirements-dev.lock", project["build-system"]["requires"]),
    ]
    return [(lock, Requirement(text)) for lock, texts in groups for text in texts]


def test_everything_that_the_project_asks_for_is_locked_at_a_version_that_it_allows() -> None:
    wrong = [
        f"{lock}: {wanted}"
        for lock, wanted in _wanted()
        if not (pins := _pins(lock).get(canonicalize_name(wanted.name)))
        or not all(wanted.specifier.contains(pin) for pin in pins)
    ]
    assert wrong == [], "lock anew: make lock"
