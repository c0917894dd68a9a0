"""Queries stand where a reader looks for them: in `store.py`, where each is scoped by an actor."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.contract.source import ROOT, name_of, python_files, tree

STATEMENTS: Final = {"select", "update", "delete", "insert", "text"}

ANYWHERE: Final = {
    "store.py": "the place of queries",
    "statements.py": "long statements of the store beside it",
}
"""File names that may hold statements, in every package."""

OWN: Final = {
    "db/migrate.py": "locks and reads the version of the schema; there is no actor yet",
    "db/dump.py": "asks a server for its version and counts rows of every table; of no user",
    "db/sizes.py": "asks the database for the sizes of tables; of no user",
    "db/embedded.py": "asks the server that it started whether it answers",
    "engine/migrate.py": "makes the engine's schema; there is no actor yet",
    "engine/liveness.py": "beats, the reaper's lock: rows about workers, of no user",
}
"""Files of the two layers below the users, whose statements are about the database or the workers themselves."""

SCHEMA_ONLY: Final = {"tables.py": {"text"}, "base.py": {"text"}}
"""In these `text` writes a server default or the condition of an index: schema, not a query."""


def _allowed(path: Path) -> set[str]:
    inside = path.relative_to(ROOT / "src" / "tollbar")
    if path.name in ANYWHERE or str(inside) in OWN or inside.parts[:2] == ("db", "migrations"):
        return STATEMENTS
    return SCHEMA_ONLY.get(path.name, set())


def _bound_names(module: ast.Module) -> tuple[dict[str, str], set[str]]:
    """Returns the local names of SQLAlchemy's statement functions, and the local names of its modules."""
    statements: dict[str, str] = {}
    modules: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlalchemy":
            for alias in node.names:
                if alias.name in STATEMENTS:
                    statements[alias.asname or alias.name] = alias.name
                else:
                    modules.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            modules.update(
                alias.asname or "sqlalchemy" for alias in node.names if alias.name.split(".")[0] == "sqlalchemy"
            )
    return statements, modules


def _statement(call: ast.Call, statements: dict[str, str], modules: set[str]) -> str | None:
    """Returns which statement the call makes; None for every other call."""
    match call.func:
        case ast.Name(id=name) if name in statements:
            return statements[name]
        case ast.Attribute(attr=attribute, value=ast.Name(id=owner)) if attribute in STATEMENTS and owner in modules:
            return attribute
        case ast.Attribute(attr="exec_driver_sql" as attribute):
            return attribute
        case _:
            return None


def findings(path: Path) -> list[str]:
    """Returns `file:line: statement` for each statement that stands where it may not."""
    module = tree(path)
    statements, modules = _bound_names(module)
    made = (
        (node.lineno, _statement(node, statements, modules)) for node in ast.walk(module) if isinstance(node, ast.Call)
    )
    allowed = _allowed(path)
    return [f"{name_of(path)}:{line}: {kind}(" for line, kind in made if kind is not None and kind not in allowed]


def test_statements_stand_only_in_stores_and_migrations() -> None:
    assert [finding for path in python_files("src") for finding in findings(path)] == []


def test_every_import_form_of_a_statement_is_seen() -> None:
    module = ast.parse(
        "import sqlalchemy as sa\nfrom sqlalchemy import select as pick, func\n"
        "from sqlalchemy.dialects.postgresql import insert\n"
        "sa.select(1)\npick(1)\ninsert(t)\nconnection.exec_driver_sql('x')\nfunc.now()\nlist.insert(1)\n"
    )
    statements, modules = _bound_names(module)
    seen = [_statement(node, statements, modules) for node in ast.walk(module) if isinstance(node, ast.Call)]
    assert [kind for kind in seen if kind] == ["select", "select", "insert", "exec_driver_sql"]
