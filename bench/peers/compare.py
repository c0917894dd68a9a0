"""tollbar beside its peers: the same task, the same run, alternating order, ratios of medians.

A peer is a program that starts, works and ends; its start (a run of one Trial) is measured apart and taken off, so
that what is compared is the cost of a Trial. tollbar's figures count server, worker and database together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import jobs, machine
from bench.figures import Figures, say
from bench.peers import venvs
from bench.peers.harbor import MODES, Harbor
from bench.peers.inspect_ai import Inspect
from bench.peers.peerrun import PeerRun
from bench.server import Server, server

SLOTS: Final = 4
_AGENTS: Final = ("oracle", "nop")
_CPU: Final = "CPU a trial"
_RATE: Final = "trials a second"
_WARM_UP: Final = 4


@dataclass(frozen=True)
class Peer:
    """One peer in one mode: how it is called in the table, and how it is run with (agent, k)."""

    name: str
    run: Callable[[str, int], PeerRun]


def run(figures: Figures, *, rounds: int, ks: Sequence[int]) -> None:
    """Takes rounds of tollbar and of every peer that can be had, and notes the ratios of the medians."""
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as name:
        folder = Path(name)
        (folder / "tollbar").mkdir()
        peers = _peers(folder)
        with server(folder / "tollbar", slots=SLOTS) as running:
            for agent in _AGENTS:
                jobs.run(running.http, agent, _WARM_UP)
            for number in range(rounds):
                say(f"peers, round {number + 1} of {rounds}")
                _round(figures, running, peers, ks, backwards=bool(number % 2))
    _ratios(figures, peers, ks)


def _peers(folder: Path) -> list[Peer]:
    found: list[Peer] = []
    try:
        harbor = Harbor.prepare(venvs.harbor(), folder)
        found += [
            Peer(f"Harbor, {mode} verifier", lambda agent, k, mode=mode: harbor.run(agent, k, SLOTS, mode))
            for mode in MODES
        ]
    except venvs.PeerMissing as error:
        say(f"left out: {error}")
    try:
        inspect = Inspect(venvs.inspect_ai(), folder)
        found.append(Peer("Inspect AI, no isolation", lambda agent, k: inspect.run(agent, k, SLOTS)))
    except venvs.PeerMissing as error:
        say(f"left out: {error}")
    return found


def _round(figures: Figures, running: Server, peers: Sequence[Peer], ks: Sequence[int], *, backwards: bool) -> None:
    for agent in _AGENTS:
        starts = {peer.name: peer.run(agent, 1) for peer in peers}
        for name, start in starts.items():
            figures.add(name, "program with one trial", "s", start.wall_s, agent=agent)
            figures.add(name, "program with one trial, CPU", "ms", start.cpu_s * 1000, agent=agent)
        for k in ks:
            takes = [_tollbar(running, agent, k), *(_peer(peer, starts[peer.name], agent, k) for peer in peers)]
            for take in reversed(takes) if backwards else takes:
                take(figures)


def _tollbar(running: Server, agent: str, k: int) -> Callable[[Figures], None]:
    def take(figures: Figures) -> None:
        before = machine.tree_cpu(running.pid)
        done = jobs.run(running.http, agent, k)
        used = machine.tree_cpu(running.pid) - before
        _note(figures, "tollbar beside peers", agent, k, done.wall_s, used.total_s, k)

    return take


def _peer(peer: Peer, start: PeerRun, agent: str, k: int) -> Callable[[Figures], None]:
    def take(figures: Figures) -> None:
        done = peer.run(agent, k)
        _note(figures, peer.name, agent, k, done.wall_s - start.wall_s, done.cpu_s - start.cpu_s, k - 1)

    return take


def _note(figures: Figures, system: str, agent: str, k: int, wall_s: float, cpu_s: float, trials: int) -> None:
    say(f"  {system} {agent} k={k}: {trials / wall_s:.1f} trials/s, {cpu_s / trials * 1000:.1f} ms")
    figures.add(system, _RATE, "trials/s", trials / wall_s, agent=agent, k=k, n=SLOTS)
    figures.add(system, _CPU, "ms", cpu_s / trials * 1000, agent=agent, k=k, n=SLOTS)


def _ratios(figures: Figures, peers: Sequence[Peer], ks: Sequence[int]) -> None:
    for what, name in ((_CPU, "CPU a trial, ratio of medians"), (_RATE, "trials a second, ratio of medians")):
        for peer in peers:
            for agent in _AGENTS:
                for k in ks:
                    ours = figures.median("tollbar beside peers", what, agent=agent, k=k)
                    theirs = figures.median(peer.name, what, agent=agent, k=k)
                    if ours is not None and theirs:
                        figures.add(f"tollbar to {peer.name}", name, "", ours / theirs, agent=agent, k=k)
