"""The example task with three steps that lies beside the repository, as a changed copy (see its README)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.conftest import Running
from tests.e2e.tasks import Ended, run_folder
from tollbar.app.references import References
from tollbar.artifacts.blobs import local_blobs
from tollbar.db.datadir import read_server_facts
from tollbar.db.session import open_database
from tollbar.sandboxes.seal import read_manifest

EXAMPLE: Final = Path(__file__).parents[2].parent / "shared" / "examples" / "tasks" / "harbor-cookbook" / "multi-step"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The task without the instruction that needs the network while its image is built."""
    root = tmp_path_factory.mktemp("steps")
    shutil.copytree(EXAMPLE, root / "multi-step")
    dockerfile = root / "multi-step" / "environment" / "Dockerfile"
    changed, count = re.subn(r"^RUN (?:.*\\\n)*.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    assert count == 1
    dockerfile.write_text(changed)
    return root


@pytest.fixture(scope="module")
def solved(server: Running, copy: Path) -> Ended:
    return run_folder(server, copy)


def only(ended: Ended) -> dict[str, Any]:
    [trial] = ended.trials.values()
    return trial


def test_the_oracle_takes_all_three_steps_in_one_held_sandbox(solved: Ended) -> None:
    trial = only(solved)

    assert (trial["reward"], trial["pass"], trial["steps_run"], trial["steps_total"]) == (1.0, True, 3, 3)
    assert [(step["name"], step["reward"], step["gate"]) for step in trial["steps"]["items"]] == [
        ("scaffold", 1.0, "reached"),
        ("implement", 1.0, "reached"),
        ("document", 1.0, None),
    ]
    assert trial["sandbox_forms"] == {"agent": "held", "verifier": "held"}
    assert trial["verifier"]["mode"] == "shared"


def test_each_step_leaves_its_own_artifacts(solved: Ended) -> None:
    listed = [item["name"] for item in only(solved)["artifacts"]["items"] if item["kind"] == "output"]
    by_step = {
        step: sorted(name.split("/", 2)[2] for name in listed if name.startswith(f"steps/{step}/"))
        for step in ("scaffold", "implement", "document")
    }

    assert {step: [name for name in names if "agent/" not in name] for step, names in by_step.items()} == {
        "scaffold": ["app/greet.sh"],
        "implement": ["app/greet.sh", "logs/artifacts/setup-marker.txt"],
        "document": ["app/README.md", "app/greet.sh", "logs/artifacts/greet.sh", "logs/artifacts/setup-marker.txt"],
    }


def test_an_agent_that_does_nothing_is_stopped_by_the_first_gate(server: Running, copy: Path) -> None:
    trial = only(run_folder(server, copy, "--profile", "tollbar/nop"))

    assert (trial["status"], trial["reward"], trial["steps_run"], trial["steps_total"]) == ("succeeded", 0.0, 1, 3)
    assert [(step["name"], step["gate"]) for step in trial["steps"]["items"]] == [("scaffold", "below")]


def test_a_one_shot_sandbox_cannot_take_steps_and_says_so(server: Running, copy: Path) -> None:
    server.cli("datasets", "push", str(copy), "--name", "examples/steps", "--version", "1")
    body = {"dataset": "examples/steps@1", "max_cost_usd": 1, "execution": {"sandbox_form": "one_shot"}}
    with server.http() as http:
        answer = http.post("/v1/job", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "UNSUPPORTED_CAPABILITY")
    assert "[[steps]]" in answer.json()["message"]


async def test_retention_knows_every_file_that_the_seals_of_steps_name(solved: Ended) -> None:
    facts = read_server_facts(solved.server.data_dir)
    assert facts is not None
    database, blobs = open_database(facts["database_url"], pool_size=1), local_blobs(solved.server.data_dir / "blobs")
    try:
        named = await References(database, blobs).by_seals()
    finally:
        await database.close()
    steps = [step["sealed_sha256"] for step in only(solved)["steps"]["items"]]
    files = [
        member.sha256
        for step in steps
        for entry in read_manifest(await blobs.get(step)).entries
        for member in entry.members
        if member.sha256 is not None
    ]

    assert len(files) >= 7
    assert {*steps, *files} <= named
