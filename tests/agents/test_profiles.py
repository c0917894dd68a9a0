"""Profiles and adapters: what every project has from the start, and how an agent is run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from tests.support import ManualClock

from tollbar.access import service as access
from tollbar.access.principal import Principal
from tollbar.agents import service
from tollbar.agents.adapter import AgentOutput, AgentReport, AgentTask
from tollbar.agents.errors import AgentNotInstalled, AgentSetupFailed, ProfileNotFound
from tollbar.agents.registry import ADAPTERS
from tollbar.db.session import Database
from tollbar.engine import store as workers
from tollbar.kit.errors import InvalidCursor
from tollbar.kit.jsonio import canonical_sha256
from tollbar.kit.paging import PageRequest, page_request

TASK = AgentTask(instruction="Do it.", has_solution=True, solution_env={"CITY": "Bern"}, workdir="/app")
FIRST = page_request(None, None, scope={})


@pytest.fixture
async def actor(database: Database, clock: ManualClock) -> Principal:
    async with database.transaction() as session:
        principal = await access.ensure_first_project(session, clock)
        await service.seed(session, principal, clock)
    return principal


# --- adapters


def test_the_oracle_runs_the_tasks_own_solution_with_its_variables() -> None:
    plan = ADAPTERS["oracle"].plan(TASK, {})
    assert (plan.argv, plan.needs_solution, plan.log) == (("/solution/solve.sh",), True, "oracle.txt")
    assert plan.env == {"DEBIAN_FRONTEND": "noninteractive", "CITY": "Bern"}


def test_the_tasks_own_variables_win_over_the_oracles() -> None:
    task = replace(TASK, solution_env={"DEBIAN_FRONTEND": "text"})
    assert ADAPTERS["oracle"].plan(task, {}).env["DEBIAN_FRONTEND"] == "text"


def test_the_oracle_cannot_run_a_task_without_a_solution() -> None:
    with pytest.raises(AgentSetupFailed) as failed:
        ADAPTERS["oracle"].plan(replace(TASK, has_solution=False), {})
    assert (failed.value.reason, failed.value.detail) == ("AGENT_SETUP_FAILED", "install")


def test_the_nop_agent_runs_nothing_on_any_task() -> None:
    for task in (TASK, replace(TASK, has_solution=False, instruction=None)):
        plan = ADAPTERS["nop"].plan(task, {})
        assert (plan.argv, plan.needs_solution, dict(plan.env)) == (None, False, {})


def test_agents_without_a_model_ask_for_no_gateway_and_claim_nothing() -> None:
    left = AgentOutput(exit_code=0, log=b'{"total_cost_usd": 1}')
    for adapter in (ADAPTERS[name] for name in ("oracle", "nop", "command", "replay")):
        assert (adapter.models({}), adapter.report(left)) == ((), AgentReport())


def test_each_adapter_is_registered_under_its_own_name() -> None:
    assert [adapter.name for adapter in ADAPTERS.values()] == list(ADAPTERS)
    assert {"oracle", "nop", "command", "replay", "claude-code", "codex", "mini-swe-agent"} <= set(ADAPTERS)
    assert {name for name, adapter in ADAPTERS.items() if adapter.uses_solution} == {"oracle"}
    assert service.adapter_of("nop") is ADAPTERS["nop"]


# --- profiles


async def test_a_project_has_the_seeded_profiles_and_a_default(database: Database, actor: Principal) -> None:
    async with database.session() as session:
        page = await service.list_page(session, actor, FIRST)
        chosen = await service.resolve(session, actor, None, None)
    assert [(item["name"], item["is_project_default"], item["version_count"]) for item in page.items] == [
        ("tollbar/claude-code", False, 1),
        ("tollbar/codex", False, 1),
        ("tollbar/command", False, 1),
        ("tollbar/mini-swe-agent", False, 1),
        ("tollbar/nop", False, 1),
        ("tollbar/oracle", True, 1),
        ("tollbar/replay", False, 1),
        ("tollbar/scripted", False, 1),
    ]
    assert chosen is not None
    assert (chosen.name, chosen.version, chosen.agent, chosen.runner) == (
        "tollbar/oracle", "1", "oracle", "envhub/base@main",
    )  # fmt: skip


async def test_seeding_again_changes_nothing_and_keeps_another_default(
    database: Database, actor: Principal, clock: ManualClock
) -> None:
    async with database.transaction() as session:
        await session.execute(text("UPDATE profile SET is_project_default = (name = 'tollbar/nop')"))
        before = (await service.list_page(session, actor, FIRST)).items
    clock.advance(60)
    async with database.transaction() as session:
        await service.seed(session, actor, clock)
    async with database.session() as session:
        assert (await service.list_page(session, actor, FIRST)).items == before
        chosen = await service.resolve(session, actor, None, None)
    assert chosen is not None
    assert chosen.name == "tollbar/nop"


async def test_a_version_shows_exactly_the_spec_that_was_stored_and_its_hash(
    database: Database, actor: Principal
) -> None:
    async with database.session() as session:
        shown = await service.detail(session, actor, "tollbar/nop", None)
        same = await service.detail(session, actor, "tollbar/nop", "1")
    assert shown == same
    assert shown["sha256"] == canonical_sha256(shown["spec"])
    assert (shown["spec"]["agent"], shown["is_default"], shown["archived_at"]) == ("nop", True, None)


@pytest.mark.parametrize(("name", "version"), [("no/such", None), ("tollbar/nop", "2"), ("no/such", "1")])
async def test_what_is_not_there_is_not_found(
    database: Database, actor: Principal, name: str, version: str | None
) -> None:
    async with database.session() as session:
        with pytest.raises(ProfileNotFound):
            await service.detail(session, actor, name, version)
        with pytest.raises(ProfileNotFound):
            await service.resolve(session, actor, name, version)


async def test_another_project_sees_no_profile_of_this_one(database: Database, actor: Principal) -> None:
    stranger = replace(actor, project_id="prj_other")
    async with database.session() as session:
        assert (await service.list_page(session, stranger, FIRST)).items == []
        assert await service.resolve(session, stranger, None, None) is None
        with pytest.raises(ProfileNotFound):
            await service.detail(session, stranger, "tollbar/nop", None)
        with pytest.raises(ProfileNotFound):
            await service.versions_page(session, stranger, "tollbar/nop", FIRST, include_archived=True)


async def versions(database: Database, actor: Principal, *numbers: int, archived: int | None = None) -> None:
    async with database.transaction() as session:
        for number in numbers:
            await session.execute(
                text(
                    "INSERT INTO profile_version"
                    " (project_id, name, version, seq, spec, sha256, created_at, archived_at) VALUES"
                    " (:p, 'tollbar/nop', :v, :n, '{\"agent\": \"nop\"}', 'x', now(), CASE WHEN :a THEN now() END)"
                ),
                {"p": actor.project_id, "v": str(number), "n": number, "a": number == archived},
            )


async def test_versions_are_paged_newest_first_and_archived_ones_only_when_asked_for(
    database: Database, actor: Principal
) -> None:
    await versions(database, actor, 2, 3, 4, archived=3)
    found: list[str] = []
    cursor: str | None = None
    async with database.session() as session:
        while True:
            page = page_request("2", cursor, scope={})
            cut = await service.versions_page(session, actor, "tollbar/nop", page, include_archived=True)
            found += [item["version"] for item in cut.items]
            cursor = cut.next_cursor
            if cursor is None:
                break
        live = await service.versions_page(session, actor, "tollbar/nop", FIRST, include_archived=False)
    assert found == ["4", "3", "2", "1"]
    assert [item["version"] for item in live.items] == ["4", "2", "1"]
    assert [item["is_default"] for item in live.items] == [False, False, True]


@pytest.mark.parametrize("position", [[], ["x", "y"], [None], [True]])
async def test_a_cursor_that_was_made_up_is_refused(database: Database, actor: Principal, position: list[Any]) -> None:
    made_up = PageRequest(5, position, "")
    async with database.session() as session:
        with pytest.raises(InvalidCursor):
            await service.list_page(session, actor, made_up)
        with pytest.raises(InvalidCursor):
            await service.versions_page(session, actor, "tollbar/nop", made_up, include_archived=True)


# --- software of agents


async def _worker(database: Database, name: str, *software: str) -> None:
    async with database.transaction() as session:
        facts: dict[str, Any] = {"host": name, "pid": 1, "engine_version": "1", "backends": ["bwrap"], "slots": 1}
        await workers.add_worker(session, name, **facts, software=list(software))


async def _required(database: Database, agent: str, **params: Any) -> None:
    async with database.session() as session:
        await service.require_software(session, agent, params)


async def test_an_agent_whose_software_no_living_worker_has_is_refused_with_the_command_that_helps(
    database: Database,
) -> None:
    await _worker(database, "one", "claude-code@2.1.197")
    await _worker(database, "two")
    with pytest.raises(AgentNotInstalled) as refused:
        await _required(database, "codex")
    assert (refused.value.code, refused.value.status) == ("AGENT_NOT_INSTALLED", 409)
    assert "tollbar agents install codex" in str(refused.value.hint)
    with pytest.raises(AgentNotInstalled):
        await _required(database, "claude-code", AGENT_VERSION="9.9.9")


async def test_one_worker_that_has_the_software_suffices_and_a_worker_that_ended_does_not(database: Database) -> None:
    await _worker(database, "one", "claude-code@2.1.197")
    await _worker(database, "two")
    await _required(database, "claude-code")
    await _required(database, "claude-code", AGENT_VERSION="2.1.197")
    async with database.transaction() as session:
        await workers.move(session, "one", workers.WorkerState.LEAVING)
    with pytest.raises(AgentNotInstalled):
        await _required(database, "claude-code")


async def test_what_was_installed_while_a_worker_runs_is_known_from_its_next_beat(database: Database) -> None:
    await _worker(database, "one")
    with pytest.raises(AgentNotInstalled):
        await _required(database, "codex")
    async with database.transaction() as session:
        assert await workers.beat(session, "one", ["codex@0.171.0"])
    await _required(database, "codex")


async def test_without_a_living_worker_nobody_knows_and_agents_without_software_need_none(database: Database) -> None:
    await _required(database, "codex")
    await _worker(database, "one")
    await _required(database, "oracle")
