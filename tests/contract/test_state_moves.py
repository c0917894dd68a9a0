"""States are words with their allowed moves written once, as data, and the data is whole."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import pytest
from tests.contract.source import module_of, python_files, tree

NOT_MOVED: Final = {
    "tollbar.engine.port.EngineState": "words of the engine, which moves its own rows",
    "tollbar.artifacts.schemas.ArtifactState": "told of a row that is written once, when the Trial is sealed",
    "tollbar.artifacts.schemas.UploadState": "told of a row that is written once, when the Trial is sealed",
}
"""Enumerations of states that nothing of ours moves."""

BORN: Final = {"tollbar.budget.schemas.CallState": {"refused"}}
"""States in which a row can begin beside the first one of its enumeration."""


def _state_enums() -> list[str]:
    return [
        f"{module_of(path)}.{node.name}"
        for path in python_files("src")
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("State") and _is_str_enum(node)
    ]


def _ours() -> list[str]:
    return [dotted for dotted in _state_enums() if dotted not in NOT_MOVED]


def _is_str_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in node.bases)


def _load(dotted: str) -> tuple[type[StrEnum], list[Mapping[Any, Any]]]:
    module_name, _, name = dotted.rpartition(".")
    module = importlib.import_module(module_name)
    states: type[StrEnum] = getattr(module, name)
    tables = [
        value
        for attribute, value in vars(module).items()
        if attribute.endswith("MOVES") and isinstance(value, Mapping) and any(isinstance(key, states) for key in value)
    ]
    return states, tables


@pytest.mark.parametrize("dotted", _ours())
def test_every_state_has_its_moves(dotted: str) -> None:
    states, tables = _load(dotted)
    assert len(tables) == 1, f"{dotted} needs exactly one table of moves, MOVES or ..._MOVES, beside it"
    (moves,) = tables
    members = set(states)
    assert set(moves) == members, "each state stands in the table, a terminal one with no moves"
    assert all(set(targets) <= members for targets in moves.values())


@pytest.mark.parametrize("dotted", _ours())
def test_every_state_can_be_reached_and_can_end(dotted: str) -> None:
    states, (moves,) = _load(dotted)
    births = [next(iter(states)), *(states(word) for word in BORN.get(dotted, ()))]
    assert set().union(*(_reach(moves, birth) for birth in births)) == set(states), "every state is reached"
    ends = {state for state, targets in moves.items() if not targets}
    assert ends, "there is a terminal state"
    assert all(_reach(moves, state) & ends for state in states), "from every state an end is reached"


def _reach(moves: Mapping[Any, Any], start: StrEnum) -> set[StrEnum]:
    seen, waiting = {start}, [start]
    while waiting:
        new = set(moves[waiting.pop()]) - seen
        seen |= new
        waiting.extend(new)
    return seen


def test_no_enumeration_is_listed_in_vain() -> None:
    assert {*NOT_MOVED, *BORN} <= set(_state_enums())
