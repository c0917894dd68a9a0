"""Small tasks that a test writes, runs with their own solutions, and looks at Trial by Trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Running

TASK_TOML = 'schema_version = "1.4"\n[task]\nname = "bad/{name}"\n[environment]\nnetwork_mode = "no-network"\n'
GOOD = {
    "task.toml": TASK_TOML,
    "instruction.md": "Do nothing.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/sh\ntrue\n",
    "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
}


def write_task(root: Path, name: str, files: Mapping[str, str]) -> None:
    """Writes the good task as `name` below `root`, with some of its files replaced."""
    for path, text in (GOOD | dict(files)).items():
        target = root / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("{name}", name))


def folder(root: Path, **changes: str) -> Path:
    """Writes one task folder named `task` below `root`; changes are by file name, `__` for a slash."""
    write_task(root, "task", {name.replace("__", "/").replace("_dot_", "."): text for name, text in changes.items()})
    return root


def toml(*, top: str = "", agent_s: float = 60, verifier_s: float = 60, verifier: str = "", environment: str = "",
         more: str = "") -> str:  # fmt: skip
    """Returns a task.toml with these time limits and further lines at the top, in its tables and at its end."""
    return (
        f'schema_version = "1.4"\n{top}\n[task]\nname = "bad/{{name}}"\n[agent]\ntimeout_sec = {agent_s}\n'
        f"[verifier]\ntimeout_sec = {verifier_s}\n{verifier}\n"
        f'[environment]\nnetwork_mode = "no-network"\n{environment}\n{more}\n'
    )


@dataclass(frozen=True)
class Ended:
    """A Job that ended, and the results of its Trials by task id."""

    server: Running
    job: dict[str, Any]
    trials: dict[str, dict[str, Any]]

    def content(self, task: str, name: str) -> bytes:
        """Returns the bytes of a Trial's artifact; fails when it has none of that name."""
        trial = self.trials[task]
        listed = {item["name"]: item["artifact_id"] for item in trial["artifacts"]["items"]}
        assert name in listed, sorted(listed)
        with self.server.http() as http:
            answer = http.get(f"/v1/trials/{trial['trial_id']}/artifacts/{listed[name]}/content")
        assert answer.status_code == 200, answer.text
        return answer.content


def results(server: Running, job_id: str) -> list[dict[str, Any]]:
    """Returns the results of all Trials of a Job, in the order of its result."""
    found: list[dict[str, Any]] = []
    query = {"trials_limit": "100"}
    with server.http() as http:
        while True:
            page = http.get(f"/v1/job/{job_id}/result", params=query).json()["trials"]
            found += [http.get(f"/v1/trials/{item['trial_id']}/result").json() for item in page["items"]]
            if page["next_cursor"] is None:
                return found
            query["trials_cursor"] = page["next_cursor"]


def run_folder(server: Running, root: Path, *words: str) -> Ended:
    """Runs every task of a folder once with the oracle, and returns how each ended."""
    line = ["jobs", "submit", str(root), "--max-cost", "10", "--watch", "--json", *words]
    done = server.cli(*line, check=False)
    assert done.returncode in {0, 1}, (done.stdout, done.stderr)
    job = json.loads(done.stdout.splitlines()[-1])
    trials = {trial["task"]["task_id"]: trial for trial in results(server, job["job_id"])}
    return Ended(server, job, trials)
