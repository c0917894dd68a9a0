"""Hostile agents and verifiers in a Job of a real server: what they plant, leave running, look for and ask for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.conftest import Running
from tests.e2e.machine import HIDING, living, new_mark
from tests.e2e.tasks import Ended, run_folder, toml, write_task

SHELL: Final = "#!/bin/sh\n"
CANARY: Final = uuid.uuid4().hex
"""What the server knows and no sandbox, log, answer or artifact may show."""

MARK: Final = new_mark()

SEPARATE: Final = 'environment_mode = "separate"'
ZERO: Final = "echo 0 > /logs/verifier/reward.txt\n"
PLANT: Final = """mkdir -p /logs/verifier
echo 1 > /logs/verifier/reward.txt
echo '{"reward": 1}' > /logs/verifier/reward.json
echo '{"failure_code": "PLANTED"}' > /logs/verifier/reward-details.json
"""

PLANT_TESTS: Final = r"""mkdir -p /tests/deep
printf '#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n' | tee /tests/test.sh > /tests/conftest.py
chmod 755 /tests/test.sh
"""

PLANTED: Final = {
    "files": (PLANT, {}),
    "link-above": (f"rm -rf /logs && ln -s /app /logs\n{PLANT}", {}),
    "link-in-place": ("rm -rf /logs/verifier; ln -s /app /logs/verifier; echo 1 > /app/reward.txt\n", {}),
    "file-in-place": ("rm -rf /logs/verifier; echo 1 > /logs/verifier\n", {}),
    "closed-folder": (f"{PLANT}chmod 000 /logs/verifier /logs\n", {}),
    "separate": (PLANT, {"task.toml": toml(verifier=SEPARATE)}),
    "declared-above": (PLANT, {"task.toml": toml(top='artifacts = ["/logs"]', verifier=SEPARATE)}),
}
"""What an agent puts where the reward is read; the verifier writes none."""

IN_IMAGE: Final = {"tests/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY . /tests\n"}
DECLARED: Final = {
    "declared": (PLANT, {"task.toml": toml(top='artifacts = ["/logs/verifier"]', verifier=SEPARATE)}),
    "declared-tests": (
        PLANT_TESTS,
        {"task.toml": toml(top='artifacts = ["/tests"]', verifier=SEPARATE), **IN_IMAGE},
    ),
}
"""The same where the task declares one of the verifier's own places as an artifact."""

COUNT: Final = "ls -d /proc/[0-9]* | wc -l > /logs/verifier/processes; echo 1 > /logs/verifier/reward.txt\n"

TREE: Final = r"""cd /logs/artifacts
echo kept > kept.txt
ln -s /etc/passwd absolute
ln -s ../../../etc/passwd escapes
mkfifo pipe
python3 - <<'END'
import os, socket
open(b"not-utf8-\xff", "w").close()
open("new\nline", "w").close()
open("back\\slash", "w").close()
socket.socket(socket.AF_UNIX).bind("socket")
os.mkdir("deep")
os.chdir("deep")
for _ in range(200):
    os.mkdir("d")
    os.chdir("d")
END
mkdir closed && echo inside > closed/file && chmod 000 closed/file closed
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that has secrets in its environment, its home, its data directory, and beside it."""
    top = tmp_path_factory.mktemp("hostile")
    home = top / "home"
    home.mkdir()
    secrets = {"HOME": str(home), "PLANTED_SECRET": f"{CANARY}-environment", "OPENAI_API_KEY": f"sk-{CANARY}"}
    (home / "secret.txt").write_text(f"{CANARY}-home")
    running = Running(top / "data", environment=secrets).start()
    (running.data_dir / "secret.txt").write_text(f"{CANARY}-data")
    yield running
    assert running.stop() == 0, running.log()


def search(server: Running, out: str) -> str:
    """Returns a script that writes all it can find out about the server to `out`."""
    home, data = server.environment["HOME"], server.data_dir
    return f"""{{
env; cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo
for place in {home} {data} {data}/pg {data}/blobs {data.parent} /root /home /var/lib /tmp /run; do
    ls -laR $place
    cat $place/secret.txt $place/api_key $place/server.json $place/server.lock $place/.bash_history
done
ls -la /proc/1/fd /proc/1/root /proc/self/fd
}} > {out} 2>&1
cat {out}
"""


