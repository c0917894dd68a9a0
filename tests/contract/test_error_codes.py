"""Every error code, every reason and every exit code that a user can meet is documented, and nothing else is."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import pytest
from tests.contract.source import ROOT, name_of, python_files, tree

from tollbar.jobs.states import JobErrorCode, Reason

PAGE: Final = ROOT / "docs" / "errors.md"
_BASE: Final = "TollbarError"
_FORM: Final = re.compile(r"^[A-Z][A-Z0-9_]{1,127}$")


@dataclass(frozen=True)
class _Leaf:
    """A class of an error as it stands in the source."""

    name: str
    place: str
    bases: tuple[str, ...]
    code: str | None
    status: int | None


def _literal(node: ast.ClassDef, attribute: str) -> object:
    """Returns the constant that the class sets for the attribute; None when it sets none."""
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value))
            ) if name == attribute:
                return value
            case _:
                continue
    return None


def _leaf(place: str, node: ast.ClassDef) -> _Leaf:
    bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
    code, status = _literal(node, "code"), _literal(node, "status")
    return _Leaf(
        node.name,
        f"{place}:{node.lineno}",
        bases,
        code if isinstance(code, str) else None,
        status if isinstance(status, int) else None,
    )


@cache
def _errors() -> Mapping[str, _Leaf]:
    """Returns every class below `TollbarError` by its name."""
    classes = {
        node.name: _leaf(name_of(path), node)
        for path in python_files("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    }
    errors = {_BASE}
    while True:
        below = {name for name, leaf in classes.items() if errors & set(leaf.bases)} - errors
        if not below:
            return {name: classes[name] for name in errors}
        errors |= below


def _inherited(leaf: _Leaf, attribute: str) -> object:
    own: object = getattr(leaf, attribute)
    if own is not None or leaf.name == _BASE:
        return own
    parent = next(base for base in leaf.bases if base in _errors())
    return _inherited(_errors()[parent], attribute)


def _made() -> set[tuple[str, int]]:
    """Returns every (code, status) that a class of an error can carry."""
    pairs = {(_inherited(leaf, "code"), _inherited(leaf, "status")) for leaf in _errors().values()}
    return {(code, status) for code, status in pairs if isinstance(code, str) and isinstance(status, int)}


def _rows(heading: str, columns: int) -> list[list[str]]:
    """Returns the cells of the table below a heading of the page; every row has that many, none of them empty."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| -")]
    assert rows, f"the page has a table below {heading}"
    assert [row for row in rows if len(row) != columns or not all(row)] == []
    return rows


def test_every_leaf_sets_a_code_of_the_wire_form() -> None:
    assert [leaf.place for leaf in _errors().values() if not _FORM.match(str(_inherited(leaf, "code")))] == []
    assert [code for code, status in _made() if not 400 <= status <= 599] == []


@pytest.mark.requirement("G-HTTP-16.13")
def test_codes_and_their_documentation_are_the_same_list() -> None:
    documented = {(row[0].strip("`"), int(row[1])) for row in _rows("Codes", 3)}
    assert _made() - documented == set(), "made by the code, not in docs/errors.md"
    assert documented - _made() == set(), "in docs/errors.md, made by nothing"


def test_every_code_is_explained_by_a_sentence() -> None:
    assert [row[0] for row in _rows("Codes", 3) if not row[2].endswith(".")] == []


def test_no_code_is_documented_twice_for_one_status() -> None:
    pairs = [(row[0], row[1]) for row in _rows("Codes", 3)]
    assert len(pairs) == len(set(pairs))


@pytest.mark.requirement("G-HTTP-16.13")
def test_reasons_of_trials_and_their_documentation_are_the_same_list() -> None:
    assert {row[0].strip("`") for row in _rows("Reasons of a Trial", 2)} == {str(reason) for reason in Reason}


@pytest.mark.requirement("G-HTTP-16.13")
def test_errors_of_jobs_and_their_documentation_are_the_same_list() -> None:
    assert {row[0].strip("`") for row in _rows("Errors of a Job", 2)} == {str(code) for code in JobErrorCode}
