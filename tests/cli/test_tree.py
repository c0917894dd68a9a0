"""Every command: few options, help with an example, and the same answer to the same mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclopts import App
from tests.cli.conftest import Ended
from tests.cli.standin import Answer, StandIn

from tollbar.cli.main import arrange
from tollbar.cli.session import Options
from tollbar.cli.tree import COMMANDS, NOUNS, build

MAX_WORDS = 26
MAX_OPTIONS = 15
MORE = {"jobs submit": 2}
"""Everything that a Job can be asked for is one command; keeping what failed and how it runs came last."""
SHORT = {"-k", "-o", "-h", "-f"}
GLOBALS = {f"--{name}" for name in Options.__dataclass_fields__}
NEEDS_ID = {
    ("datasets", "show"): ["no/such"], ("datasets", "check"): ["no/such"], ("jobs", "show"): ["job_x"],
    ("jobs", "watch"): ["job_x"],
    ("jobs", "stop"): ["job_x"], ("jobs", "result"): ["job_x"], ("trials", "show"): ["trial_x"],
    ("artifacts", "list"): ["trial_x"], ("artifacts", "get"): ["trial_x", "art_x"], ("prices", "show"): ["openai:x"],
    ("jobs", "logs"): ["job_x"], ("trials", "logs"): ["trial_x"],
}  # fmt: skip
OFFLINE = {("config", "explain"), ("config", "path"), ("help", "exit-codes")}
VERBS = [(noun.name, verb) for noun in NOUNS for verb in noun.verbs]
ONLINE = [
    *[
        verb
        for verb in VERBS
        if verb not in OFFLINE and verb not in {("datasets", "push"), ("jobs", "submit"), ("jobs", "retry")}
    ],
    *[(command.name,) for command in COMMANDS],
]


def _commands() -> Iterator[tuple[str, App]]:
    app = build()
    for command in COMMANDS:
        yield command.name, app[command.name]
    for noun, verb in VERBS:
        yield f"{noun} {verb}", app[noun][verb]


COMMAND_APPS = list(_commands())


def test_the_top_level_stays_small() -> None:
    words = {noun.name for noun in NOUNS} | {command.name for command in COMMANDS}
    assert len(words - {"help"}) <= MAX_WORDS


@pytest.mark.parametrize(("name", "app"), COMMAND_APPS, ids=[name for name, _ in COMMAND_APPS])
def test_a_command_has_help_an_example_and_few_options(name: str, app: App) -> None:
    docstring = app.default_command.__doc__ or ""
    assert docstring.split("\n")[0].endswith(".")
    assert f"Example: tollbar {name}" in docstring
    arguments = list(app.assemble_argument_collection(parse_docstring=True))
    options = [one for one in arguments if not GLOBALS & set(one.names) and one.names and one.names[0].startswith("-")]
    assert len(options) <= MAX_OPTIONS + MORE.get(name, 0)
    for one in arguments:
        if one.names and one.show:
            assert (one.parameter.help or "").endswith((".", ";")), f"{one.names} needs a sentence"
        short = {text for text in one.names if text.startswith("-") and not text.startswith("--")}
        assert short <= SHORT
        assert not [text for text in one.names if text.startswith(("--no-", "--empty-"))] or one.names == ("--no-cap",)


@pytest.mark.parametrize("words", [*VERBS, *[(command.name,) for command in COMMANDS], *[(n.name,) for n in NOUNS]])
def test_help_goes_to_stdout_and_exits_0(tollbar: Callable[..., Ended], words: tuple[str, ...]) -> None:
    for line in ([*words, "--help"], ["help", *words], [*words, "-h"]):
        if line in (["help", "help", "exit-codes"], ["help", "help"]):
            continue
        ended = tollbar(*line)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith(f"Usage: tollbar {' '.join(words)}")


def test_a_bare_tollbar_prints_help(tollbar: Callable[..., Ended]) -> None:
    ended = tollbar()
    assert (ended.code, ended.err) == (0, "")
    assert "Measure:" in ended.out
    assert tollbar("--help").out == tollbar("help").out == ended.out


@pytest.mark.parametrize("noun", [noun.name for noun in NOUNS if noun.name != "help"])
def test_a_noun_without_a_verb_is_a_mistake(tollbar: Callable[..., Ended], noun: str) -> None:
    ended = tollbar(noun)
    assert (ended.code, ended.out) == (2, "")
    for verb in next(one for one in NOUNS if one.name == noun).verbs:
        assert f"  {verb}: " in ended.err


@pytest.mark.parametrize("words", [*VERBS, *[(command.name,) for command in COMMANDS]])
def test_a_wrong_option_exits_2_and_names_the_help(tollbar: Callable[..., Ended], words: tuple[str, ...]) -> None:
    ended = tollbar(*words, *NEEDS_ID.get(words, ["./x"] if words[-1] in {"push", "submit"} else []), "--wrong-option")
    assert (ended.code, ended.out) == (2, "")
    assert "--wrong-option" in ended.err
    assert f"see: tollbar {' '.join(words)} --help" in ended.err


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [(["jbos", "list"], "jobs"), (["jobs", "lst"], "list"), (["jobs", "list", "--statsu", "x"], "--status")],
)
def test_a_typo_suggests_the_nearest_word(tollbar: Callable[..., Ended], line: list[str], suggestion: str) -> None:
    ended = tollbar(*line)
    assert ended.code == 2
    assert f"Did you mean {suggestion}?" in ended.err.replace('"', "")


def test_a_usage_error_with_json_is_an_object_on_stdout(tollbar: Callable[..., Ended]) -> None:
    for line in (["jobs", "list", "--json", "--wrong"], ["--json", "jobs", "lst"], ["jobs", "x", "--output", "json"]):
        ended = tollbar(*line)
        assert (ended.code, ended.json["code"]) == (2, "USAGE")


@pytest.mark.parametrize("words", ONLINE)
def test_without_a_key_a_command_exits_4(
    tollbar: Callable[..., Ended], server: StandIn, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    line = [*words, *NEEDS_ID.get(words, [])]
    monkeypatch.setenv("TOLLBAR_URL", server.url)
    assert tollbar(*line).code == 4, "no key at all"
    assert server.asked == []
    monkeypatch.setenv("TOLLBAR_API_KEY", "wrong")
    refused = tollbar(*line, "--json")
    assert (refused.code, refused.json["code"]) == (4, "UNAUTHENTICATED")


@pytest.mark.parametrize(("words", "line"), list(NEEDS_ID.items()))
def test_an_unknown_id_exits_3_with_the_servers_error_object(
    tollbar: Callable[..., Ended], signed_in: StandIn, words: tuple[str, ...], line: list[str]
) -> None:
    ended = tollbar(*words, *line, "--json")
    assert (ended.code, ended.json["code"]) == (3, "NOT_FOUND")
    plain = tollbar(*words, *line)
    assert (plain.code, plain.out) == (3, "")
    assert plain.err.startswith("error: ")


def test_a_read_only_key_on_a_write_exits_5_and_names_the_capability(
    tollbar: Callable[..., Ended], signed_in: StandIn
) -> None:
    refusal: Any = {
        "code": "ACCESS_DENIED",
        "message": "This key may not stop Jobs.",
        "missing_capability": "jobs.stop",
    }
    signed_in.on("POST /v1/job/job_x/stop", Answer(403, refusal))
    ended = tollbar("jobs", "stop", "job_x")
    assert ended.code == 5
    assert "jobs.stop" in ended.err
    assert tollbar("jobs", "stop", "job_x", "--json").json == refusal


@pytest.mark.parametrize(
    ("line", "arranged"),
    [
        (["--json", "jobs", "list"], ["jobs", "list", "--json"]),
        (["--url", "http://x", "--quiet", "jobs", "list", "--tag", "a"],
         ["jobs", "list", "--tag", "a", "--url", "http://x", "--quiet"]),
        (["--output=json", "jobs", "show", "--", "-x"], ["jobs", "show", "--output=json", "--", "-x"]),
        (["help", "jobs", "list"], ["jobs", "list", "--help"]),
        (["help"], ["--help"]),
        (["help", "exit-codes"], ["help", "exit-codes"]),
        (["up", "--json"], ["up", "--json"]),
        (["--json"], ["--json"]),
        ([], []),
    ],
)  # fmt: skip
def test_global_options_may_stand_before_the_command(line: list[str], arranged: list[str]) -> None:
    assert arrange(line) == arranged