@pytest.fixture(scope="module")
def ended(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One Job with a task for each attack."""
    root = tmp_path_factory.mktemp("attacks")
    for name, (solve, files) in {**PLANTED, **DECLARED}.items():
        write_task(root, name, {"solution/solve.sh": SHELL + solve, "tests/test.sh": f"{SHELL}:\n", **files})
    asks = 'PLANTED = "${PLANTED_SECRET}"'
    has_default = 'PLANTED = "${PLANTED_SECRET:-nothing}"\nPART = "x${PLANTED_SECRET}"'
    loot = {
        "solution/solve.sh": SHELL + search(server, "/logs/artifacts/loot.txt"),
        "tests/test.sh": f"{SHELL}{search(server, '/logs/verifier/loot.txt')}{ZERO}",
    }
    attacks: dict[str, dict[str, str]] = {
        "pipe": {"solution/solve.sh": f"{SHELL}mkdir -p /logs/verifier; mkfifo /logs/verifier/reward.txt\n"},
        "folder": {"solution/solve.sh": f"{SHELL}mkdir -p /logs/verifier/reward.txt/x\n"},
        "tests": {"solution/solve.sh": SHELL + PLANT_TESTS},
        "tree": {"solution/solve.sh": SHELL + TREE},
        "undead": {
            "solution/solve.sh": f"{SHELL}{HIDING.format(mark=MARK)}sleep {MARK}\n",
            "tests/test.sh": SHELL + COUNT,
            "task.toml": toml(agent_s=2),
        },
        "undead-verifier": {
            "tests/test.sh": f"{SHELL}{ZERO}{HIDING.format(mark=MARK)}sleep {MARK}\n",
            "task.toml": toml(verifier_s=2),
        },
        "loot": loot,
        "loot-separate": {**loot, "task.toml": toml(verifier=SEPARATE)},
        "asks": {"task.toml": toml(more=f"[environment.env]\n{asks}")},
        "asks-verifier": {"task.toml": toml(more=f"[verifier.env]\n{asks}")},
        "asks-solution": {"task.toml": toml(more=f"[solution.env]\n{asks}")},
        "default": {
            "task.toml": toml(more=f"[environment.env]\n{has_default}"),
            "solution/solve.sh": f'{SHELL}echo "$PLANTED $PART" > /logs/artifacts/value.txt\n',
        },
    }
    for name, files in attacks.items():
        write_task(root, name, {"tests/test.sh": f"{SHELL}ls -R /tests\n{ZERO}", **files})
    return run_folder(server, root)


@pytest.mark.requirement("G-EVAL-9.planted", "G-EVAL-18.1")
@pytest.mark.parametrize("name", PLANTED)
def test_a_reward_that_only_the_agent_planted_is_not_read(ended: Ended, name: str) -> None:
    trial = ended.trials[name]
    assert (trial["status"], trial["reward"], trial["structured_result"]) == ("failed", None, None)
    assert (trial["reason"], trial["reason_detail"]) == ("REWARD_MISSING", "absent")


@pytest.mark.parametrize("name", DECLARED)
def test_a_reward_is_not_read_from_the_seal_whatever_the_task_declares(ended: Ended, name: str) -> None:
    assert ended.trials[name]["reward"] is None


@pytest.mark.parametrize("name", ["pipe", "folder", "tests"])
def test_what_stands_in_the_verifiers_way_is_gone_when_it_starts(ended: Ended, name: str) -> None:
    assert (ended.trials[name]["status"], ended.trials[name]["reward"]) == ("succeeded", 0.0)
    assert ended.content(name, "verifier/test-stdout.txt") == b"/tests:\ntest.sh\n"


@pytest.mark.requirement("G-EVAL-18.31", "G-SBX-14.seal_fifo")
def test_a_hostile_tree_costs_only_its_hostile_members_and_each_refusal_stands_on_the_trial(ended: Ended) -> None:
    trial = ended.trials["tree"]
    assert (trial["status"], trial["reward"]) == ("succeeded", 0.0)
    refused = {(item["name"], item["reason"]) for item in trial["artifact_refusals"]}
    assert refused >= {
        ("logs/artifacts/absolute", "LINK_ABSOLUTE"),
        ("logs/artifacts/escapes", "LINK_ESCAPES"),
        ("logs/artifacts/pipe", "NOT_A_FILE"),
        ("logs/artifacts/socket", "NOT_A_FILE"),
        ("logs/artifacts/not-utf8-\\xff", "BAD_NAME"),
        ("logs/artifacts/new\\x0aline", "BAD_NAME"),
        ("logs/artifacts/back\\slash", "BAD_NAME"),
    }
    assert {reason for name, reason in refused if "deep" in name} == {"TOO_DEEP"}
    assert len(refused) == len(trial["artifact_refusals"]) == 8
    files = {item["name"] for item in trial["artifacts"]["items"] if item["kind"] == "output"}
    assert files == {"logs/artifacts/kept.txt", "logs/artifacts/closed/file"}
    assert ended.content("tree", "logs/artifacts/closed/file") == b"inside\n"


@pytest.mark.requirement("G-EVAL-18.2", "G-EVAL-9.agent_timeout")
def test_no_process_of_the_agent_lives_when_the_verifier_starts_and_none_of_either_afterwards(ended: Ended) -> None:
    trial = ended.trials["undead"]
    assert (trial["status"], trial["reward"], trial["agent_outcome"]) == ("succeeded", 1.0, "timeout")
    # The sandbox's first process, the script, and the pipe that counts: `ls`, `wc`.
    assert int(ended.content("undead", "verifier/processes")) <= 4
    verifier = ended.trials["undead-verifier"]
    assert (verifier["status"], verifier["reward"], verifier["reason"]) == ("failed", None, "VERIFIER_TIMEOUT")
    assert living(MARK) == []


def everything(ended: Ended, name: str) -> bytes:
    """Returns all bytes that a Trial shows: its result and its artifacts."""
    names = [item["name"] for item in ended.trials[name]["artifacts"]["items"] if item["state"] == "available"]
    return b"\0".join([json.dumps(ended.trials[name]).encode(), *(ended.content(name, item) for item in names)])


@pytest.mark.requirement("G-SBX-14.host_files", "G-SBX-14.host_environment", "G-SBX-14.host_processes")
@pytest.mark.parametrize("name", ["loot", "loot-separate"])
def test_an_agent_and_a_verifier_that_look_for_the_servers_secrets_find_none(ended: Ended, name: str) -> None:
    assert ended.trials[name]["reward"] == 0.0
    shown = everything(ended, name)
    assert b"verifier/loot.txt" in shown
    assert b"logs/artifacts/loot.txt" in shown
    assert b"PYTHONHASHSEED=0" in shown, "the search did look at an environment"
    for secret in (CANARY, ended.server.key, "postgresql+psycopg", "TOLLBAR_"):
        assert secret.encode() not in shown


def test_secrets_of_the_server_stand_in_no_log_no_blob_and_no_row(ended: Ended) -> None:
    server = ended.server
    assert CANARY not in server.log()
    assert server.key not in server.log()
    own = {server.data_dir / "secret.txt", server.data_dir / "api_key"}
    looked = [path for path in server.data_dir.rglob("*") if path.is_file() and path not in own]
    assert len(looked) > 100
    assert [path for path in looked if CANARY.encode() in path.read_bytes()] == []
    assert [path for path in looked if server.key.encode() in path.read_bytes()] == [], "only hashes of keys are kept"


@pytest.mark.parametrize("name", ["asks", "asks-verifier", "asks-solution"])
def test_a_task_that_asks_for_a_variable_of_the_server_is_refused_and_nothing_starts(ended: Ended, name: str) -> None:
    trial = ended.trials[name]
    assert (trial["status"], trial["reason"], trial["reason_detail"]) == ("failed", "ENVIRONMENT_REFUSED", "variable")
    assert "PLANTED_SECRET" in trial["message"]
    assert (trial["sandbox_forms"], trial["agent_outcome"], trial["sealed_sha256"]) == ({}, None, None)


def test_a_variable_with_a_default_takes_the_default_whatever_the_server_has(ended: Ended) -> None:
    assert ended.content("default", "logs/artifacts/value.txt") == b"nothing x${PLANTED_SECRET}\n"


def test_every_answer_of_the_job_is_free_of_what_the_server_knows(ended: Ended) -> None:
    paths = [
        f"/v1/job/{ended.job['job_id']}",
        f"/v1/job/{ended.job['job_id']}/result",
        "/v1/trials?limit=100",
        "/v1/me",
    ]
    answers: list[Any] = []
    with ended.server.http() as http:
        answers.extend(http.get(path).text for path in paths)
    assert CANARY not in "".join(answers)
    assert ended.server.key not in "".join(answers)
