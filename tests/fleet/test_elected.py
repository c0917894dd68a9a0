"""The elected ones, killed or frozen while they hold their lock, and a database that restarts under everybody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.fleet.processes import Fleet, Process, eventually, plain
from tests.fleet.proxy import proxy
from tests.fleet.tasks import check_whole, push, states, submit
from tollbar.db.embedded import EmbeddedServer
from tollbar.engine.locks import SPACE, Lock

_HOLDERS = """SELECT a.application_name, coalesce(a.wait_event_type, '')
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s AND l.objid = %s
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def named(fleet: Fleet, name: str, slots: int, **more: str) -> Process:
    """Starts a worker whose connections bear its name."""
    url = make_url(fleet.url).update_query_dict({"application_name": name}).render_as_string(hide_password=False)
    return fleet.workers(slots, TOLLBAR_DATABASE_URL=url, **more)[0]


def holder(fleet: Fleet, lock: Lock, *, waiting: bool = False) -> str | None:
    """Returns the name of the worker that holds a lock now; `waiting`: and whose transaction waits for another's."""
    found = fleet.rows(_HOLDERS, SPACE, int(lock))
    return found[0][0] if found and (not waiting or found[0][1] == "Lock") else None


@contextmanager
def in_the_way(fleet: Fleet, statement: str) -> Iterator[None]:
    """Holds what a statement locks until the block ends."""
    with psycopg.connect(plain(fleet.url)) as connection:
        connection.execute(statement)  # type: ignore[arg-type] # a test's own text
        yield
        connection.rollback()


@pytest.mark.requirement("G-ENG-17.reapers")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_reaper_that_is_killed_or_frozen_in_its_first_batch_is_followed_by_another(
    fleet: Fleet, tmp_path: Path, fate: signal.Signals
) -> None:
    """The dead worker's Job is locked by the test, so that whoever takes over stands in the middle of its batch.

    The lock of a reaper that stands still ends by itself, so both remaining ones try the same work one after the other.
    """
    server = fleet.serve()
    dataset = push(server, tmp_path, "reaped", slow="sleep 2")
    victim = named(fleet, "victim", 8)
    job_id = submit(server, dataset, attempts=30)
    eventually(lambda: states(fleet, job_id, victim.id).count("running") == 8)
    others = {name: named(fleet, name, 4) for name in ("one", "two")}
    with in_the_way(fleet, f"SELECT 1 FROM job WHERE id = '{job_id}' FOR UPDATE"):
        victim.send(signal.SIGKILL)
        victim.ended()
        eventually(lambda: fleet.rows("SELECT 1 FROM worker WHERE state = 'dead'"))
        first = eventually(lambda: holder(fleet, Lock.REAPER))
        others[first].send(fate)
        second = "two" if first == "one" else "one"
        eventually(lambda: holder(fleet, Lock.REAPER) == second)
    if fate == signal.SIGKILL:
        others[first].ended()
    else:
        eventually(
            lambda: fleet.rows("SELECT 1 FROM worker WHERE executor_id = %s AND state = 'gone'", others[first].id)
        )
        others[first].send(signal.SIGCONT)
        assert others[first].ended() == 70
    trials = check_whole(fleet, server, job_id, 30)
    assert max(trial["try_no"] for trial in trials) <= 3
    assert {trial["reason"] for trial in trials} == {None}
    gone = fleet.rows("SELECT executor_id FROM worker WHERE state = 'gone'")
    assert {row[0] for row in gone} == {victim.id, others[first].id}


@pytest.mark.requirement("G-ENG-17.pump_killed")
@pytest.mark.timeout(300)
def test_a_worker_that_is_killed_in_the_pumps_transaction_admits_nothing_by_half(fleet: Fleet) -> None:
    server = fleet.serve()
    workers = {name: named(fleet, name, 4) for name in ("one", "two")}
    job_id = submit(server, "demo/mini@1", attempts=20)
    eventually(lambda: len(states(fleet, job_id)) == 120)
    with in_the_way(fleet, "LOCK TABLE dbos.workflow_status IN SHARE MODE"):
        # A further worker makes room. The pump has moved its Trials and stands before it can tell the engine.
        fleet.rows(
            "INSERT INTO worker (executor_id, host, pid, engine_version, backends, slots, state)"
            " VALUES ('new', 'elsewhere', 1, '1', '{bwrap}', 4, 'live') RETURNING 1"
        )
        first = eventually(lambda: holder(fleet, Lock.PUMP, waiting=True))
        workers[first].send(signal.SIGKILL)
        workers[first].ended()
    # The database meets the dead client with its answer, and takes the whole transaction back.
    eventually(lambda: holder(fleet, Lock.PUMP) != first)
    assert half_admitted(fleet) == []
    check_whole(fleet, server, job_id, 120)


def half_admitted(fleet: Fleet) -> list[tuple[str]]:
    """Returns Trials that were admitted and of which the engine does not know."""
    return fleet.rows(
        "SELECT t.id FROM trial t WHERE t.state = 'admitted' AND NOT EXISTS (SELECT 1 FROM dbos.workflow_status w"
        " WHERE w.workflow_uuid = 'trial:' || t.id || ':' || t.try_no)"
    )


class Postgres:
    """A PostgreSQL of the test's own that can be restarted: then its socket lies elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = asyncio.run(EmbeddedServer.start(folder))
        self.url = self._server.url

    def restart(self) -> str:
        """Ends every connection and starts the server again; returns its URL."""
        self.stop()
        self.__init__(self._folder)
        return self.url

    def stop(self) -> None:
        asyncio.run(self._server.stop())


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    server = Postgres(tmp_path / "postgres")
    yield server
    server.stop()


@pytest.mark.requirement("G-ENG-17.postgres_restart")
@pytest.mark.timeout(300)
def test_a_restart_of_the_database_during_claims_and_a_take_over_loses_nothing(
    postgres: Postgres, tmp_path: Path
) -> None:
    with proxy(postgres.url) as line:
        environment = {"TOLLBAR_ARTIFACTS_URL": f"file://{tmp_path}/shared", "TOLLBAR_DEAD_AFTER_S": "6"}
        fleet = Fleet(line.url, tmp_path, environment)
        assert fleet.migrate().returncode == 0
        try:
            server = fleet.serve()
            workers = fleet.workers(3, 3, 3)
            job_id = submit(server, "demo/mini@1", attempts=20)
            eventually(lambda: states(fleet, job_id).count("succeeded") >= 10)
            workers[0].send(signal.SIGKILL)
            workers[0].ended()
            line.aim(postgres.restart())
            eventually(lambda: states(fleet, job_id).count("succeeded") >= 30, within_s=60)
            line.aim(postgres.restart())
            check_whole(fleet, server, job_id, 120)
        finally:
            fleet.stop()
