"""Runners: the two that every installation has, how a reference is read, and what GET /runners shows."""

import hashlib
import json

import pytest

from tollbar.access.principal import AccessDenied, Principal, system_principal
from tollbar.kit.paging import page_request
from tollbar.sandboxes import service
from tollbar.sandboxes.base import host_digest
from tollbar.sandboxes.errors import InvalidRunner, RunnerNotFound
from tollbar.sandboxes.interface import Limits, Network
from tollbar.sandboxes.runners import parse_reference

ACTOR = system_principal("ws_1", "proj_1")
BASE = "host@sha256:" + "a" * 64


@pytest.fixture
async def seeded(database, clock):
    async with database.transaction() as session:
        await service.seed(session, clock, backend="bwrap", base=BASE)
    return database


async def resolve(database, text):
    async with database.session() as session:
        return await service.resolve(session, text)


async def test_the_free_runner_is_declared_free_and_gives_the_default_limits(seeded):
    runner = await resolve(seeded, "envhub/base@main")
    assert runner.name == "envhub/base"
    assert runner.source_ref == "main"
    assert runner.backend == "bwrap"
    assert runner.is_free
    assert runner.facts["declared_free"] is True
    assert runner.facts["base"] == BASE
    assert runner.limits == Limits(cpus=1.0, memory_mb=2048, disk_mb=10240, pids=512, nofile=4096)
    assert runner.maxima.cpus >= runner.limits.cpus
    assert runner.allow_base_substitution
    assert runner.default_network is Network.NONE
    assert runner.can("regrade")
    assert not runner.can("gpu")


async def test_the_metered_runner_costs_a_cent_a_cpu_second_and_a_tenth_of_it_a_gib_second(seeded):
    runner = await resolve(seeded, "envhub/metered")
    assert not runner.is_free
    assert runner.facts["prices"] == {"vcpu_second_pusd": 10_000_000_000, "gib_second_pusd": 1_000_000_000}
    assert runner.facts["declared_free"] is False


async def test_the_docker_runner_is_free_and_replaces_no_image(seeded):
    runner = await resolve(seeded, "envhub/docker")
    assert runner.backend == "docker"
    assert runner.is_free
    assert not runner.allow_base_substitution


