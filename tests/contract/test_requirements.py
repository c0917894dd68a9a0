"""The list of requirements and the tests that carry its ids agree, and the list covers the seeds."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.contract.requirements import DOCUMENTS, SEEDS, Requirement, State, load, parse, report
from tests.contract.source import SHARED, name_of, python_files, tree


@cache
def _rows() -> tuple[Requirement, ...]:
    return load()


def _is_mark(node: ast.AST) -> bool:
    """Tells whether the node calls `pytest.mark.requirement`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark"))):
            return True
        case _:
            return False


def _marks(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yields (place, id) of each id that the file carries; the id is None where the file breaks the form."""
    module = tree(path)
    helpers = {
        mark
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not function.name.startswith("test_")
        for mark in function.decorator_list
    }
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not _is_mark(node):
            continue
        place = f"{name_of(path)}:{node.lineno}"
        carried = path.name.startswith("test_") and node not in helpers and node.args and not node.keywords
        for argument in node.args if carried else [None]:
            literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            yield place, argument.value if literal and isinstance(argument, ast.Constant) else None


@cache
def _carried() -> tuple[tuple[str, str | None], ...]:
    return tuple(mark for path in python_files("tests") for mark in _marks(path))


def test_no_id_stands_twice() -> None:
    assert [name for name, count in Counter(row.id for row in _rows()).items() if count > 1] == []


def test_every_closed_id_is_carried_by_a_test() -> None:
    carried = {name for _, name in _carried()}
    assert [row.id for row in _rows() if row.state is State.CLOSED and row.id not in carried] == []


def test_every_id_that_a_test_carries_exists_and_is_closed() -> None:
    states = {row.id: row.state for row in _rows()}
    wrong = [
        f"{place}: {name} is {states.get(name or '', 'unknown')}"
        for place, name in _carried()
        if states.get(name or "") is not State.CLOSED
    ]
    assert wrong == []


def test_every_mark_stands_on_a_test_and_takes_literal_ids() -> None:
    assert [place for place, name in _carried() if name is None] == []


def test_every_source_names_a_known_document() -> None:
    assert [row.id for row in _rows() if row.document not in DOCUMENTS] == []
    assert [row.id for row in _rows() if (row.document in SEEDS) != bool(row.lines)] == []


def test_the_report_counts_every_row() -> None:
    assert f"all {len(_rows())}" in report(_rows())


@pytest.mark.parametrize(
    "text",
    [
        "EV-A-1 evaluation:3 closed because\n  It holds.",
        "EV-A-1 evaluation:3 open\n  It holds.",
        "EV-A-1 evaluation:3 open soon\n  It holds.",
        "EV-A-1 evaluation:3 not_testable\n  It holds.",
        "EV-A-1 evaluation:three closed\n  It holds.",
        "EV-A-1 evaluation:3 closed",
        "EV-A-1 evaluation:3 done\n  It holds.",
        "ev-a-1 evaluation:3 closed\n  It holds.",
    ],
)
def test_a_row_that_breaks_the_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(parse(text))


def test_a_row_is_read_with_all_its_parts() -> None:
    (row,) = parse("G-SBX-14.two sandbox.md#14.x open #3 held form\n  Two see\n  nothing.")
    assert (row.state, row.reason, row.sentence) == (State.OPEN, "#3 held form", "Two see nothing.")
    assert (row.document, row.section, row.lines, row.area) == ("sandbox.md", ("14", "x"), frozenset(), "G-SBX")
    (row,) = parse("EV-A-1 evaluation:3,7-9 closed\n  It holds.")
    assert (row.lines, row.area) == ({3, 7, 8, 9}, "EV")


def _document(name: str) -> str:
    path = SHARED / DOCUMENTS[name]
    if not path.is_file():
        pytest.skip(f"{DOCUMENTS[name]} is not beside this clone")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_of_a_seed_has_a_row(seed: str) -> None:
    lines = _document(seed).splitlines()
    filled = {number for number, line in enumerate(lines, start=1) if line.strip(" \t{}[],")}
    cited = {number for row in _rows() if row.document == seed for number in row.lines}
    assert filled - cited == set(), "lines of the seed that no row answers for"
    assert cited - set(range(1, len(lines) + 1)) == set(), "rows that cite lines which are not there"


@pytest.mark.parametrize("guide", sorted(set(DOCUMENTS) - set(SEEDS)))
def test_every_cited_section_and_row_of_a_guide_exists(guide: str) -> None:
    text = _document(guide)
    sections = {
        match[1]: body
        for body in re.split(r"^(?=## )", text, flags=re.MULTILINE)
        if (match := re.match(r"## (\d+)\. ", body))
    }
    missing = []
    for row in _rows():
        if row.document != guide or row.section is None:
            continue
        section, number = row.section
        body = sections.get(section)
        there = body is not None and (
            number is None or re.search(rf"^(?:\| {re.escape(number)} \||{re.escape(number)}\. )", body, re.MULTILINE)
        )
        if not there:
            missing.append(row.id)
    assert missing == []
