"""The sentences of the evaluation seed on submitting: arguments, cap, repeats, and one code on every interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.e2e.conftest import Running
from tests.e2e.keys import call
from tests.e2e.tasks import TASK_TOML, toml, write_task
from tollbar.datasets.digests import task_digest
from tollbar.datasets.tree import read_folder

SUBMIT: Final = "envloop_job_submit"
PLAIN: Final = {"dataset": "demo/mini@1", "max_cost_usd": 1}


async def submit(server: Running, **arguments: Any) -> dict[str, Any]:
    return await call(server, SUBMIT, **arguments)


def jobs_of(server: Running) -> list[str]:
    with server.http() as http:
        return [job["job_id"] for job in http.get("/v1/job?limit=100").json()["items"]]


@pytest.fixture(scope="module")
def configured(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """The server with `team/configured@1`: tasks a, b, c, the splits dev and test, the configs small and large."""
    root = tmp_path_factory.mktemp("configured")
    listed = ""
    for name in "abc":
        write_task(root, name, {"task.toml": TASK_TOML.replace("bad/", "team/")})
        listed += f'[[tasks]]\nname = "team/{name}"\ndigest = "{task_digest(read_folder(root / name).files)}"\n'
    (root / "dataset.toml").write_text(
        f'schema_version = "1.0"\n[dataset]\nname = "team/configured"\nversion = "1"\n{listed}'
        '[metadata.tollbar]\ndefault_config = "large"\n'
        '[metadata.tollbar.splits]\ndev = ["team/a"]\ntest = ["team/b", "team/c"]\n'
        '[metadata.tollbar.configs]\nsmall = ["team/a", "team/b"]\nlarge = ["team/a", "team/b", "team/c"]\n'
    )
    server.cli("datasets", "push", str(root))
    return server


# Arguments

SELECTED: Final = [
    ("team/configured@1", ["a", "b", "c"]),
    ({"name": "team/configured"}, ["a", "b", "c"]),
    ({"name": "team/configured", "version": "1"}, ["a", "b", "c"]),
    ({"name": "configured", "namespace": "team", "version": "1"}, ["a", "b", "c"]),
    ({"name": "team/configured", "version": "1", "config": "small"}, ["a", "b"]),
    ({"name": "team/configured", "version": "1", "split": "test"}, ["b", "c"]),
    ({"name": "team/configured", "version": "1", "config": "small", "split": "test"}, ["b"]),
    ({"name": "team/configured", "version": "1", "task_id": "c"}, ["c"]),
]


@pytest.mark.requirement(
    "EV-ARG-dataset", "EV-ARG-dataset.name", "EV-ARG-dataset.version", "EV-ARG-dataset.task_id",
    "EV-ARG-dataset.split", "EV-ARG-dataset.config", "EV-ARG-dataset.namespace",
)  # fmt: skip
@pytest.mark.parametrize(("dataset", "tasks"), SELECTED)
async def test_a_dataset_is_a_name_with_version_or_an_object_that_selects(
    configured: Running, dataset: Any, tasks: list[str]
) -> None:
    job = await submit(configured, dataset=dataset, request_id=json.dumps(dataset), max_cost_usd=1)
    assert job["total_tasks"] == len(tasks)
    configured.finished(job["job_id"])
    result = await call(configured, "envloop_job_result", job_id=job["job_id"])
    assert [trial["task_id"] for trial in result["trials"]["items"]] == tasks
    assert (result["dataset_ref"]["name"], result["dataset_ref"]["version"]) == ("team/configured", "1")


@pytest.mark.requirement("EV-ARG-exactly_one")
async def test_a_submission_takes_exactly_one_selector(server: Running) -> None:
    before = jobs_of(server)
    refs = (await pinned(server), (await tasks_of(server))[0]["task_ref"])
    given: dict[str, Any] = {"dataset": "demo/mini@1", "dataset_ref": refs[0], "task_ref": refs[1]}
    for names in ([], ["dataset", "dataset_ref"], ["dataset", "task_ref"], ["dataset_ref", "task_ref"], list(given)):
        chosen = {name: given[name] for name in names}
        refused = await submit(server, request_id="selectors", max_cost_usd=1, **chosen)
        assert (refused["code"], refused["status"]) == ("INVALID_DATASET_SELECTOR", 422)
    assert jobs_of(server) == before


async def pinned(server: Running) -> dict[str, Any]:
    """Returns the dataset_ref of the demo dataset as an agent puts it together."""
    version = await call(server, "envloop_dataset_get", name="demo/mini", version="1")
    return {"kind": "dataset", **{name: version[name] for name in ("name", "version", "manifest_sha256")}}


async def tasks_of(server: Running) -> list[dict[str, Any]]:
    return (await call(server, "envloop_dataset_get", name="demo/mini", version="1"))["tasks"]["items"]


@pytest.mark.requirement("EV-ARG-dataset_ref", "EV-ARG-task_ref")
async def test_references_name_a_pinned_version_and_a_pinned_task(server: Running) -> None:
    ref = await pinned(server)
    whole = await submit(server, dataset_ref=ref, request_id="dataset_ref", max_cost_usd=1)
    assert (whole["total_tasks"], whole["dataset_ref"]) == (6, ref)
    task = (await tasks_of(server))[1]
    one = await submit(server, task_ref=task["task_ref"], request_id="task_ref", max_cost_usd=1)
    assert (one["total_tasks"], one["selection"]["task_id"]) == (1, task["task_ref"]["task_id"])
    moved = [
        {"dataset_ref": {**ref, "manifest_sha256": "0" * 64}},
        {"task_ref": {**task["task_ref"], "digest": "sha256:" + "0" * 64}},
    ]
    for source in moved:
        refused = await submit(server, request_id="moved", max_cost_usd=1, **source)
        assert (refused["code"], refused["status"]) == ("DATASET_MANIFEST_CONFLICT", 409)


@pytest.mark.requirement(
    "EV-ARG-request_id", "EV-ARG-runner", "EV-ARG-profile_name", "EV-ARG-profile_version", "EV-ARG-attempts",
    "EV-ARG-tag", "EV-ARG-max_cost_usd", "G-EVAL-17.echo", "G-EVAL-18.22",
)  # fmt: skip
async def test_every_other_argument_is_taken_and_echoed_as_it_was_resolved(server: Running) -> None:
    job = await submit(
        server,
        dataset="tests/hello-world@1",
        request_id="all of them",
        runner="envhub/metered@main",
        profile_name="tollbar/nop",
        profile_version="1",
        attempts=2,
        tag="a label",
        max_cost_usd="12.50",
    )
    assert (job["request_id"], job["tag"], job["attempts"], job["n_total"]) == ("all of them", "a label", 2, 2)
    assert (job["runner"]["name"], job["runner"]["source_ref"]) == ("envhub/metered", "main")
    assert len(job["runner"]["revision"]) == 64
    assert (job["profile"]["name"], job["profile"]["version"]) == ("tollbar/nop", "1")
    assert job["agent"]["name"] == "nop"
    assert job["budget"]["max_cost_usd"] == "12.5"
    assert server.finished(job["job_id"])["score"] == 0.0


@pytest.mark.requirement("EV-ARG-params")
async def test_params_reach_the_variables_of_a_task_and_only_they_do(server: Running, tmp_path: Path) -> None:
    asks = toml(more='[verifier.env]\nTOWN = "${CITY}"\nPLACE = "${REGION:-north}"')
    check = '#!/bin/sh\n[ "$TOWN $PLACE" = "Bern north" ] && echo 1 > /logs/verifier/reward.txt\n'
    write_task(tmp_path, "towns", {"task.toml": asks, "tests/test.sh": check})
    server.cli("datasets", "push", str(tmp_path), "--name", "team/towns", "--version", "1")
    wanted = {"dataset": "team/towns@1", "max_cost_usd": 1}
    job = await submit(server, **wanted, request_id="towns", params={"city": "Bern"})
    assert server.finished(job["job_id"])["score"] == 1.0
    without = await submit(server, **wanted, request_id="no city")
    assert (without["code"], without["refused"][0]["detail"]) == ("UNSUPPORTED_CAPABILITY", "variable")
    unknown = await submit(server, **wanted, request_id="more", params={"city": "Bern", "river": "Aare"})
    assert (unknown["code"], "RIVER" in unknown["message"]) == ("INVALID_JOB", True)


@pytest.mark.requirement("EV-ARG-attempts")
@pytest.mark.parametrize(
    ("attempts", "code"),
    [(1, None), (100, None), (0, "INVALID_ATTEMPTS"), (101, "INVALID_ATTEMPTS"), ("3", "INVALID_ATTEMPTS")],
)
async def test_attempts_are_1_to_100(server: Running, attempts: Any, code: str | None) -> None:
    job = await submit(
        server,
        dataset={"name": "tests/hello-world", "version": "1"},
        request_id=f"attempts {attempts}",
        attempts=attempts,
        max_cost_usd=1,
    )
    assert job.get("code") == code
    if code is None:
        assert job["n_total"] == attempts
        await call(server, "envloop_job_stop", job_id=job["job_id"])


@pytest.mark.requirement("G-EVAL-17.echo", "G-EVAL-18.22", "G-MCP-20.31")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"attempt": 3}, "INVALID_REQUEST"),
        ({"max_retries": 1}, "INVALID_REQUEST"),
        ({"dry_run": True}, "INVALID_REQUEST"),
        ({"params": {"MODEL": "x"}}, "INVALID_JOB"),
        ({"params": "MODEL=x"}, "INVALID_REQUEST"),
        ({"profile_version": "1"}, "INVALID_JOB"),
    ],
)
async def test_an_option_that_would_be_dropped_is_an_error(server: Running, wrong: dict[str, Any], code: str) -> None:
    before = jobs_of(server)
    refused = await submit(server, **PLAIN, request_id="dropped", **wrong)
    assert (refused["code"], refused["status"]) == (code, 422)
    assert jobs_of(server) == before


@pytest.mark.requirement("G-EVAL-18.42")
@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"attempts": 3}, {"attempts", "n_total"}),
        ({"runner": "envhub/metered@main"}, {"runner", "worst_case_usd", "worst_case_total_usd"}),
        ({"profile_name": "tollbar/nop"}, {"profile", "agent"}),
        ({"profile_name": "tollbar/oracle"}, set()),
        ({"max_cost_usd": 7}, {"max_cost_usd"}),
        ({"allow_base_substitution": False}, {"allow_base_substitution"}),
        ({"tag": "a label"}, set()),
    ],
)
def test_an_override_changes_exactly_what_it_names(server: Running, change: dict[str, Any], changed: set[str]) -> None:
    """`n_total` and the worst cases follow from what was named; everything else stays as the profile has it."""
    with server.http() as http:
        plain, other = (http.post("/v1/job", json={**PLAIN, "dry_run": True, **more}).json() for more in ({}, change))
    assert set(plain) == set(other)
    assert {name for name in plain if plain[name] != other[name]} == changed


# The cap


@pytest.mark.requirement("EV-SUBMIT-cap_required", "EV-CAP-never_without", "EV-ARG-max_cost_usd")
@pytest.mark.parametrize("given", [{}, {"max_cost_usd": None}])
async def test_the_tool_never_submits_without_a_cap(server: Running, given: dict[str, Any]) -> None:
    with server.http() as http:
        uncapped = http.post("/v1/job", json={"dataset": "tests/hello-world@1", "request_id": "no cap"}).json()
    before = jobs_of(server)
    for request_id in ("never", "no cap"):
        refused = await submit(server, dataset="tests/hello-world@1", request_id=request_id, **given)
        assert (refused["code"], refused["status"]) == ("INVALID_AMOUNT", 422)
        assert "max_cost_usd" in refused["message"]
    assert jobs_of(server) == before
    server.finished(uncapped["job_id"])


@pytest.mark.requirement("EV-CAP-range", "G-MCP-20.31")
@pytest.mark.parametrize("text", ["0.000001", "100000", "1e-6", '"0.50"', "1E2"])
def test_a_cap_within_its_range_is_taken_as_it_was_written(server: Running, text: str) -> None:
    with server.http() as http:
        answer = _raw(http, text, f"range {text}")
        assert answer["isError"] is False
        job = answer["structuredContent"]
        assert float(job["budget"]["max_cost_usd"]) == float(text.strip('"'))
        http.post(f"/v1/job/{job['job_id']}/stop")


@pytest.mark.requirement("EV-CAP-range", "G-MCP-20.31")
@pytest.mark.parametrize(
    "text",
    ["0", "-1", "0.0000009", "100000.01", "1e9", '"NaN"', '"Infinity"', "true", '""', '"1 USD"', "[1]", '"1,5"',
     "1.2345678901234567", '"1.2345678901234567"', "NaN", "1e999", "-Infinity"],
)  # fmt: skip
def test_a_cap_out_of_range_or_of_another_form_is_refused_and_nothing_is_written(server: Running, text: str) -> None:
    before = jobs_of(server)
    with server.http() as http:
        answer = _raw(http, text, "out of range")
    if "result" in answer or "isError" in answer:
        assert answer["isError"] is True
        assert answer["structuredContent"]["code"] in {"INVALID_AMOUNT", "INVALID_REQUEST"}
    else:
        assert answer["code"] in {-32700, -32600, -32602}
    assert jobs_of(server) == before


def _raw(http: httpx2.Client, cap: str, request_id: str) -> dict[str, Any]:
    """Sends a submission whose cap is exactly this JSON text, and returns the result or the protocol's error."""
    arguments = f'{{"dataset": "tests/hello-world@1", "request_id": {json.dumps(request_id)}, "max_cost_usd": {cap}}}'
    content = (
        f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": "{SUBMIT}", '
        f'"arguments": {arguments}}}}}'
    )
    answer = http.post("/v1/mcp", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in {200, 400}, answer.text
    body = answer.json()
    return body["result"] if "result" in body else body["error"]


# Repeats


@pytest.mark.requirement("EV-RETRY-same", "EV-RETRY-different", "EV-ARG-request_id")
async def test_a_repeat_is_the_same_job_and_other_arguments_are_refused(server: Running) -> None:
    wanted = {"dataset": "tests/hello-world@1", "request_id": "repeat", "max_cost_usd": 2, "attempts": 2}
    first = await submit(server, **wanted)
    server.finished(first["job_id"])
    for same in (wanted, {**wanted, "max_cost_usd": "2.00"}, {**wanted, "tag": None}):
        assert (await submit(server, **same))["job_id"] == first["job_id"]
    with server.http() as http:
        assert http.post("/v1/job", json=wanted).json()["job_id"] == first["job_id"]
    before = jobs_of(server)
    for name, value in (("attempts", 3), ("max_cost_usd", 3), ("tag", "x"), ("profile_name", "tollbar/nop")):
        refused = await submit(server, **{**wanted, name: value})
        assert (refused["code"], refused["status"]) == ("JOB_REQUEST_CONFLICT", 409)
        assert (refused["job_id"], refused["differs"]) == (first["job_id"], [name])
    assert jobs_of(server) == before


# One code on every interface

WRONG: Final = [
    {"dataset": "no/such@1"},
    {"dataset": "demo/mini@99"},
    {"dataset": {"name": "demo/mini", "version": "1", "task_id": "none"}},
    {"dataset": {"name": "demo/mini", "version": "1", "split": "none"}},
    {"dataset": 7},
    {"attempts": 0},
    {"max_cost_usd": 0},
    {"max_cost_usd": "1e9"},
    {"profile_name": "no/such"},
    {"runner": "no/such@main"},
    {"runner": "a b"},
    {"params": {"MODEL": "x"}},
    {"tag": ""},
    {"tag": 5},
    {"request_id": "x" * 129},
]


@pytest.mark.requirement("EV-SAFE-codes")
@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_a_submission_is_refused_alike_over_mcp_and_http(server: Running, wrong: dict[str, Any]) -> None:
    wanted = {**PLAIN, "request_id": "alike", **wrong}
    over_mcp = await submit(server, **wanted)
    with server.http() as http:
        over_http = http.post("/v1/job", json=wanted)
    assert over_mcp == {**over_http.json(), "status": over_http.status_code}
    assert over_http.status_code in {404, 422}


@pytest.mark.requirement("EV-SAFE-codes")
async def test_what_is_not_there_is_refused_alike_over_mcp_and_http(server: Running) -> None:
    with server.http() as http:
        for tool, arguments, path in (
            ("envloop_job_status", {"job_id": "job_none"}, "/v1/job/job_none"),
            ("envloop_job_result", {"job_id": "job_none"}, "/v1/job/job_none/result"),
            ("envloop_trial_result", {"trial_id": "trial_none"}, "/v1/trials/trial_none/result"),
            ("envloop_dataset_get", {"name": "no/such"}, "/v1/datasets/bm8vc3VjaA"),
            ("envloop_datasets_list", {"limit": 101}, "/v1/datasets?limit=101"),
            ("envloop_datasets_list", {"cursor": "x"}, "/v1/datasets?cursor=x"),
            ("envloop_job_result", {"job_id": "job_none", "trials_limit": 0}, "/v1/job/job_none/result?trials_limit=0"),
        ):
            answer = http.get(path)
            assert await call(server, tool, **arguments) == {**answer.json(), "status": answer.status_code}, tool
        answer = http.post("/v1/job/job_none/stop")
    assert await call(server, "envloop_job_stop", job_id="job_none") == {**answer.json(), "status": 404}


def test_the_command_line_tells_the_same_code(server: Running, tmp_path: Path) -> None:
    for words, code in (
        (["jobs", "submit", "no/such@1", "--max-cost", "1"], "DATASET_NOT_FOUND"),
        (["jobs", "submit", "demo/mini@1", "--max-cost", "0"], "INVALID_AMOUNT"),
        (["jobs", "show", "job_none"], "JOB_NOT_FOUND"),
    ):
        done = server.cli(*words, "--json", check=False, cwd=tmp_path)
        assert json.loads(done.stdout)["code"] == code
