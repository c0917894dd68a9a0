"""A file is read in one sitting and a function at a glance; the exemptions start empty and may only shrink."""

from __future__ import annotations

import statistics
from typing import Final

from tests.contract.source import functions, name_of, python_files, tree

MAX_FILE_LINES: Final = 500
MAX_FUNCTION_LINES: Final = 60
LONG_FILES: Final[frozenset[str]] = frozenset()
LONG_FUNCTIONS: Final[frozenset[str]] = frozenset()


def _file_lengths() -> dict[str, int]:
    return {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files("src", "tests")}


def _function_lengths() -> dict[str, int]:
    return {
        f"{name_of(path)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in python_files("src", "tests")
        for node in functions(tree(path))
    }


def test_no_file_is_longer_than_500_lines() -> None:
    assert {name for name, lines in _file_lengths().items() if lines > MAX_FILE_LINES} == LONG_FILES


def test_no_function_is_longer_than_60_lines() -> None:
    assert {name for name, lines in _function_lengths().items() if lines > MAX_FUNCTION_LINES} == LONG_FUNCTIONS


def test_the_figures_of_the_report_are_of_real_files() -> None:
    assert size_report().startswith("files: ")


def size_report() -> str:
    """Returns one line each on files and functions of `src`: count, median, 90th percentile, longest."""
    lines = []
    for noun, lengths in (("files", _file_lengths()), ("functions", _function_lengths())):
        figures = sorted(length for name, length in lengths.items() if name.startswith("src/"))
        p90 = figures[int(len(figures) * 0.9)]
        lines.append(
            f"{noun}: {len(figures)}, median {statistics.median(figures):g}, p90 {p90}, longest {figures[-1]} lines"
        )
    return "\n".join(lines)
