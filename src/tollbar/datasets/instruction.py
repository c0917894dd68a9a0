"""The text that the agent is told: the file `instruction.md` without the canary lines at its top."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """What the agent reads, and how many lines were kept from it."""

    text: str
    canary_lines_removed: int


def read_instruction(text: str) -> Instruction:
    """Returns the text without leading comment lines that hold the word canary, and blank lines after them.

    A heading such as `# Canary deployment` falls under the rule, too; the count makes that visible.
    """
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _is_canary(lines[start].strip()):
        start += 1
    removed = start
    while start < len(lines) and not lines[start].strip():
        start += 1
    return Instruction("\n".join(lines[start:]), removed)


def _is_canary(line: str) -> bool:
    comment = line.startswith("#") or (line.startswith("<!--") and line.endswith("-->"))
    return comment and "canary" in line.lower()
