"""The bare sandboxes: what a Trial's two phases do to the backend, without engine, database, budget or HTTP.

Run as a program it works in a process of its own and writes one JSON object: what is left of a Trial's cost above
this figure is tollbar's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import machine
from tollbar.artifacts.blobs import BlobStore, local_blobs
from tollbar.sandboxes.bwrap import BwrapProvider
from tollbar.sandboxes.interface import (
    ArtifactPath,
    Form,
    ImageRef,
    ImageSpec,
    Limits,
    Purpose,
    Sandbox,
    SandboxName,
    SandboxSpec,
    SealLimits,
)
from tollbar.sandboxes.seal import read_manifest, restore

TASK: Final = Path(__file__).resolve().parents[1] / "src/tollbar/app/demo/hello-world"
_ENV: Final = {"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
_LIMITS: Final = Limits(cpus=1, memory_mb=256)
_AGENT_PATHS: Final = (
    ArtifactPath("/logs/agent", "agent"),
    ArtifactPath("/logs/artifacts", "logs/artifacts"),
    ArtifactPath("/app/hello.txt", "app/hello.txt"),
)
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class BareRun:
    """What `k` Trials' sandboxes took."""

    wall_s: float
    supervisor_s: float
    """CPU seconds of the process that starts and watches sandboxes."""
    sandboxes_s: float
    """CPU seconds of everything that it started."""

    @property
    def cpu_s(self) -> float:
        return self.supervisor_s + self.sandboxes_s


def run(agent: str, k: int, n: int, form: str = "one_shot") -> BareRun:
    """Runs `k` bare Trials, `n` at a time, in a new process. Raises `CalledProcessError`."""
    words = ["-m", "bench.bare", "--agent", agent, "--k", str(k), "--n", str(n), "--form", form]
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return BareRun(**json.loads(done.stdout))


@dataclass(frozen=True)
class _World:
    """What every bare Trial uses."""

    provider: BwrapProvider
    blobs: BlobStore
    form: Form
    agent_image: ImageRef
    verifier_image: ImageRef
    solution: Path
    solved: bool

    def spec(self, number: int, purpose: Purpose, inputs: tuple[Path, ...]) -> SandboxSpec:
        agent = purpose is Purpose.AGENT
        image = self.agent_image if agent else self.verifier_image
        logs = ("/logs/agent", "/logs/artifacts") if agent else ("/logs/verifier",)
        return SandboxSpec(
            name=SandboxName(f"bench_{number}", 1, purpose),
            owner="bench",
            form=self.form,
            image=image,
            workdir=image.workdir,
            env={**_ENV, **image.env},
            limits=_LIMITS,
            inputs=inputs,
            directories=(image.workdir, *logs),
        )


async def _trial(world: _World, number: int) -> None:
    manifest_blob = await _agent(world, number)
    await _verify(world, number, manifest_blob)


async def _agent(world: _World, number: int) -> str:
    inputs = (world.solution,) if world.solved else ()
    sandbox = await world.provider.create(world.spec(number, Purpose.AGENT, inputs))
    try:
        if world.solved:
            await _exec(sandbox, "/solution/solve.sh")
        seal = await sandbox.seal(_AGENT_PATHS, SealLimits(), world.blobs.put_fd)
        return await world.blobs.put_bytes(seal.manifest)
    finally:
        await sandbox.destroy()


async def _verify(world: _World, number: int, manifest_blob: str) -> None:
    name = SandboxName(f"bench_{number}", 1, Purpose.VERIFY)
    manifest = read_manifest(await world.blobs.get(manifest_blob))
    copy = await world.provider.scratch_layer(name, lambda folder: restore(manifest, world.blobs.copy_to, folder))
    sandbox = await world.provider.create(world.spec(number, Purpose.VERIFY, (copy,)))
    try:
        await _exec(sandbox, "/tests/test.sh")
        reward = await sandbox.read_file("/logs/verifier/reward.txt", 1024)
        if reward != (b"1\n" if world.solved else b"0\n"):
            msg = f"the reward is {reward!r}"
            raise RuntimeError(msg)
        await sandbox.seal([ArtifactPath("/logs/verifier", "verifier")], SealLimits(), world.blobs.put_fd)
    finally:
        await sandbox.destroy()


async def _exec(sandbox: Sandbox, *argv: str) -> None:
    result = await sandbox.exec(argv, timeout_s=_TIMEOUT_S)
    await sandbox.kill()
    if result.exit_code != 0:
        msg = f"{argv}: {result}"
        raise RuntimeError(msg)


async def _world(folder: Path, agent: str, form: Form) -> _World:
    provider = BwrapProvider(folder / "sandboxes", host=socket.gethostname())
    problems = await provider.preflight()
    if problems:
        raise SystemExit(f"no sandbox can run here: {problems}")

    def fill(layer: Path) -> None:
        (layer / "solution").mkdir()
        (layer / "solution/solve.sh").write_bytes((TASK / "solution/solve.sh").read_bytes())
        (layer / "solution/solve.sh").chmod(0o755)

    return _World(
        provider=provider,
        blobs=local_blobs(folder / "blobs"),
        form=form,
        agent_image=await provider.build(ImageSpec(TASK / "environment")),
        verifier_image=await provider.build(ImageSpec(TASK / "tests")),
        solution=await provider.layer("bench:solution", fill),
        solved=agent == "oracle",
    )


async def _measure(folder: Path, agent: str, k: int, n: int, form: Form) -> BareRun:
    world = await _world(folder, agent, form)
    await _trial(world, k)
    slots = asyncio.Semaphore(n)

    async def one(number: int) -> None:
        async with slots:
            await _trial(world, number)

    before = machine.own_cpu_s(), machine.children_cpu_s()
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(k):
            group.create_task(one(number))
    wall_s = time.perf_counter() - started
    await world.provider.kill_all()
    supervisor_s = machine.own_cpu_s() - before[0]
    machine.reap(())
    return BareRun(wall_s, supervisor_s, machine.children_cpu_s() - before[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bare", description=__doc__)
    parser.add_argument("--agent", choices=("oracle", "nop"), default="oracle")
    parser.add_argument("--k", type=int, default=50, help="Trials")
    parser.add_argument("--n", type=int, default=4, help="Trials at a time")
    parser.add_argument("--form", choices=[form.value for form in Form], default=Form.ONE_SHOT.value)
    options = parser.parse_args()
    machine.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="tollbar-bench-") as folder:
        Path(folder).chmod(0o755)
        work = _measure(Path(folder), options.agent, options.k, options.n, Form(options.form))
        sys.stdout.write(json.dumps(asdict(asyncio.run(work))) + "\n")


if __name__ == "__main__":
    main()
