"""Workers that are killed, frozen, told to stop or cut off while others go on: nothing is lost or counts twice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.machine import gone_within, living, new_mark
from tests.fleet.processes import DEAD_AFTER_S, Fleet, eventually
from tests.fleet.proxy import proxy
from tests.fleet.tasks import check_whole, push, states, submit

EXIT_DECLARED_DEAD = 70


_HELPERS = {"tollbar-start", "tollbar-entry"}


def sandboxes(fleet: Fleet) -> list[str]:
    """Command lines of everything living that runs as the uid of the fleet's sandboxes, less a worker's own helpers."""
    if os.geteuid() != 0:
        return []
    uid = fleet.environment["TOLLBAR_SANDBOX_UID"]
    found = subprocess.run(["ps", "-eo", "uid,stat,comm,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 3) for line in found.splitlines()[1:]]
    return [args for owner, state, name, args in lines if owner == uid and state[0] != "Z" and name not in _HELPERS]


@pytest.mark.requirement("G-ENG-17.trials")
@pytest.mark.timeout(300)
def test_of_two_workers_one_is_killed_among_two_hundred_trials_and_none_is_lost_or_counted_twice(fleet: Fleet) -> None:
    server = fleet.serve()
    victim, other = fleet.workers(4, 4)
    job_id = submit(server, "demo/mini@1", attempts=34)
    eventually(lambda: states(fleet, job_id, victim.id).count("succeeded") >= 5)
    eventually(lambda: {"running", "verifying"} & set(states(fleet, job_id, victim.id)))
    victim.send(signal.SIGKILL)
    victim.ended()
    trials = check_whole(fleet, server, job_id, 204)
    again = [trial for trial in trials if trial["try_no"] > 1]
    assert again
    assert {trial["try_no"] for trial in again} == {2}
    assert fleet.rows("SELECT state FROM worker WHERE executor_id = %s", victim.id) == [("gone",)]
    assert fleet.rows("SELECT state FROM worker WHERE executor_id = %s", other.id) == [("live",)]
    # A Trial that was sealed before the kill ran no second agent: its first seal is what was graded.
    assert fleet.rows(
        "SELECT count(*) FROM trial t JOIN seal s ON s.trial_id = t.id WHERE s.manifest_sha256 <> t.sealed_sha256"
    ) == [(0,)]
    eventually(lambda: not sandboxes(fleet))


@pytest.mark.requirement("G-ENG-17.zombie")
@pytest.mark.timeout(300)
def test_a_frozen_worker_that_goes_on_after_its_work_was_taken_over_writes_nothing_and_ends(
    fleet: Fleet, tmp_path: Path
) -> None:
    mark = new_mark()
    server = fleet.serve()
    # The agent of the first try outlives the freeze; those of later ones are quick.
    slow = f"test -e /tmp/no || setsid sleep {mark} &\nsleep 4\necho done > /app/done.txt"
    dataset = push(server, tmp_path, "zombie", slow=slow)
    (victim,) = fleet.workers(2)
    job_id = submit(server, dataset, attempts=2)
    eventually(lambda: states(fleet, job_id, victim.id) == ["running", "running"])
    eventually(lambda: living(mark))
    victim.send(signal.SIGSTOP)
    fleet.workers(2)
    eventually(lambda: {row[0] for row in fleet.rows("SELECT try_no FROM trial WHERE job_id = %s", job_id)} == {2})
    assert fleet.rows("SELECT state FROM worker WHERE executor_id = %s", victim.id)[0][0] in {"dead", "gone"}
    frozen = fleet.rows("SELECT count(*) FROM artifact WHERE try_no = 1")
    victim.send(signal.SIGCONT)
    assert victim.ended() == EXIT_DECLARED_DEAD
    trials = check_whole(fleet, server, job_id, 2)
    assert {(trial["try_no"], trial["reward"]) for trial in trials} == {(2, 1.0)}
    assert fleet.rows("SELECT DISTINCT try_no FROM seal") == [(2,)]
    assert fleet.rows("SELECT count(*) FROM artifact WHERE try_no = 1") == frozen == [(0,)]
    # What the first tries had reserved is written off, never settled a second time by who woke.
    assert fleet.rows(
        "SELECT count(*) FROM ledger_call WHERE subject LIKE %s AND state NOT IN ('written_off')", "trial:%:1"
    ) == [(0,)]
    assert gone_within(mark, 5)


@pytest.mark.requirement("G-ENG-17.sigterm")
@pytest.mark.timeout(300)
def test_a_worker_that_is_told_to_stop_hands_its_trials_to_another_one_and_nobody_counts_a_loss(
    fleet: Fleet, tmp_path: Path
) -> None:
    server = fleet.serve()
    dataset = push(server, tmp_path, "slow", slow="sleep 3")
    (leaving,) = fleet.workers(4)
    job_id = submit(server, dataset, attempts=8)
    eventually(lambda: states(fleet, job_id, leaving.id).count("running") == 4)
    started = time.monotonic()
    leaving.send(signal.SIGTERM)
    assert leaving.ended() == 0
    assert time.monotonic() - started < 15
    assert not sandboxes(fleet)
    fleet.workers(4)
    check_whole(fleet, server, job_id, 8)
    assert fleet.rows("SELECT sum(losses) FROM trial") == [(0,)]


@pytest.mark.requirement("G-ENG-17.cut_off")
@pytest.mark.timeout(300)
def test_a_worker_that_is_cut_off_kills_its_sandboxes_before_others_start_the_same_trials(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Longer than self-kill, shorter than dead-after: it is accepted again, and its Trials end on their next try."""
    mark = new_mark()
    patient = {"TOLLBAR_SELF_KILL_S": "1.5", "TOLLBAR_DEAD_AFTER_S": "30"}
    with proxy(fleet.url) as line:
        server = fleet.serve()
        dataset = push(server, tmp_path, "cut", slow=f"setsid sleep {mark} &\nsleep 5")
        (worker,) = fleet.workers(2, TOLLBAR_DATABASE_URL=line.url, **patient)
        job_id = submit(server, dataset, attempts=2)
        eventually(lambda: states(fleet, job_id, worker.id) == ["running", "running"])
        eventually(lambda: len(living(mark)) >= 2)
        line.cut()
        assert gone_within(mark, 4)
        assert not sandboxes(fleet)
        # Nobody has them yet: only a worker that is dead loses its Trials to others.
        assert fleet.rows("SELECT DISTINCT try_no, owner FROM trial") == [(1, worker.id)]
        line.mend()
        trials = check_whole(fleet, server, job_id, 2)
        assert {trial["try_no"] for trial in trials} == {2}
        assert worker.living
        assert fleet.rows("SELECT executor_id, state FROM worker") == [(worker.id, "live")]
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.requirement("G-ENG-17.cancel_dead")
@pytest.mark.timeout(300)
def test_a_job_that_is_stopped_when_its_worker_is_dead_already_is_cancelled_soon(fleet: Fleet, tmp_path: Path) -> None:
    server = fleet.serve()
    dataset = push(server, tmp_path, "stopped", slow="sleep 30")
    (victim,) = fleet.workers(2)
    job_id = submit(server, dataset, attempts=20)
    eventually(lambda: states(fleet, job_id, victim.id) == ["running", "running"])
    fleet.workers(1)
    victim.send(signal.SIGKILL)
    victim.ended()
    with server.http() as http:
        http.post(f"/v1/job/{job_id}/stop")
    job = server.finished(job_id, within_s=DEAD_AFTER_S + 15)
    assert (job["status"], job["trial_counts"]["cancelled"]) == ("cancelled", 20)
    assert job["budget"]["reserved_usd"] == "0"
