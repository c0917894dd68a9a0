"""Turns JSON documents of runs into the tables of `docs/benchmarks.md`, in place between two marks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

BEGIN: Final = "<!-- figures: begin -->"
END: Final = "<!-- figures: end -->"
_RATE: Final = "trials a second"
_CPU: Final = "CPU a trial"
_RUNNERS: Final = ("tollbar", "bare")

Row = dict[str, Any]


def text_of(documents: Sequence[dict[str, Any]]) -> str:
    """Returns the tables of all documents, each with the conditions under which it was taken."""
    return "\n\n".join(part for document in documents for part in _document(document))


def _document(document: dict[str, Any]) -> list[str]:
    rows: list[Row] = document["figures"]
    tables = [_trials(rows), _parts(rows), _peers(rows), _ratios(rows), *_plain(rows)]
    return [_conditions(document, rows), *(table for table in tables if table)]


def _conditions(document: dict[str, Any], rows: list[Row]) -> str:
    facts = document["machine"]
    loads = [load for row in rows for load in row["loads"]]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"Taken {facts['date']} at commit `{facts['commit']}`, in {document['took_s']:.0f} s: {facts['cores']} cores "
        f"({facts['cpu']}), {facts['memory_gib']} GiB, {facts['system']}, Linux {facts['kernel']}, "
        f"Python {facts['python']}, {'root' if facts['root'] else 'not root'}; {packages}. Load average before: "
        f"{document['load_before']:.1f}; beside the figures: {min(loads):.1f} to {max(loads):.1f}."
    )


def _trials(rows: list[Row]) -> str:
    """Returns tollbar beside the bare sandboxes, one row a load."""
    loads = {_load(row): row for row in rows if row["what"] == _CPU and row["system"] in _RUNNERS}
    lines: list[list[str]] = []
    for load in loads:
        cells = [_value(rows, _RATE, load, system, 1) for system in _RUNNERS]
        cpu = [_value(rows, _CPU, load, system, 1) for system in _RUNNERS]
        above = f"{float(cpu[0]) - float(cpu[1]):.1f}" if all(cpu) else ""
        lines.append([*load, *cells, *cpu, above, _spread(rows, load)])
    head = [
        "agent",
        "k",
        "n",
        "task",
        "form",
        "trials/s",
        "bare",
        "CPU ms a trial",
        "bare",
        "above bare",
        "CPU, rounds",
    ]
    return _table(head, lines)


def _load(row: Row) -> tuple[str, ...]:
    return tuple(str(row.get(name, "")) for name in ("agent", "k", "n", "task", "form"))


def _value(rows: list[Row], what: str, load: tuple[str, ...], system: str, digits: int) -> str:
    found = _one(rows, lambda row: row["what"] == what and row["system"] == system and _load(row) == load)
    return "" if found is None else f"{found['median']:.{digits}f}"


def _spread(rows: list[Row], load: tuple[str, ...]) -> str:
    found = _one(rows, lambda row: row["what"] == _CPU and row["system"] == "tollbar" and _load(row) == load)
    return "" if found is None else f"{min(found['values']):.0f} to {max(found['values']):.0f}"


def _beside(row: Row) -> str:
    return f"{min(row['loads']):.1f} to {max(row['loads']):.1f}"


def _one(rows: list[Row], wanted: Callable[[Row], bool]) -> Row | None:
    return next(filter(wanted, rows), None)


def _parts(rows: list[Row]) -> str:
    """Returns where the CPU time of a Trial is spent."""
    lines = [
        [row["system"], row["part"], row["agent"], str(row["k"]), str(row["n"]), row["task"], f"{row['median']:.1f}"]
        for row in rows
        if row["what"] == "CPU a trial, part" and str(row["n"]) == "4"
    ]
    return _table(["of", "part", "agent", "k", "n", "task", "CPU ms a trial"], lines)


def _peers(rows: list[Row]) -> str:
    lines: list[list[str]] = []
    for row in rows:
        if row["what"] == _CPU and row["system"] not in _RUNNERS:
            same = _one(rows, lambda other, row=row: other["what"] == _RATE and _same(other, row))
            rate = "" if same is None else f"{same['median']:.1f}"
            spread = f"{min(row['values']):.0f} to {max(row['values']):.0f}"
            lines.append([row["system"], row["agent"], row["k"], rate, f"{row['median']:.1f}", spread, _beside(row)])
    return _table(["runner", "agent", "k", "trials/s", "CPU ms a trial", "CPU, rounds", "load"], lines)


def _same(one: Row, other: Row) -> bool:
    return one["system"] == other["system"] and _load(one) == _load(other)


def _ratios(rows: list[Row]) -> str:
    lines = [
        [row["system"], row["what"], row["agent"], row["k"], f"{row['median']:.2f}"]
        for row in rows
        if row["what"].endswith("ratio of medians")
    ]
    return _table(["ratio", "of", "agent", "k", ""], lines)


def _plain(rows: list[Row]) -> list[str]:
    """Returns everything else, a table for each kind of figure."""
    special = {_RATE, _CPU, "CPU a trial, part", "CPU a trial, difference of medians"}
    rest = [row for row in rows if row["what"] not in special and not row["what"].endswith("ratio of medians")]
    tables: list[str] = []
    for what in dict.fromkeys(row["what"] for row in rest):
        mine = [row for row in rest if row["what"] == what]
        lines = [[_labels(row), _shown(row["median"], row), _shown(min(row["values"]), row) + " to "
                  + _shown(max(row["values"]), row)] for row in mine]  # fmt: skip
        unit = f", {mine[0]['unit']}" if mine[0]["unit"] else ""
        tables.append(_table([f"{what}{unit}", "median", "rounds"], lines))
    return tables


def _labels(row: Row) -> str:
    known = {"system", "what", "unit", "median", "values", "loads"}
    return ", ".join([row["system"], *(f"{name} {value}" for name, value in row.items() if name not in known)])


def _shown(value: float, row: Row) -> str:
    return f"{value:.{0 if row['unit'] in {'MiB', 'ms/s', 'trials/s'} else 2 if row['unit'] in {'s', ''} else 1}f}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    if not lines:
        return ""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("documents", nargs="+", type=Path, help="JSON documents of `python -m bench --out`")
    parser.add_argument("--into", type=Path, help="the document to change; default: standard output")
    options = parser.parse_args()
    text = text_of([json.loads(path.read_text()) for path in options.documents])
    if options.into is None:
        sys.stdout.write(f"{text}\n")
        return
    before, _, rest = options.into.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    options.into.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
