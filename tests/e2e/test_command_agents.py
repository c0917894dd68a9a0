"""Agents without a model, in real sandboxes: a command line, and a list of shell turns."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Running

TASK = {"dataset": "tests/hello-world@1", "max_cost_usd": 1}


def outcome(server: Running, **members: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Runs a Job of one Trial; returns Job, Trial's result and what the agent wrote."""
    with server.http() as http:
        answer = http.post("/v1/job", json={**TASK, **members})
        assert answer.status_code == 202, answer.text
        job = server.finished(answer.json()["job_id"])
        (item,) = http.get(f"/v1/job/{job['job_id']}/result").json()["trials"]["items"]
        trial = http.get(f"/v1/trials/{item['trial_id']}/result").json()
        (log,) = [one for one in trial["artifacts"]["items"] if one["name"].startswith("agent/")]
        content = http.get(f"/v1/trials/{item['trial_id']}/artifacts/{log['artifact_id']}/content")
        return job, trial, content.text


def test_a_command_is_run_by_the_sandboxes_shell_and_knows_the_instruction(server: Running) -> None:
    command = 'printf "%s" "$TOLLBAR_INSTRUCTION" | wc -c; pwd; exit 3'
    job, trial, log = outcome(server, profile_name="tollbar/command", command=command)
    assert (job["agent"]["name"], job["params"]) == ("command", {"COMMAND": command})
    assert (trial["agent_outcome"], trial["reward"]) == ("nonzero_exit", 0.0)
    length, folder = log.split()
    assert int(length) > 10
    assert folder == "/app"


def test_turns_are_run_in_their_order_each_in_a_shell_of_its_own_and_a_failing_one_stops_none(server: Running) -> None:
    turns = ["GONE=1", 'echo "[$GONE]"', "exit 4", "printf 'a\\nb' > two.txt", "cat two.txt"]
    _, trial, log = outcome(server, profile_name="tollbar/replay", params={"TURNS": turns})
    assert trial["agent_outcome"] == "completed"
    assert log == (
        "$ GONE=1\n$ echo \"[$GONE]\"\n[]\n$ exit 4\n[exit 4]\n$ printf 'a\\nb' > two.txt\n$ cat two.txt\na\nb"
    )