async def test_the_revision_is_the_hash_of_the_description(seeded):
    runner = await resolve(seeded, "base")
    text = json.dumps(dict(runner.facts), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert runner.revision == hashlib.sha256(text.encode()).hexdigest()


async def test_a_frozen_runner_holds_everything_that_a_trial_needs(seeded):
    runner = await resolve(seeded, "metered")
    frozen = json.loads(json.dumps(runner.frozen()))
    assert (frozen["name"], frozen["revision"], frozen["source_ref"]) == ("envhub/metered", runner.revision, "main")
    assert frozen["prices"] == {"vcpu_second_pusd": 10_000_000_000, "gib_second_pusd": 1_000_000_000}
    assert frozen["limits"]["memory_mb"] == 2048
    assert frozen["maxima"]["memory_mb"] >= 2048


async def test_seeding_again_changes_nothing_not_even_on_a_machine_with_another_base(seeded, clock):
    before = await resolve(seeded, "envhub/base@main")
    clock.advance(60)
    async with seeded.transaction() as session:
        await service.seed(session, clock, backend="bwrap", base="host@sha256:" + "b" * 64)
    assert await resolve(seeded, "envhub/base@main") == before
    async with seeded.session() as session:
        page = await service.list_page(session, ACTOR, page_request(None, None, scope={}))
    assert len(page.items) == 3


async def test_the_seeded_base_is_this_hosts_when_nothing_else_is_said(database, clock):
    async with database.transaction() as session:
        await service.seed(session, clock)
    assert (await resolve(database, "base")).facts["base"] == f"host@{host_digest()}"


@pytest.mark.parametrize("text", ["envhub/base@main", "base@main", "envhub/base", "base"])
async def test_a_reference_may_leave_out_the_namespace_and_the_revision(seeded, text):
    assert (await resolve(seeded, text)).name == "envhub/base"


async def test_a_reference_by_revision_names_exactly_that_one(seeded):
    runner = await resolve(seeded, "base")
    assert await resolve(seeded, f"envhub/base@{runner.revision}") == runner
    assert await resolve(seeded, f"base@{runner.revision}") == runner


@pytest.mark.parametrize(
    "text",
    ["nope@main", "other/base@main", "base@stable", "base@" + "0" * 64, "metered@" + "a" * 64],
)
async def test_a_runner_that_is_not_there_is_not_found(seeded, text):
    with pytest.raises(RunnerNotFound) as missing:
        await resolve(seeded, text)
    assert (missing.value.code, missing.value.status) == ("RUNNER_NOT_FOUND", 404)


@pytest.mark.parametrize(
    "revision",
    [
        "a:b", "a..b", "a~1", "a^", "a?", "a*", "a[b", "a\\b", "a{b", "a}b", "a b", "a\tb", "a\n", "-a", "HEAD",
        "head", "FETCH_HEAD", "ORIG_HEAD", "HEAD/main", "", "a@b", "a" * 129, "a\x00", "\u00a0",
    ],
)  # fmt: skip
def test_a_revision_that_the_client_refuses_is_refused(revision):
    with pytest.raises(InvalidRunner) as invalid:
        parse_reference(f"envhub/base@{revision}")
    assert (invalid.value.code, invalid.value.status) == ("INVALID_RUNNER", 422)


@pytest.mark.parametrize(
    "text", ["", "@main", "/base", "envhub/", "a/b/c", "Base", "ba se", "../base", None, 7, ["base"]]
)
def test_a_name_that_no_runner_can_have_is_refused(text):
    with pytest.raises(InvalidRunner):
        parse_reference(text)


async def test_a_form_that_no_runner_can_have_is_refused_before_it_is_looked_for(seeded):
    with pytest.raises(InvalidRunner):
        await resolve(seeded, "envhub/base@HEAD")


@pytest.mark.parametrize("revision", ["main", "v1.2.3", "release_2026-11", "heads", "headless", "feature/x", "a" * 128])
def test_a_plain_revision_is_read(revision):
    assert parse_reference(f"team/gpu-box@{revision}").revision == revision


async def test_the_list_shows_runners_by_name_and_pages(seeded):
    async with seeded.session() as session:
        first = await service.list_page(session, ACTOR, page_request(2, None, scope={"list": "runners"}))
        second = await service.list_page(session, ACTOR, page_request(2, first.next_cursor, scope={"list": "runners"}))
    assert [item["name"] for item in first.items + second.items] == ["envhub/base", "envhub/docker", "envhub/metered"]
    assert second.next_cursor is None
    shown = second.items[0]
    assert shown["source_ref"] == "main"
    assert shown["visibility"] == "public"
    assert shown["created_at"] == "2026-11-30T12:00:00.000Z"
    assert shown["backend"] == "bwrap"
    assert shown["capabilities"]["regrade"] is True
    assert shown["prices"] == {
        "usd_per_vcpu_second": "0.01",
        "usd_per_gib_second": "0.001",
        "declared_free": False,
    }
    assert shown["limits"] == {"cpus": 1.0, "memory_mb": 2048, "disk_mb": 10240, "pids": 512, "nofile": 4096}
    assert len(shown["revision"]) == 64


async def test_the_list_needs_the_right_to_read_runners(seeded):
    nobody = Principal("project", "key_1", "ws_1", "proj_1", frozenset())
    async with seeded.session() as session:
        with pytest.raises(AccessDenied, match=r"runners\.read"):
            await service.list_page(session, nobody, page_request(None, None, scope={}))


async def test_where_only_docker_works_the_default_runner_is_docker_and_replaces_no_image(database, clock):
    asked = []

    async def best():
        asked.append(1)
        return "docker"

    for _ in range(2):
        async with database.transaction() as session:
            await service.seed(session, clock, backend=best, base=BASE)
    for name in ("envhub/base", "envhub/metered", "envhub/docker"):
        runner = await resolve(database, name)
        assert (runner.backend, runner.facts["base"], runner.allow_base_substitution) == ("docker", "image", False)
    assert not (await resolve(database, "envhub/metered")).is_free
    assert asked == [1]
