"""What the repository's own checks read: its files, their texts and their syntax trees."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = ROOT.parent / "shared"
"""The documents that the product fulfils lie beside the clone, when they are there."""

_NOT_TEXT: Final = {".png", ".jpg", ".gif", ".webp", ".ico", ".gz", ".tar", ".woff2"}


@cache
def repository_files() -> tuple[Path, ...]:
    """Returns every file that is or would be committed; in an unpacked source archive, every file but caches."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        tops = ["src", "tests", "docs", ".ci"]
        found = [*ROOT.glob("*.*"), *(path for top in tops for path in (ROOT / top).rglob("*"))]
    return tuple(sorted({path for path in found if path.is_file() and "__pycache__" not in path.parts}))


def text_files() -> Iterator[tuple[str, str]]:
    """Yields (path from the root, text) of every file that is not binary."""
    for path in repository_files():
        if path.suffix not in _NOT_TEXT:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def python_files(*tops: str) -> tuple[Path, ...]:
    """Returns the Python files of the repository below the named folders."""
    return tuple(
        path
        for path in repository_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in tops and "demo" not in path.parts
    )


@cache
def tree(path: Path) -> ast.Module:
    """Returns the parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """Returns the path from the root, as findings name it."""
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """Returns the dotted name of a file below `src`."""
    parts = list(path.relative_to(ROOT / "src").with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields every function of the file, nested ones too."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
