"""`datasets push`: names, what is told, and digests that the server computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import examples
from tests.cli.conftest import Ended
from tests.cli.standin import Answer, StandIn

ROUTE = "POST /v1/datasets/dGVhbS9jaGVja291dA/versions"
OLD, NEW, OTHER = ("sha256:" + digit * 64 for digit in "abc")
ZEROS = "sha256:" + "0" * 64

LISTING = f"""[dataset]
name = "team/checkout"
version = "2"

[[tasks]]
name = "team/one"
digest = "{OLD}"  # kept comment

[[tasks]]
name = "team/two"
digest = 'nothing yet'
"""


@pytest.fixture
def folder(home: Path) -> Path:
    root = home / "work" / "set"
    (root / "one").mkdir(parents=True)
    (root / "one" / "task.toml").write_text('schema_version = "1.4"\n')
    (root / "dataset.toml").write_text(LISTING)
    (root / "dataset.toml").chmod(0o640)
    return root


def refusal(*problems: dict[str, Any]) -> Answer:
    body = {"code": "UNSUPPORTED_TASK_FORMAT", "message": f"{len(problems)} problems in the upload."}
    return Answer(422, {**body, "problem_count": len(problems), "problems": list(problems)})


def digest_problem(index: int, line: int, found: str, allowed: str) -> dict[str, Any]:
    key = f"tasks[{index}].digest"
    return {"file": "dataset.toml", "key": key, "message": "is wrong", "line": line, "found": found, "allowed": allowed}


def test_a_folder_is_published_under_the_name_that_it_says(
    tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path
) -> None:
    signed_in.on(ROUTE, Answer(201, examples.version()))
    ended = tollbar("datasets", "push", "set", "--json")
    assert (ended.code, ended.json) == (0, examples.version())
    asked = signed_in.asked[0]
    assert asked.query == {}
    assert asked.headers["content-type"] == "application/x-tar"
    assert int(asked.headers["content-length"]) == len(asked.body) > 0
    assert "nothing to do" not in ended.err


def test_name_version_and_visibility_are_options(
    tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path
) -> None:
    signed_in.on("POST /v1/datasets/YS9i/versions", Answer(200, examples.version()))
    ended = tollbar("datasets", "push", "set", "--name", "a/b", "--version", "3", "--visibility", "public")
    assert ended.code == 0
    assert signed_in.asked[0].query == {"version": "3", "visibility": "public"}
    assert "nothing to do" in ended.err


def test_a_folder_without_a_name_needs_one(tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path) -> None:
    (folder / "dataset.toml").unlink()
    ended = tollbar("datasets", "push", "set")
    assert ended.code == 2
    assert "--name" in ended.err
    assert signed_in.asked == []
    assert tollbar("datasets", "push", "set", "--visibility", "secret").code == 2


def test_every_problem_of_an_upload_is_told(tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path) -> None:
    many = [
        {"file": f"t{n}/task.toml", "key": "agent.x", "message": "is not a known key", "line": n} for n in range(30)
    ]
    signed_in.on(ROUTE, refusal(*many))
    ended = tollbar("datasets", "push", "set")
    assert ended.code == 2
    assert "  t3/task.toml, line 3: agent.x: is not a known key" in ended.err
    assert "and 10 more" in ended.err
    assert len(tollbar("datasets", "push", "set", "--json").json["problems"]) == 30


def test_a_folder_that_cannot_be_packed_is_refused_with_every_reason(
    tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path
) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "lost").symlink_to("nothing")
    ended = tollbar("datasets", "push", "set")
    assert ended.code == 2
    assert "out: is a link that leads out of the folder" in ended.err
    assert "lost: " in ended.err
    assert signed_in.asked == []


def test_digests_are_brought_up_to_date_with_what_the_server_computes(
    tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path
) -> None:
    signed_in.on(
        ROUTE,
        refusal(digest_problem(0, 7, OLD, NEW), digest_problem(1, 11, '"nothing yet"', "sha256: and 64 hex digits")),
        refusal(digest_problem(1, 11, ZEROS, OTHER)),
        Answer(201, examples.version()),
    )
    ended = tollbar("datasets", "push", "set", "--update-digests")
    assert ended.code == 0
    text = (folder / "dataset.toml").read_text()
    assert text == LISTING.replace(OLD, NEW).replace("'nothing yet'", f'"{OTHER}"')
    assert (folder / "dataset.toml").stat().st_mode & 0o777 == 0o640
    assert f"line 7: {OLD} -> {NEW}" in ended.err
    assert f"line 11: {ZEROS} -> {OTHER}" in ended.err
    assert sorted(path.name for path in folder.iterdir()) == ["dataset.toml", "one"]


@pytest.mark.parametrize(
    "problem",
    [
        {"file": "one/task.toml", "key": "agent.x", "message": "is not a known key", "line": 3},
        digest_problem(0, 1, OLD, NEW),
        digest_problem(0, 99, OLD, NEW),
        {
            "file": "other/dataset.toml",
            "key": "tasks[0].digest",
            "message": "x",
            "line": 7,
            "found": OLD,
            "allowed": NEW,
        },
    ],
)
def test_nothing_is_rewritten_when_the_server_names_anything_else(
    tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path, problem: dict[str, Any]
) -> None:
    signed_in.on(ROUTE, refusal(digest_problem(1, 11, '"nothing yet"', OTHER), problem))
    ended = tollbar("datasets", "push", "set", "--update-digests")
    assert ended.code == 2
    assert (folder / "dataset.toml").read_text() == LISTING
    assert len(signed_in.asked) == 1


def test_without_the_option_nothing_is_rewritten(
    tollbar: Callable[..., Ended], signed_in: StandIn, folder: Path
) -> None:
    signed_in.on(ROUTE, refusal(digest_problem(0, 7, OLD, NEW)))
    assert tollbar("datasets", "push", "set").code == 2
    assert (folder / "dataset.toml").read_text() == LISTING


def test_tasks_of_a_version_are_listed(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    page = examples.page(examples.task())
    signed_in.on("GET /v1/datasets/dGVhbS9jaGVja291dA", examples.dataset())
    signed_in.on("GET /v1/datasets/dGVhbS9jaGVja291dA/versions/2/tasks", page)
    for name in ("team/checkout", "team/checkout@2"):
        assert tollbar("datasets", "show", name, "--tasks", "--split", "test", "--json").json == page
    assert signed_in.asked[-1].query == {"split": "test"}
