"""Figures as they are taken, one value a round, and how they are told: a table for people, JSON for programs."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench import machine

_DIGITS: Final = {"trials/s": 1, "ms": 1, "MiB": 0, "ms/s": 0, "s": 2, "": 2}


@dataclass(frozen=True)
class Key:
    """What a figure is of: who was measured, what, under which conditions."""

    system: str
    what: str
    unit: str
    labels: tuple[tuple[str, str], ...]

    def text(self) -> str:
        return " ".join([self.system, *(f"{name}={value}" for name, value in self.labels)])


@dataclass
class Series:
    """One figure's values, a round each, with the load average beside each."""

    values: list[float] = field(default_factory=list[float])
    loads: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass
class Figures:
    """All figures of one run, in the order in which they first came."""

    series: dict[Key, Series] = field(default_factory=dict[Key, Series])

    def add(self, system: str, what: str, unit: str, value: float, **labels: object) -> None:
        """Notes one value of this round."""
        key = Key(system, what, unit, tuple((name, str(label)) for name, label in labels.items()))
        found = self.series.setdefault(key, Series())
        found.values.append(value)
        found.loads.append(machine.load())

    def median(self, system: str, what: str, **labels: object) -> float | None:
        """Returns the median of a figure that was taken, or None."""
        wanted = {(name, str(label)) for name, label in labels.items()}
        for key, series in self.series.items():
            if key.system == system and key.what == what and wanted <= set(key.labels):
                return series.median
        return None

    def document(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Returns everything as one JSON object."""
        rows = [
            {
                "system": key.system,
                "what": key.what,
                "unit": key.unit,
                **dict(key.labels),
                "median": round(series.median, 6),
                "values": [round(value, 6) for value in series.values],
                "loads": [round(value, 2) for value in series.loads],
            }
            for key, series in self.series.items()
        ]
        return {**facts, "figures": rows}

    def table(self) -> str:
        """Returns a table in Markdown: median, lowest and highest of the rounds, load averages."""
        lines = ["| figure | of | median | lowest to highest | load |", "|---|---|---|---|---|"]
        for key, series in sorted(self.series.items(), key=lambda item: self._order(item[0])):
            shown = [_shown(value, key.unit) for value in (series.median, min(series.values), max(series.values))]
            loads = f"{min(series.loads):.1f} to {max(series.loads):.1f}"
            unit = f" {key.unit}" if key.unit else ""
            lines.append(f"| {key.what} | {key.text()} | {shown[0]}{unit} | {shown[1]} to {shown[2]} | {loads} |")
        return "\n".join(lines)

    def _order(self, key: Key) -> int:
        """Figures of one kind stand together, kinds in the order in which they first came."""
        return next(place for place, other in enumerate(self.series) if other.what == key.what)


def _shown(value: float, unit: str) -> str:
    return f"{value:.{_DIGITS.get(unit, 2)}f}"


def say(text: str) -> None:
    """Writes a line for the person who waits."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
