"""Migrations are one line: each number once, each after the one before, and named by it."""

from __future__ import annotations

import re

from tests.contract.source import ROOT

VERSIONS = ROOT / "src" / "tollbar" / "db" / "migrations" / "versions"
_REVISION = re.compile(r'^(revision|down_revision) = (?:"(\d{4})"|None)$', re.MULTILINE)


def test_migrations_are_one_line() -> None:
    files = sorted(path for path in VERSIONS.glob("*.py") if path.name != "__init__.py")
    found = [dict(_REVISION.findall(path.read_text())) for path in files]
    numbers = [f"{number:04d}" for number in range(1, len(files) + 1)]
    assert [path.name[:4] for path in files] == numbers
    assert [one["revision"] for one in found] == numbers
    assert [one["down_revision"] for one in found] == ["", *numbers[:-1]]
