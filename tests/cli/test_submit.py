"""`jobs submit`: what is sent, what is told before, and what is refused before anything is sent."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import examples
from tests.cli.conftest import Ended
from tests.cli.standin import Answer, StandIn

ROUTE = "POST /v1/job"


@pytest.fixture
def accepting(signed_in: StandIn) -> StandIn:
    signed_in.on(ROUTE, Answer(202, examples.job()))
    return signed_in


def test_a_submission_sends_what_the_options_say(tollbar: Callable[..., Ended], accepting: StandIn) -> None:
    ended = tollbar(
        "jobs", "submit", "team/checkout@2", "--profile", "team/claude@4", "--runner", "envhub/base@main", "-k", "3",
        "--max-cost", "5", "--param", "MODEL=scripted:x", "--param", "STEPS=7", "--param", 'NAME="7"',
        "--split", "test", "--config", "small", "--task", "x", "--tag", "nightly", "--request-id", "r1",
    )  # fmt: skip
    assert ended.code == 0
    assert accepting.asked[0].json == {
        "dataset": {"name": "team/checkout", "version": "2", "split": "test", "config": "small", "task_id": "x"},
        "profile_name": "team/claude", "profile_version": "4", "runner": "envhub/base@main", "attempts": 3,
        "params": {"MODEL": "scripted:x", "STEPS": 7, "NAME": "7"}, "tag": "nightly", "max_cost_usd": "5",
        "request_id": "r1",
    }  # fmt: skip
    assert f"tollbar jobs watch {examples.JOB_ID}" in ended.err
    assert "request_id r1" not in ended.err


def test_how_a_job_runs_is_said_with_set(tollbar: Callable[..., Ended], accepting: StandIn) -> None:
    said = ("--set", "priority=-5", "--set", "max_concurrent=2", "--set", "timeout=30m", "--set", "sandbox_form=held")
    assert tollbar("jobs", "submit", "demo/mini", "--no-cap", "--keep-failed", "1h", *said).code == 0
    sent = accepting.asked[0].json
    assert (sent["priority"], sent["max_concurrent"]) == (-5, 2)
    assert sent["execution"] == {"timeout_sec": 1800, "sandbox_form": "held", "keep_failed_sec": 3600}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("priority", "--set priority is not KEY=VALUE"),
        ("speed=2", "--set speed is none of max_concurrent, priority, sandbox_form, timeout"),
        ("priority=high", "--set priority=high is no whole number"),
        ("timeout=soon", "--set timeout soon is no time such as 90s, 30m, 1h or 2d"),
    ],
)
def test_what_cannot_be_set_is_told_and_nothing_is_sent(
    tollbar: Callable[..., Ended], accepting: StandIn, text: str, said: str
) -> None:
    ended = tollbar("jobs", "submit", "demo/mini", "--no-cap", "--set", text)
    assert ended.code == 2
    assert said in ended.err
    assert not accepting.asked


def test_the_shortest_submission_leaves_the_choice_to_the_server(
    tollbar: Callable[..., Ended], accepting: StandIn
) -> None:
    assert tollbar("jobs", "submit", "demo/mini", "--no-cap", "--json").json == examples.job()
    sent = accepting.asked[0].json
    assert re.fullmatch(r"cli-[0-9a-f]{32}", sent.pop("request_id"))
    assert sent == {"dataset": {"name": "demo/mini"}, "attempts": 1}


def test_the_request_id_is_told_before_anything_is_sent(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on(ROUTE, Answer(cut=True))
    ended = tollbar("jobs", "submit", "demo/mini@1", "--max-cost", "1", "--tag", "two words")
    assert ended.code == 1
    sent = signed_in.asked[0].json["request_id"]
    assert ended.err.splitlines()[0] == f"request_id {sent}"
    assert ended.err.splitlines()[-1].strip() == (
        f"tollbar jobs submit demo/mini@1 --max-cost 1 --tag 'two words' --request-id {sent}"
    )
    assert len(signed_in.asked) == 1


def test_a_repeated_request_id_is_told(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on(ROUTE, Answer(200, examples.completed()))
    ended = tollbar("jobs", "submit", "demo/mini@1", "--no-cap", "--request-id", "r1")
    assert ended.code == 0
    assert "submitted before" in ended.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--max-cost", "1", "--no-cap"], "exclude"),
        (["--no-cap", "--fail-under", "0.5"], "--watch"),
        (["--no-cap", "--min-coverage", "0.5"], "--watch"),
        (["--dry-run", "--watch"], "--dry-run"),
        (["--no-cap", "--param", "novalue"], "KEY=VALUE"),
        (["--no-cap", "--param", "=x"], "KEY=VALUE"),
        (["--no-cap", "--param", "A=1", "--param", "A=2"], "twice"),
        (["--no-cap", "-k", "many"], "-k"),
        (["--no-cap", "--fail-under", "high", "--watch"], "--fail-under"),
    ],
)
def test_a_submission_that_makes_no_sense_is_refused_before_it_is_sent(
    tollbar: Callable[..., Ended], signed_in: StandIn, options: list[str], word: str
) -> None:
    ended = tollbar("jobs", "submit", "demo/mini@1", *options)
    assert (ended.code, ended.out) == (2, "")
    assert word in ended.err
    assert signed_in.asked == []


ACCOUNT: dict[str, Any] = {
    "project_id": "prj_1", "currency": "USD", "daily_cap_usd": "2", "spent_today_usd": "1.7", "reserved_usd": "0.1",
    "remaining_today_usd": "0.2", "resets_at": "2026-12-01T00:00:00.000Z", "spent_this_month_usd": "4.25",
    "default_job_cap_usd": None, "warning": {"percent": 80, "at": "2026-11-30T11:00:00.000Z"},
}  # fmt: skip


def test_a_job_without_a_cap_is_not_submitted_unless_the_project_has_a_default_one(
    tollbar: Callable[..., Ended], signed_in: StandIn
) -> None:
    signed_in.on(ROUTE, Answer(202, examples.job()))
    for account in (Answer(200, ACCOUNT), Answer(404, {"code": "NOT_FOUND", "message": "There is no such route."})):
        signed_in.on("GET /v1/billing/account", account)
        ended = tollbar("jobs", "submit", "demo/mini@1")
        assert (ended.code, ended.out) == (2, "")
        assert "--max-cost" in ended.err
    signed_in.on("GET /v1/billing/account", {**ACCOUNT, "default_job_cap_usd": "0.5"})
    assert tollbar("jobs", "submit", "demo/mini@1").code == 0
    (sent,) = signed_in.to(ROUTE)
    assert "max_cost_usd" not in sent.json


def test_a_cap_may_name_the_share_of_each_trial_behind_a_slash(
    tollbar: Callable[..., Ended], signed_in: StandIn
) -> None:
    signed_in.on(ROUTE, Answer(202, examples.job()))
    for text, whole, share in (("5", "5", None), ("5/0.20", "5", "0.20"), ("/0.20", None, "0.20")):
        assert tollbar("jobs", "submit", "demo/mini@1", "--max-cost", text).code == 0
        sent = signed_in.to(ROUTE)[-1].json
        assert (sent.get("max_cost_usd"), sent.get("max_cost_per_trial_usd")) == (whole, share)


def test_a_dry_run_starts_nothing_and_needs_no_cap(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    resolved: dict[str, Any] = {
        "dry_run": True, "dataset_ref": {"name": "demo/mini", "version": "1"}, "total_tasks": 6, "n_total": 6,
        "profile": {"name": "tollbar/oracle", "version": "1"}, "attempts": 1, "max_cost_usd": None,
        "refused": [{"task": "demo/web", "message": "needs Docker"}], "worst_case_usd": "0.72",
        "worst_case_total_usd": "4.32", "project_day": ACCOUNT,
    }  # fmt: skip
    signed_in.on(ROUTE, resolved)
    ended = tollbar("jobs", "submit", "demo/mini@1", "--dry-run")
    assert ended.code == 0
    assert "refused\tdemo/web: needs Docker" in ended.out
    assert "cap\t-" in ended.out
    assert "worst case per Trial\t0.72 USD\nworst case in all\t4.32 USD\n" in ended.out
    assert "left of the day\t0.20 USD of 2.00 USD" in ended.out
    sent = signed_in.asked[0].json
    assert sent["dry_run"] is True
    assert "request_id" not in sent
    assert tollbar("jobs", "submit", "demo/mini@1", "--dry-run", "--json").json == resolved


def test_a_job_that_its_cap_ended_at_once_exits_7(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on(ROUTE, Answer(202, examples.capped()))
    assert tollbar("jobs", "submit", "demo/mini@1", "--max-cost", "0.01").code == 7


def test_an_unknown_dataset_or_profile_suggests_the_nearest(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on(ROUTE, Answer(404, {"code": "DATASET_NOT_FOUND", "message": "There is no dataset team/chekout here."}))
    signed_in.on("GET /v1/datasets", examples.page(examples.dataset()))
    ended = tollbar("jobs", "submit", "team/chekout", "--no-cap")
    assert ended.code == 3
    assert "did you mean team/checkout?" in ended.err
    signed_in.on(ROUTE, Answer(404, {"code": "PROFILE_NOT_FOUND", "message": "There is no profile tollbar/orcle."}))
    signed_in.on("GET /v1/profiles", examples.page(examples.profile()))
    assert (
        "did you mean tollbar/oracle?" in tollbar("jobs", "submit", "a/b", "--no-cap", "--profile", "tollbar/orcle").err
    )


def test_a_conflict_names_the_first_job_and_what_differs(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    body = {
        "code": "JOB_REQUEST_CONFLICT", "message": "This request_id was used with other arguments.",
        "job_id": examples.JOB_ID, "differs": ["attempts"],
    }  # fmt: skip
    signed_in.on(ROUTE, Answer(409, body))
    ended = tollbar("jobs", "submit", "a/b", "--no-cap", "--request-id", "r1", "--json")
    assert (ended.code, ended.json) == (1, body)
    assert "attempts" in ended.err
    assert f"tollbar jobs show {examples.JOB_ID}" in ended.err


def _folder(root: Path, listing: str | None = None) -> Path:
    (root / "one" / "tests").mkdir(parents=True)
    (root / "one" / "task.toml").write_text('schema_version = "1.4"\n')
    (root / "one" / "tests" / "test.sh").write_text("#!/bin/sh\n")
    if listing is not None:
        (root / "dataset.toml").write_text(listing)
    return root


def _pushed(server: StandIn) -> tuple[str, dict[str, str], dict[str, bytes]]:
    """Returns the route, the query, and the files of the one upload."""
    asked = next(one for one in server.asked if one.path.startswith("/v1/datasets/"))
    with tarfile.open(fileobj=io.BytesIO(asked.body)) as tar:
        files = {one.name: (tar.extractfile(one) or io.BytesIO()).read() for one in tar if one.isreg()}
    return asked.path, asked.query, files


def test_a_folder_is_pushed_as_a_private_version_of_its_content_and_submitted(
    tollbar: Callable[..., Ended], accepting: StandIn, home: Path
) -> None:
    _folder(home / "work" / "My set!")
    route = "POST /v1/datasets/bG9jYWwvTXktc2V0/versions"
    accepting.on(route, Answer(201, examples.version(name="local/My-set", version="local-abc")))
    ended = tollbar("jobs", "submit", "./My set!", "--no-cap")
    assert ended.code == 0
    path, query, files = _pushed(accepting)
    assert f"POST {path}" == route
    assert sorted(files) == ["one/task.toml", "one/tests/test.sh"]
    assert query["visibility"] == "private"
    assert re.fullmatch("local-[0-9a-f]{16}", query["version"])
    assert accepting.to(ROUTE)[0].json["dataset"] == {"name": "local/My-set", "version": "local-abc"}
    assert "local/My-set@local-abc" in ended.err
    tollbar("jobs", "submit", "./My set!", "--no-cap")
    assert {one.query["version"] for one in accepting.to(route)} == {query["version"]}, "same content, same label"
    (home / "work" / "My set!" / "one" / "task.toml").write_text("changed")
    tollbar("jobs", "submit", "./My set!", "--no-cap")
    assert len({one.query["version"] for one in accepting.to(route)}) == 2


@pytest.mark.parametrize(
    "listing",
    [
        '[dataset]\nname = "team/checkout"\nversion = "2" # label\nauthors = []\n',
        '# version = "9"\ndataset.name = "team/checkout"\ndataset.version = \'2\'\n',
        'schema_version = "1.0"\n[metadata]\nversion = "7"\n[dataset]\n  name="team/checkout"\n  version="2"\n',
    ],
)
def test_the_version_that_a_folder_names_is_set_aside_and_the_rest_kept(
    tollbar: Callable[..., Ended], accepting: StandIn, home: Path, listing: str
) -> None:
    _folder(home / "work" / "set", listing)
    accepting.on("POST /v1/datasets/dGVhbS9jaGVja291dA/versions", Answer(201, examples.version(version="local-1")))
    assert tollbar("jobs", "submit", str(home / "work" / "set"), "--no-cap").code == 0
    _, _, files = _pushed(accepting)
    sent = files["dataset.toml"].decode()
    assert sent.count("\n") == listing.count("\n"), "lines stay where the server's problems name them"
    assert sent.replace("# ", "") == listing.replace("# ", "")
    assert sent != listing
    assert (home / "work" / "set" / "dataset.toml").read_text() == listing


def test_a_version_that_cannot_be_set_aside_is_refused(
    tollbar: Callable[..., Ended], accepting: StandIn, home: Path
) -> None:
    _folder(home / "work" / "set", 'dataset = { name = "team/checkout", version = "2" }\n')
    ended = tollbar("jobs", "submit", "set", "--no-cap")
    assert ended.code == 2
    assert "version" in ended.err
    assert accepting.asked == []


def test_a_single_task_is_called_as_it_says(tollbar: Callable[..., Ended], accepting: StandIn, home: Path) -> None:
    (home / "work" / "t").mkdir()
    (home / "work" / "t" / "task.toml").write_text('[task]\nname = "team/checkout"\n')
    accepting.on("POST /v1/datasets/dGVhbS9jaGVja291dA/versions", Answer(200, examples.version()))
    assert tollbar("jobs", "submit", "./t", "--no-cap").code == 0


@pytest.mark.parametrize("path", ["./nothing", "/no/such/folder", "../x"])
def test_a_path_without_a_folder_is_refused(tollbar: Callable[..., Ended], accepting: StandIn, path: str) -> None:
    ended = tollbar("jobs", "submit", path, "--no-cap")
    assert ended.code == 2
    assert "is not a folder" in ended.err
    assert accepting.asked == []
