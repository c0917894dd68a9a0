"""stdout carries data only, in the form that was asked for, and nothing in it moves a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cli import examples
from tests.cli.conftest import Ended
from tests.cli.standin import Answer, StandIn

from tollbar.cli import text
from tollbar.cli.output import json_text

HOSTILE = "\x1b[2J\x1b]8;;http://evil.example\x07click\x9b31m\u202egnp.exe\r\nnext\ttab\x00"

READS: list[tuple[str, Any, list[str]]] = [
    ("/v1/job", examples.page(examples.job(), examples.capped(), next_cursor="c1"), ["jobs", "list"]),
    (f"/v1/job/{examples.JOB_ID}", examples.job(), ["jobs", "show", examples.JOB_ID]),
    (f"/v1/job/{examples.JOB_ID}/result", examples.result(), ["jobs", "result", examples.JOB_ID]),
    ("/v1/trials", examples.page(examples.trial()), ["trials", "list"]),
    (f"/v1/trials/{examples.TRIAL_ID}/result", examples.trial_result(), ["trials", "show", examples.TRIAL_ID]),
    (f"/v1/trials/{examples.TRIAL_ID}/artifacts", examples.artifacts(), ["artifacts", "list", examples.TRIAL_ID]),
    ("/v1/datasets", examples.page(examples.dataset()), ["datasets", "list"]),
    ("/v1/datasets/dGVhbS9jaGVja291dA", examples.dataset(), ["datasets", "show", "team/checkout"]),
    ("/v1/datasets/dGVhbS9jaGVja291dA/versions/2", examples.version(), ["datasets", "show", "team/checkout@2"]),
    ("/v1/runners", examples.page(examples.runner()), ["runners", "list"]),
    ("/v1/profiles", examples.page(examples.profile()), ["profiles", "list"]),
    ("/v1/me", examples.me(), ["whoami"]),
]


@pytest.mark.parametrize(("path", "value", "line"), READS, ids=[" ".join(line[:2]) for _, _, line in READS])
def test_json_is_one_document_and_exactly_the_servers_object(
    tollbar: Callable[..., Ended], signed_in: StandIn, path: str, value: Any, line: list[str]
) -> None:
    signed_in.on(f"GET {path}", value)
    for option in (["--json"], ["--output", "json"], ["--output=json"]):
        ended = tollbar(*line, *option)
        assert (ended.code, ended.json) == (0, value)


@pytest.mark.parametrize(("path", "value", "line"), READS, ids=[" ".join(line[:2]) for _, _, line in READS])
def test_piped_output_is_rows_of_tabs_without_escapes(
    tollbar: Callable[..., Ended], signed_in: StandIn, path: str, value: Any, line: list[str]
) -> None:
    signed_in.on(f"GET {path}", value)
    ended = tollbar(*line)
    assert ended.code == 0
    rows = [row.split("\t") for row in ended.out.splitlines() if row]
    assert rows
    assert all(len(row) > 1 for row in rows)
    assert ended.out.isprintable() or not set(ended.out) - set("\t\n") & {"\x1b", "\r"}


@pytest.mark.parametrize(("path", "value", "line"), READS, ids=[" ".join(line[:2]) for _, _, line in READS])
def test_hostile_text_is_escaped_in_every_form(
    tollbar: Callable[..., Ended], signed_in: StandIn, path: str, value: Any, line: list[str]
) -> None:
    signed_in.on(f"GET {path}", _poisoned(value))
    for form in ("plain", "table", "json"):
        ended = tollbar(*line, "--output", form)
        assert ended.code == 0
        if form == "json":
            assert ended.json == _poisoned(value)
        if "POISON" not in json.dumps(_poisoned(value)):
            continue
        written = ended.out + ended.err
        bad = {"\x1b", "\x07", "\x9b", "\u202e", "\r", "\x00"} & set(
            written.replace("\x1b[1m", "").replace("\x1b[0m", "")
        )
        assert not bad, (form, bad)


def _poisoned(value: Any, key: str = "") -> Any:
    """The same object with hostile text wherever a run, a user or a server writes free text."""
    if isinstance(value, dict):
        return {name: _poisoned(member, name) for name, member in value.items()}
    if isinstance(value, list):
        return [_poisoned(member, key) for member in value]
    free = isinstance(value, str) and not key.endswith(("_usd", "_at", "cursor", "status", "phase"))
    return f"POISON {HOSTILE}" if free else value


def test_hostile_text_in_an_error_is_escaped(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on("GET /v1/me", Answer(422, {"code": "INVALID_REQUEST", "message": HOSTILE, "hint": HOSTILE}))
    ended = tollbar("whoami")
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(ended.err)


def test_lone_halves_of_characters_and_terminal_controls_survive_as_json() -> None:
    value = {"name": f"{HOSTILE}\ud800\u2028", "plain": "grün 日本"}
    written = json_text(value)
    assert json.loads(written) == value
    assert "grün 日本" in written
    assert written.encode("utf-8")
    assert not {"\x1b", "\x9b", "\u202e", "\u2028", "\x7f"} & set(written)


def test_a_list_goes_on_after_a_cursor_and_all_follows_it(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    first, last = examples.job(job_id="job_1"), examples.job(job_id="job_2")
    signed_in.on("GET /v1/job", examples.page(first, next_cursor="c1"))
    ended = tollbar("jobs", "list", "--limit", "1")
    assert "--cursor c1" in ended.err
    assert signed_in.asked[-1].query == {"limit": "1"}
    assert tollbar("jobs", "list", "--quiet").err == ""
    signed_in.on("GET /v1/job", examples.page(first, next_cursor="c1"), examples.page(last))
    whole = tollbar("jobs", "list", "--all", "--status", "running", "--tag", "t", "--json")
    assert whole.json == examples.page(first, last)
    assert signed_in.asked[-1].query == {"limit": "100", "cursor": "c1", "status": "running", "tag": "t"}
    assert tollbar("jobs", "list", "--all", "--limit", "3").code == 2


@pytest.mark.requirement("G-EVAL-18.9")
def test_a_score_never_stands_without_interval_and_coverage(tollbar: Callable[..., Ended], signed_in: StandIn) -> None:
    signed_in.on("GET /v1/job", examples.page(examples.job(simulated=True)))
    assert "0.75 [0, 1] SIMULATED\t5/12" in tollbar("jobs", "list").out
    signed_in.on(f"GET /v1/job/{examples.JOB_ID}", examples.job(simulated=True))
    assert "score\t0.75 (95 % 0 to 1, 5/12 scored) SIMULATED" in tollbar("jobs", "show", examples.JOB_ID).out


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "-"), ("0", "0.00 USD"), ("5", "5.00 USD"), ("0.428", "0.43 USD"), ("0.01", "0.01 USD"),
        ("0.0402", "0.04 USD"), ("0.00123", "0.0012 USD"), ("0.000001", "0.000001 USD"), ("0.0044", "0.0044 USD"),
        ("0.000000000005", "0.000000000005 USD"), ("123456.789", "123456.79 USD"), ("much", "much"), ("NaN", "NaN"),
    ],
)  # fmt: skip
def test_money_has_two_decimals_and_two_digits_below_a_cent(amount: str | None, shown: str) -> None:
    assert text.money(amount) == shown


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-11-30T12:00:00.000Z", "now"), ("2026-11-30T11:59:30.000Z", "30 s ago"),
        ("2026-11-30T11:57:00.000Z", "3 min ago"), ("2026-11-30T09:00:00.000Z", "3 h ago"),
        ("2026-11-20T12:00:00.000Z", "10 d ago"), ("2026-11-30T12:05:00.000Z", "now"), (None, "-"), ("soon", "soon"),
    ],
)  # fmt: skip
def test_times_are_told_as_ages(moment: str | None, shown: str) -> None:
    assert text.age(moment, datetime(2026, 11, 30, 12, tzinfo=UTC)) == shown


def test_what_is_unknown_is_a_dash_and_never_zero() -> None:
    assert text.number(None) == text.size(None) == text.cell(None) == text.cell("") == "-"
    assert text.measured({"score": None, "n_scored": 0, "n_total": 3}, "score") == "- (0/3 scored)"
    assert text.measured({"score": 1.0, "n_scored": 1, "n_total": 3}, "score") == "1 (no interval, 1/3 scored)"
    assert (text.number(0.0), text.size(0)) == ("0", "0 B")
