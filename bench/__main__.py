"""Runs the benchmarks: a table on standard error, one JSON document where `--out` says."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from bench import database, engine_cost, enqueue, gateway, jobs, latency, machine, throughput, variants, waiting
from bench.calls import CallsFailed
from bench.figures import Figures, say
from bench.peers import compare, venvs
from bench.peers.peerrun import PeerFailed
from bench.peers.venvs import PeerMissing
from bench.server import Server, ServerFailed, server
from bench.throughput import Load

_AGENTS: Final = ("oracle", "nop")
_WORTH_A_ROW: Final = 0.5
"""Statements a Trial of one kind."""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    loads: tuple[Load, ...]
    fresh: bool
    """A new server for each round of the trials, started twice; else one for all of them."""
    requests: int
    flows: int
    waiting: int
    """Trials that wait at once."""
    peers_k: tuple[int, ...]


_FULL: Final = Plan(
    rounds=3,
    loads=(
        # First on its server, because memory is told after 200 Trials.
        *(Load(agent, 200, 4) for agent in _AGENTS),
        *(Load(agent, 50, n) for n in (1, 4, 16) for agent in _AGENTS),
        *(Load("oracle", 50, 4, shape) for shape in (variants.SHARED, variants.HOOK)),
    ),
    fresh=True,
    requests=20,
    flows=200,
    waiting=256,
    peers_k=(50, 200),
)
_QUICK: Final = Plan(
    rounds=3,
    loads=tuple(Load(agent, 24, 4) for agent in _AGENTS),
    fresh=False,
    requests=10,
    flows=50,
    waiting=32,
    peers_k=(24,),
)


def _throughput(figures: Figures, plan: Plan) -> None:
    if not plan.fresh:
        throughput.rounds_on_one(figures, plan.loads, plan.rounds)
        return
    for number in range(plan.rounds):
        say(f"trials, round {number + 1} of {plan.rounds}")
        throughput.fresh_round(figures, plan.loads, backwards=bool(number % 2))
        throughput.held_round(figures, Load("oracle", min(load.k for load in plan.loads), 4))


def _requests(figures: Figures, plan: Plan) -> None:
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder, server(Path(folder), slots=4) as running:
        throughput.note_start(figures, running, 1)
        jobs.run(running.http, "oracle", 1)
        for number in range(plan.rounds):
            say(f"latency, round {number + 1} of {plan.rounds}")
            latency.round_of(figures, running, requests=plan.requests)
        _statements(figures, running, min(load.k for load in plan.loads))


def _enqueue(figures: Figures, plan: Plan) -> None:
    slots = enqueue.SLOTS
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder, server(Path(folder), slots=slots) as running:
        throughput.note_start(figures, running, 1)
        for number in range(plan.rounds):
            say(f"enqueue, round {number + 1} of {plan.rounds}")
            enqueue.round_of(figures, running)


def _engine(figures: Figures, plan: Plan) -> None:
    say("engine")
    for done in engine_cost.run(plan.flows, 4, plan.rounds):
        figures.add("engine", "CPU a flow of two empty steps", "ms", done.cpu_s / plan.flows * 1000)
        figures.add("engine", "of it in the database", "ms", done.database_s / plan.flows * 1000)


def _waiting(figures: Figures, plan: Plan) -> None:
    say("waiting")
    slots = plan.waiting
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder, server(Path(folder), slots=slots) as running:
        dataset = variants.publish(running, variants.WAITING)
        jobs.run(running.http, "oracle", 1)
        waiting.round_of(figures, running, dataset, plan.waiting, requests=5 * plan.requests)


def _statements(figures: Figures, running: Server, k: int) -> None:
    """What the database is asked for one Trial; its times are those of a server that logs every statement."""
    say("statements")
    with database.listened(running) as kinds:
        jobs.run(running.http, "oracle", k)
    for name, kind in sorted(kinds.items(), key=lambda item: -item[1].count):
        if kind.count >= _WORTH_A_ROW * k:
            figures.add("database", "statements a Trial", "", kind.count / k, kind=name)
    for owner in ("tollbar", "engine", "connection"):
        mine = [kind for name, kind in kinds.items() if name.startswith(owner)]
        figures.add("database", "statements a Trial, all", "", sum(kind.count for kind in mine) / k, owner=owner)
        figures.add("database", "statement time a Trial", "ms", sum(kind.ms for kind in mine) / k, owner=owner)


def _distance(figures: Figures, plan: Plan) -> None:
    """What tollbar adds to its sandboxes, and how much of that is the engine's."""
    for load in plan.loads:
        labels = load.labels()
        whole = figures.median("tollbar", "CPU a trial", **labels)
        bare = figures.median("bare", "CPU a trial", form="one_shot", **labels)
        if whole is not None and bare is not None:
            figures.add("tollbar above bare", "CPU a trial, difference of medians", "ms", whole - bare, **labels)


def _gateway(figures: Figures, plan: Plan) -> None:
    gateway.run(figures, plan.rounds)


def _gateway_peers(figures: Figures, plan: Plan) -> None:
    gateway.run(figures, plan.rounds, peer=venvs.litellm())


def _peers(figures: Figures, plan: Plan) -> None:
    compare.run(figures, rounds=plan.rounds, ks=plan.peers_k)


_PARTS: Final[dict[str, Callable[[Figures, Plan], None]]] = {
    "trials": _throughput,
    "requests": _requests,
    "enqueue": _enqueue,
    "engine": _engine,
    "gateway": _gateway,
}
_ALL_PARTS: Final = {**_PARTS, "waiting": _waiting, "peers": _peers, "gateway-peers": _gateway_peers}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer Trials and requests: under 90 s")
    parser.add_argument(
        "--only",
        default=",".join(_PARTS),
        help="parts with commas between; `peers` installs Harbor and Inspect AI once (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, help="rounds of each part (default: 3)")
    parser.add_argument("--out", type=Path, help="file for the JSON document")
    options = parser.parse_args()
    plan = _QUICK if options.quick else _FULL
    if options.rounds:
        plan = Plan(**{**vars(plan), "rounds": options.rounds})
    machine.adopt_orphans()
    started, figures, load = time.perf_counter(), Figures(), machine.load()
    names = options.only.split(",")
    unknown = [name for name in names if name not in _ALL_PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(_ALL_PARTS)}")
    failed = [name for name in names if not _done(name, figures, plan)]
    _distance(figures, plan)
    facts = {
        "machine": machine.facts(),
        "load_before": load,
        "took_s": round(time.perf_counter() - started, 1),
        "failed": failed,
    }
    say(figures.table())
    say(f"\n{json.dumps(facts)}")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(figures.document(facts), indent=1) + "\n")
    return 1 if failed else 0


def _done(name: str, figures: Figures, plan: Plan) -> bool:
    """Takes one part; one that fails costs its own figures only."""
    try:
        _ALL_PARTS[name](figures, plan)
    except (
        ServerFailed,
        jobs.JobWrong,
        CallsFailed,
        PeerFailed,
        PeerMissing,
        httpx2.HTTPError,
        subprocess.SubprocessError,
    ) as error:
        say(f"the part {name} failed: {type(error).__name__}: {error}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
