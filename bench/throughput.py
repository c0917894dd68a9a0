"""Trials a second and CPU milliseconds a Trial, and the same sandboxes without tollbar, in alternating order."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import bare, jobs, machine, variants
from bench.figures import Figures, say
from bench.server import Server, server

_WARM_UP: Final = 4
_SETTLE_S: Final = 2.0
_MEMORY_AFTER: Final = 200
"""Trials."""


@dataclass(frozen=True)
class Load:
    """One load: how many Trials of which agent, how many at a time."""

    agent: str
    k: int
    n: int
    shape: str = variants.PLAIN

    def labels(self) -> dict[str, object]:
        return {"agent": self.agent, "k": self.k, "n": self.n, "task": self.shape}


def fresh_round(figures: Figures, loads: Sequence[Load], *, backwards: bool) -> None:
    """Takes one round of every load; each number of slots has a new server of its own, started twice."""
    for n in sorted({load.n for load in loads}, reverse=backwards):
        with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder:
            with server(Path(folder), slots=n) as running:
                note_start(figures, running, 1)
            with server(Path(folder), slots=n) as running:
                note_start(figures, running, 2)
                warm = _warm(figures, running, loads, n)
                _take(figures, running, warm, backwards=backwards)
                _note_memory(figures, running, f"after {sum(load.k for load in warm.loads)} trials")


def rounds_on_one(figures: Figures, loads: Sequence[Load], rounds: int) -> None:
    """Takes all rounds of loads with the same number of slots on one server."""
    n = loads[0].n
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder, server(Path(folder), slots=n) as running:
        note_start(figures, running, 1)
        warm = _warm(figures, running, loads, n)
        for number in range(rounds):
            say(f"trials, round {number + 1} of {rounds}")
            _take(figures, running, warm, backwards=bool(number % 2))
            held_round(figures, loads[0])
        _note_memory(figures, running, f"after {rounds * sum(load.k for load in warm.loads)} trials")


@dataclass(frozen=True)
class _Warm:
    """The loads of a server that has run each of them before, their datasets, and the machine's CPU rate at rest."""

    loads: tuple[Load, ...]
    datasets: dict[str, str]
    idle: float


def _warm(figures: Figures, running: Server, loads: Sequence[Load], n: int) -> _Warm:
    """Notes what a server needs that has just started, and lets it run a few Trials of each load with `n` slots."""
    mine = tuple(load for load in loads if load.n == n)
    _note_memory(figures, running, "at rest")
    datasets = {shape: variants.publish(running, shape) for shape in sorted({load.shape for load in mine})}
    for agent, shape in sorted({(load.agent, load.shape) for load in mine}):
        jobs.run(running.http, agent, _WARM_UP, datasets[shape])
    resting = machine.tree_cpu(running.pid)
    idle = machine.idle_rate(_SETTLE_S)
    used = machine.tree_cpu(running.pid) - resting
    for part, seconds in (("server", used.server_s), ("database", used.database_s)):
        figures.add("tollbar", "CPU at rest", "ms/s", seconds / _SETTLE_S * 1000, part=part)
    return _Warm(mine, datasets, idle)


def _take(figures: Figures, running: Server, warm: _Warm, *, backwards: bool) -> None:
    """Takes one round of every load of one server."""
    trials = 0
    for load in warm.loads:
        takes = [_run_tollbar(running, load, warm.datasets[load.shape], warm.idle)]
        if load.shape == variants.PLAIN:
            takes.append(_run_bare(load))
        for take in reversed(takes) if backwards else takes:
            take(figures)
        trials += load.k
        if trials == _MEMORY_AFTER:
            _note_memory(figures, running, f"after {trials} trials")


def _run_tollbar(running: Server, load: Load, dataset: str, idle: float) -> Callable[[Figures], None]:
    def take(figures: Figures) -> None:
        before, busy, own = machine.tree_cpu(running.pid), machine.busy_s(), machine.own_cpu_s()
        started = time.perf_counter()
        done = jobs.run(running.http, load.agent, load.k, dataset)
        passed_s = time.perf_counter() - started
        used = machine.tree_cpu(running.pid) - before
        machine_s = machine.busy_s() - busy - idle * passed_s - (machine.own_cpu_s() - own)
        labels = load.labels()
        say(f"  tollbar {load}: {load.k / done.wall_s:.1f} trials/s, {used.total_s / load.k * 1000:.1f} ms")
        _note(figures, "tollbar", load, done.wall_s, used.total_s, jobs.forms(running.http, done.jobs[0]["job_id"]))
        for part, seconds in (
            ("server", used.server_s),
            ("sandboxes", used.sandboxes_s),
            ("database", used.database_s),
        ):
            figures.add("tollbar", "CPU a trial, part", "ms", seconds / load.k * 1000, part=part, **labels)
        figures.add("tollbar", "CPU a trial, whole machine", "ms", machine_s / load.k * 1000, **labels)

    return take


def _run_bare(load: Load) -> Callable[[Figures], None]:
    def take(figures: Figures) -> None:
        done = bare.run(load.agent, load.k, load.n)
        say(f"  bare {load}: {load.k / done.wall_s:.1f} trials/s, {done.cpu_s / load.k * 1000:.1f} ms")
        _note(figures, "bare", load, done.wall_s, done.cpu_s, "one_shot")
        for part, seconds in (("supervisor", done.supervisor_s), ("sandboxes", done.sandboxes_s)):
            figures.add("bare", "CPU a trial, part", "ms", seconds / load.k * 1000, part=part, **load.labels())

    return take


def held_round(figures: Figures, load: Load) -> None:
    """Takes one round of the bare sandboxes in their held form, which costs what a phase of several commands needs."""
    done = bare.run(load.agent, load.k, load.n, "held")
    _note(figures, "bare", load, done.wall_s, done.cpu_s, "held")


def _note(figures: Figures, system: str, load: Load, wall_s: float, cpu_s: float, form: str) -> None:
    figures.add(system, "trials a second", "trials/s", load.k / wall_s, **load.labels(), form=form)
    figures.add(system, "CPU a trial", "ms", cpu_s / load.k * 1000, **load.labels(), form=form)


def note_start(figures: Figures, running: Server, start: int) -> None:
    """Notes how long a server took from its start to its first line."""
    figures.add("tollbar", "start to ready", "s", running.ready_s, start=start)
    figures.add("tollbar", "start to ready, CPU", "s", running.ready_cpu_s, start=start)


def _note_memory(figures: Figures, running: Server, when: str) -> None:
    held = machine.memory(running.pid)
    figures.add("tollbar", "memory", "MiB", held.server_rss_mib, part="server", when=when)
    figures.add("tollbar", "memory", "MiB", held.database_rss_mib, part="database, sum of resident", when=when)
    figures.add("tollbar", "memory", "MiB", held.database_pss_mib, part="database, proportional", when=when)
