"""Every promise of the product as a row with an id: what must hold, where that is said, and whether a test holds it.

A row is a header and its sentence:

    EV-CAP-1 evaluation:58 open #4
      The cap bounds what a Job spends on models and sandboxes together, in USD.

The header is id, source, state, reason. `open` names what brings it (`#4`, or `later`) and may say more; `closed`
takes no reason and needs a test that carries the id (`@pytest.mark.requirement("EV-CAP-1")`); `not_testable` says
why. To close a row: write the test, mark it, replace `open ...` by `closed`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """What is known of a row."""

    OPEN = "open"
    CLOSED = "closed"
    NOT_TESTABLE = "not_testable"


BRINGS: Final = {
    "#2": "first light: datasets, Jobs, sandboxes, cap and all interfaces, thin",
    "#3": "under fire: hostile agents, held sandboxes, lost machines, several workers",
    "#4": "the gateway: metered models, coding agents, Docker, egress",
    "#5": "evaluation in full: all tools, statistics, regrade, artifacts as images",
    "#6": "teams: definitions, installs, runs, gates, vault",
    "later": "no issue is filed yet: OAuth server, hosted assistants, console, browser sessions",
}
"""What an open row waits for: the issue by number, and its short name."""

DOCUMENTS: Final = {
    "evaluation": "seeds/evaluation-platform-mcp.txt",
    "teams": "seeds/team-platform-mcp-reference.txt",
    "evaluation.md": "guides/evaluation.md",
    "sandbox.md": "guides/sandbox.md",
    "engine.md": "guides/engine.md",
    "gateway-and-ledger.md": "guides/gateway-and-ledger.md",
    "mcp.md": "guides/mcp.md",
    "envloop-http.md": "contracts/envloop-http.md",
    "envelope.md": "contracts/envelope.md",
}
"""What a source may name: seeds by line (`evaluation:58`, `teams:10-12`), guides by section (`sandbox.md#14`)."""

SEEDS: Final = ("evaluation", "teams")

_HEADER = re.compile(r"^(?P<id>[A-Z][A-Za-z0-9_.:@^-]+) (?P<source>\S+) (?P<state>[a-z_]+)(?: (?P<reason>\S.*))?$")
_SEED_SOURCE = re.compile(r"^(?P<document>[a-z]+):(?P<lines>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)$")
_GUIDE_SOURCE = re.compile(r"^(?P<document>[a-z-]+\.md)#(?P<section>\d+)(?:\.(?P<row>[A-Za-z0-9-]+))?$")


@dataclass(frozen=True)
class Requirement:
    """One row; `reason` is empty exactly when the row is closed."""

    id: str
    source: str
    sentence: str
    state: State
    reason: str

    @property
    def area(self) -> str:
        """By what the report groups: `EV` and `TM` are the seeds, `G-SBX` and the like are guides."""
        first, second, *_ = self.id.split("-")
        return f"{first}-{second}" if first == "G" else first

    @property
    def document(self) -> str:
        """Returns the key of `DOCUMENTS` that the source names."""
        return re.split("[:#]", self.source)[0]

    @property
    def lines(self) -> frozenset[int]:
        """Returns the seed's line numbers that the row answers for; empty for a guide."""
        match = _SEED_SOURCE.match(self.source)
        if match is None:
            return frozenset()
        found: set[int] = set()
        for part in match["lines"].split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
        return frozenset(found)

    @property
    def section(self) -> tuple[str, str | None] | None:
        """Returns a guide's (section, row or None); None for a seed."""
        match = _GUIDE_SOURCE.match(self.source)
        return None if match is None else (match["section"], match["row"])


def parse(text: str) -> Iterator[Requirement]:
    """Yields the rows of one block of text; raises ValueError that quotes the first line that has no meaning."""
    header: re.Match[str] | None = None
    sentence: list[str] = []
    for line in [*text.splitlines(), "END of block closed"]:
        if line.startswith("  ") and header is not None:
            sentence.append(line.strip())
        elif line.strip():
            if header is not None:
                yield _row(header, " ".join(sentence))
            header, sentence = _HEADER.match(line), []
            if header is None:
                msg = f"not a header of a requirement: {line!r}"
                raise ValueError(msg)


def _row(header: re.Match[str], sentence: str) -> Requirement:
    state, reason = State(header["state"]), header["reason"] or ""
    problem = None
    if not sentence.endswith("."):
        problem = "its sentence does not end"
    elif (state is State.CLOSED) == bool(reason):
        problem = "a closed row takes no reason, every other needs one"
    elif state is State.OPEN and reason.split()[0] not in BRINGS:
        problem = f"an open row starts with one of {', '.join(BRINGS)}"
    elif not (_SEED_SOURCE.match(header["source"]) or _GUIDE_SOURCE.match(header["source"])):
        problem = f"its source {header['source']} is no place"
    if problem is not None:
        msg = f"{header['id']}: {problem}"
        raise ValueError(msg)
    return Requirement(header["id"], header["source"], sentence, state, reason)


def load() -> tuple[Requirement, ...]:
    """Returns all rows of all data modules in their order; ids may repeat (a test refuses that)."""
    from tests.contract import (
        requirements_engine,
        requirements_evaluation,
        requirements_gateway,
        requirements_rewards,
        requirements_runs,
        requirements_sandbox,
        requirements_team_fields,
        requirements_teams,
        requirements_wire,
    )

    modules = (
        requirements_evaluation,
        requirements_teams,
        requirements_team_fields,
        requirements_rewards,
        requirements_sandbox,
        requirements_engine,
        requirements_wire,
        requirements_gateway,
        requirements_runs,
    )
    return tuple(row for module in modules for row in parse(module.ROWS))


def report(rows: tuple[Requirement, ...]) -> str:
    """Returns a table of counts by area and state, then what the open rows wait for."""
    columns = (State.CLOSED, State.OPEN, State.NOT_TESTABLE)
    counts = Counter((row.area, row.state) for row in rows)
    totals = Counter(row.state for row in rows)
    lines = ["".join([f"{'area':<10}", *(f"{state:>14}" for state in columns)])]
    lines.extend(
        "".join([f"{area:<10}", *(f"{counts[area, state]:>14}" for state in columns)])
        for area in sorted({row.area for row in rows})
    )
    lines.append("".join([f"{f'all {len(rows)}':<10}", *(f"{totals[state]:>14}" for state in columns)]))
    waits = Counter(row.reason.split()[0] for row in rows if row.state is State.OPEN)
    lines.extend(f"{waits[key]:>5} wait for {key}: {name}" for key, name in BRINGS.items() if waits[key])
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(report(load()) + "\n")
