"""What a package offers says in a docstring what the caller gets."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Final

import pytest
from tests.contract.source import ROOT, module_of, name_of, python_files, tree

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_PACKAGES: Final = sorted(
    module_of(path) for path in python_files("src") if path.name == "__init__.py" and path.parent != ROOT / "src"
)


def _public(module: ast.Module) -> list[Documented]:
    """Returns the public functions and classes at the file's top, and the public methods of those classes."""
    found: list[Documented] = []
    for node in module.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            found.append(node)
            if isinstance(node, ast.ClassDef):
                found.extend(
                    member for member in node.body if isinstance(member, Documented) and not member.name.startswith("_")
                )
    return found


def docstring_report() -> str:
    """Returns one line: how many public functions and classes of `src` have a docstring, and which lack one."""
    public = [(path, node) for path in python_files("src") for node in _public(tree(path))]
    bare = [f"  {name_of(path)}:{node.lineno} {node.name}" for path, node in public if not ast.get_docstring(node)]
    share = 100 * (1 - len(bare) / len(public))
    return "\n".join([f"docstrings: {share:.1f} % of {len(public)} public functions and classes; without:", *bare])


def test_every_file_says_what_it_is_for() -> None:
    bare = [
        name_of(path)
        for path in python_files("src")
        if path.read_text(encoding="utf-8").strip() and not ast.get_docstring(tree(path))
    ]
    assert bare == []


@pytest.mark.parametrize("package", _PACKAGES)
def test_everything_that_a_package_offers_exists_and_has_a_docstring(package: str) -> None:
    module = importlib.import_module(package)
    offered = [(name, getattr(module, name)) for name in getattr(module, "__all__", [])]
    documented = [(name, thing) for name, thing in offered if inspect.isclass(thing) or inspect.isroutine(thing)]
    assert [name for name, thing in documented if not inspect.getdoc(thing)] == []


def test_the_report_counts_something() -> None:
    assert docstring_report().startswith("docstrings: ")
