"""The scripted provider: one script, the same turns and the same price in every dialect, streamed and plain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.gateway.cases import AT, UNTIL
from tests.gateway.scripts import extract, play, request, script_text, settled

from tollbar.gateway.asks import read
from tollbar.gateway.bound import quote
from tollbar.gateway.dialects import Dialect, Operation, Route
from tollbar.gateway.errors import Code, InvalidScript, Refused, Unmetered
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.scripted import Facts, Scripted, count, load, price_row
from tollbar.gateway.sse import Reader
from tollbar.gateway.traits import Kind, Traits

CHAT, RESPONSES, MESSAGES, GEMINI = Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES, Dialect.GEMINI
WITH_CACHE = 'text = "hi ü"\nshell = "ls"\nusage = { input = 1000, cached = 400, output = 50, reasoning = 10 }\n'
WORKED = '[[case.turn]]\nshell = "ls"\nusage = { input = 1000, cached = 400, cache_write = 500, output = 50 }\n'
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
EVERY = pytest.mark.parametrize("dialect", Dialect)


@pytest.mark.requirement("G-GW-GL3", "G-GW-GL9")
@EVERY
def test_streamed_and_plain_answers_have_the_same_usage_and_cost(book: PriceBook, dialect: Dialect) -> None:
    script = load(script_text(f"[[case.turn]]\n{WITH_CACHE}"))
    plain = settled(book, script, dialect, play(script, dialect, request(dialect)), stream=False)
    answer = play(script, dialect, request(dialect, stream=True), stream=True)
    streamed = settled(book, script, dialect, answer, stream=True)
    assert plain == streamed
    assert plain.cost_pusd == 600 * 3_000_000 + 400 * 300_000 + 50 * 15_000_000


@pytest.mark.requirement("G-GW-GL3", "G-GW-GL9")
@BOTH
@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-5", "openai:gpt-5-mini", "google:gemini-2.5-pro"])
def test_the_same_script_costs_the_same_in_all_dialects(book: PriceBook, model: str, stream: bool) -> None:
    script = load(script_text(f"[[case.turn]]\n{WITH_CACHE}", priced_as=model))
    costs = {
        settled(
            book, script, dialect, play(script, dialect, request(dialect, stream=stream), stream=stream), stream=stream
        ).cost_pusd
        for dialect in Dialect
    }
    assert len(costs) == 1
    assert costs != {0}


@BOTH
@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES])
def test_the_worked_turns_cost_what_the_guide_says(book: PriceBook, dialect: Dialect, stream: bool) -> None:
    script = load(script_text(WORKED + WORKED))
    costs = [
        settled(
            book,
            script,
            dialect,
            play(script, dialect, request(dialect, stream=stream, turns=turn), stream=stream),
            stream=stream,
        ).cost_pusd
        for turn in range(2)
    ]
    assert costs == [3_045_000_000, 3_045_000_000]


def _plain(dialect: Dialect, scripted: Scripted) -> tuple[str, list[tuple[str, Any]], str]:
    """Returns the text, the calls and the stop reason of a plain answer."""
    body = json.loads(scripted.body)
    if dialect is CHAT:
        choice = body["choices"][0]
        calls = [call["function"] for call in choice["message"].get("tool_calls", [])]
        return (
            choice["message"]["content"] or "",
            [(c["name"], json.loads(c["arguments"])) for c in calls],
            choice["finish_reason"],
        )
    if dialect is RESPONSES:
        texts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
        calls = [item for item in body["output"] if item["type"] == "function_call"]
        return "".join(texts), [(c["name"], json.loads(c["arguments"])) for c in calls], body["status"]
    if dialect is MESSAGES:
        texts = [block["text"] for block in body["content"] if block["type"] == "text"]
        calls = [block for block in body["content"] if block["type"] == "tool_use"]
        return "".join(texts), [(c["name"], c["input"]) for c in calls], body["stop_reason"]
    candidate = body["candidates"][0]
    texts = [part["text"] for part in candidate["content"]["parts"] if "text" in part]
    calls = [part["functionCall"] for part in candidate["content"]["parts"] if "functionCall" in part]
    return "".join(texts), [(c["name"], c["args"]) for c in calls], candidate["finishReason"]


def _streamed(dialect: Dialect, scripted: Scripted) -> tuple[str, list[tuple[str, Any]]]:
    """Returns the text and the calls that a client puts together from a stream."""
    events = [json.loads(e.data) for e in Reader().feed(scripted.body) if e.data != b"[DONE]"]
    if dialect is CHAT:
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
        return "".join(d.get("content") or "" for d in deltas), [(c["name"], json.loads(c["arguments"])) for c in calls]
    if dialect is RESPONSES:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        items = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        calls = [item for item in items if item["type"] == "function_call"]
        assert items == events[-1]["response"]["output"]
        return text, [(c["name"], json.loads(c["arguments"])) for c in calls]
    if dialect is MESSAGES:
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
        starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
        args = "".join(d["partial_json"] for d in deltas if d["type"] == "input_json_delta")
        names = [block["name"] for block in starts if block["type"] == "tool_use"]
        return "".join(d["text"] for d in deltas if d["type"] == "text_delta"), [(n, json.loads(args)) for n in names]
    parts = [part for e in events for part in e["candidates"][0]["content"]["parts"]]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    return "".join(part.get("text", "") for part in parts), [(c["name"], c["args"]) for c in calls]


STOPS = {CHAT: "tool_calls", RESPONSES: "completed", MESSAGES: "tool_use", GEMINI: "STOP"}


@EVERY
def test_a_turn_says_its_text_and_makes_its_call_in_every_form(dialect: Dialect) -> None:
    script = load(script_text('[[case.turn]]\ntext = "I write — ü 😀 — a file."\nshell = "ls -l"\nchunk_chars = 3\n'))
    expected = ("I write — ü 😀 — a file.", [("bash", {"command": "ls -l"})])
    assert _plain(dialect, play(script, dialect, request(dialect))) == (*expected, STOPS[dialect])
    assert _streamed(dialect, play(script, dialect, request(dialect, stream=True), stream=True)) == expected


@EVERY
def test_the_turn_follows_from_the_history_and_a_retry_gives_the_same(dialect: Dialect) -> None:
    script = load(script_text("".join(f'[[case.turn]]\ntext = "turn {n}"\n' for n in range(3))))
    for turn in range(3):
        first = play(script, dialect, request(dialect, turns=turn))
        assert _plain(dialect, first)[0] == f"turn {turn}"
        assert play(script, dialect, request(dialect, turns=turn)).body == first.body
    assert _plain(dialect, play(script, dialect, request(dialect, turns=3)))[0] == "(end of script)"


def test_past_the_end_a_script_may_refuse() -> None:
    script = load(script_text('on_end = "error"\n[[case.turn]]\ntext = "only"\n'))
    with pytest.raises(Refused) as refused:
        play(script, CHAT, request(CHAT, turns=1))
    assert refused.value.code is Code.SCRIPT_EXHAUSTED


MATCHES = [
    ('match = { task = "tests/hello-*" }', Facts(task="tests/hello-world"), Facts(task="other")),
    ('match = { task = "a/b@1*" }', Facts(task="x", task_ref="a/b@1#t"), Facts(task="x")),
    (
        'match = { dataset = "demo/*", adapter = "c*" }',
        Facts(dataset="demo/x", adapter="codex"),
        Facts(dataset="demo/x"),
    ),
    ("match = { attempt = 2 }", Facts(attempt=2), Facts(attempt=1)),
    ("match = { attempt = [1, 3] }", Facts(attempt=3), Facts(attempt=2)),
    ('match = { attempt = "1-2" }', Facts(attempt=2), Facts(attempt=3)),
    ("match = { attempt = 1 }", Facts(attempt=1), Facts()),
    (
        'match = { team = "outreach", agent_key = "lead" }',
        Facts(team="outreach", agent_key="lead"),
        Facts(team="outreach"),
    ),
    ('match = { profile = "p", purpose = "verifier" }', Facts(profile="p", purpose="verifier"), Facts(profile="p")),
]


@pytest.mark.parametrize(("match", "fits", "misses"), MATCHES)
def test_a_case_fits_by_what_the_key_says(match: str, fits: Facts, misses: Facts) -> None:
    script = load(script_text(f'{match}\n[[case.turn]]\ntext = "x"\n'))
    assert play(script, CHAT, request(CHAT), facts=fits).status == 200
    with pytest.raises(Refused) as refused:
        play(script, CHAT, request(CHAT), facts=misses)
    assert refused.value.code is Code.SCRIPT_NO_MATCH


@EVERY
def test_a_case_fits_by_the_last_words_of_the_user(dialect: Dialect) -> None:
    script = load(script_text('match = { contains = "do it" }\n[[case.turn]]\ntext = "x"\n'))
    assert play(script, dialect, request(dialect, turns=1)).status == 200
    other = load(script_text('match = { contains = "never said" }\n[[case.turn]]\ntext = "x"\n'))
    with pytest.raises(Refused):
        play(other, dialect, request(dialect))


@EVERY
def test_a_request_without_tools_gets_the_side_answer_but_an_agent_of_a_team_its_case(dialect: Dialect) -> None:
    script = load(script_text('[[case.turn]]\ntext = "case"\n[[side]]\ntext = "side"\n'))
    bare = request(dialect, tool=None)
    assert _plain(dialect, play(script, dialect, bare))[0] == "side"
    assert _plain(dialect, play(script, dialect, bare, facts=Facts(team="t", agent_key="lead")))[0] == "case"
    assert _plain(dialect, play(script, dialect, request(dialect)))[0] == "case"


@pytest.mark.parametrize(
    ("tool", "schema", "expected"),
    [
        ("Bash", {"properties": {"command": {"type": "string"}}}, {"command": "ls"}),
        ("shell", {"properties": {"command": {"type": "array"}}}, {"command": ["bash", "-lc", "ls"]}),
        ("exec_command", {"properties": {"cmd": {"type": "string"}}}, {"cmd": "ls"}),
        ("terminal", {}, {"command": "ls"}),
        (
            "run_shell_command",
            {
                "properties": {
                    "command": {"type": ["string", "null"]},
                    "description": {"type": "string"},
                    "timeout": {"type": "integer"},
                    "mode": {"enum": ["fast", "slow"]},
                    "env": {"type": "OBJECT"},
                    "optional": {"type": "string"},
                },
                "required": ["command", "description", "timeout", "mode", "env"],
            },
            {"command": "ls", "description": "", "timeout": 0, "mode": "fast", "env": {}},
        ),
    ],
)
def test_a_shell_command_becomes_the_call_that_the_agent_offers(tool: str, schema: Any, expected: Any) -> None:
    script = load(script_text('[[case.turn]]\nshell = "ls"\n'))
    other = {"name": "read_file", "input_schema": {}}
    body = request(MESSAGES) | {"tools": [other, {"name": tool, "input_schema": schema}]}
    assert _plain(MESSAGES, play(script, MESSAGES, body))[1] == [(tool, expected)]


def test_the_built_in_and_free_text_tools_of_responses_are_called_in_their_form() -> None:
    script = load(script_text('[[case.turn]]\nshell = "ls"\n'))
    body = request(RESPONSES) | {"tools": [{"type": "local_shell"}]}
    item = json.loads(play(script, RESPONSES, body).body)["output"][0]
    assert (item["type"], item["action"]["command"]) == ("local_shell_call", ["bash", "-lc", "ls"])
    free = request(RESPONSES) | {"tools": [{"type": "custom", "name": "shell"}]}
    item = json.loads(play(script, RESPONSES, free).body)["output"][0]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "shell", "ls")
    inner = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "shell"}]}
    item = json.loads(play(script, RESPONSES, request(RESPONSES) | {"tools": [inner]}).body)["output"][0]
    assert (item["name"], item["namespace"]) == ("shell", "ns")


@pytest.mark.parametrize("turn", ['shell = "ls"', 'calls = [ { tool = "other", args = {} } ]'])
def test_a_tool_that_is_not_offered_is_refused(turn: str) -> None:
    script = load(script_text(f"[[case.turn]]\n{turn}\n"))
    with pytest.raises(Refused) as refused:
        play(script, CHAT, request(CHAT, tool="read"))
    assert refused.value.code is Code.SCRIPT_TOOL_MISSING


def test_a_named_call_has_exactly_its_arguments_and_finish_says_done() -> None:
    call = '[[case.turn]]\ncalls = [ { tool = "bash", args = { command = "x", n = [1] } } ]\n'
    script = load(script_text(call + "[[case.turn]]\nfinish = true\n"))
    assert _plain(CHAT, play(script, CHAT, request(CHAT)))[1] == [("bash", {"command": "x", "n": [1]})]
    assert _plain(CHAT, play(script, CHAT, request(CHAT, turns=1)))[:2] == ("Done.", [])
    mini = play(script, CHAT, request(CHAT, turns=1), facts=Facts(adapter="mini-swe-agent"))
    assert _plain(CHAT, mini)[1] == [("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})]


LIMITS = {
    CHAT: {"max_completion_tokens": 5},
    RESPONSES: {"max_output_tokens": 5},
    MESSAGES: {"max_tokens": 5},
    GEMINI: {"generationConfig": {"maxOutputTokens": 5}},
}


@BOTH
@EVERY
def test_the_output_limit_is_obeyed(book: PriceBook, dialect: Dialect, stream: bool) -> None:
    script = load(script_text(f'[[case.turn]]\ntext = "{"long " * 50}"\n'))
    scripted = play(script, dialect, request(dialect, stream=stream, **LIMITS[dialect]), stream=stream)
    final = extract(dialect, scripted.body, stream=stream).final()
    assert final is not None
    assert final.truncated
    assert settled(book, script, dialect, scripted, stream=stream).counts["output_tokens"] == 5
    if not stream:
        assert _plain(dialect, scripted)[0] == ("long " * 50)[:20]


def test_usage_follows_the_scripts_rule_where_a_turn_gives_none(book: PriceBook) -> None:
    script = load(script_text('[[case.turn]]\ntext = "12345"\n', head='[usage]\ninput = "bytes/2"\ncached = 0.5\n'))
    body = request(MESSAGES)
    counts = settled(book, script, MESSAGES, play(script, MESSAGES, body), stream=False).counts
    size = len(json.dumps(body))
    assert counts["input_tokens"] == -(-size // 2)
    assert counts["cache_read_tokens"] == counts["input_tokens"] // 2
    assert counts["output_tokens"] == 2


def test_several_candidates_are_all_billed() -> None:
    script = load(script_text('[[case.turn]]\ntext = "x"\nusage = { input = 10, output = 7 }\n'))
    for stream in (False, True):
        scripted = play(script, CHAT, request(CHAT, stream=stream, n=3))
        final = extract(CHAT, scripted.body, stream=stream, candidates=3).final()
        assert final is not None
        assert final.document["usage"]["completion_tokens"] == 21


@pytest.mark.parametrize(("stop", "expected"), [("refusal", ("content_filter", "incomplete", "refusal", "SAFETY"))])
def test_a_turn_may_stop_for_a_refusal(stop: str, expected: tuple[str, ...]) -> None:
    script = load(script_text(f'[[case.turn]]\ntext = "no"\nstop = "{stop}"\n'))
    assert tuple(_plain(dialect, play(script, dialect, request(dialect)))[2] for dialect in Dialect) == expected


@EVERY
@pytest.mark.parametrize(
    ("fault", "stream"),
    [("no_usage", False), ("no_usage", True), ("bad_json", False), ("bad_json", True), ("no_terminal", True)],
)
def test_faults_that_lose_the_usage_leave_none_to_read(
    book: PriceBook, dialect: Dialect, fault: str, stream: bool
) -> None:
    script = load(script_text(f'[[case.turn]]\ntext = "x"\nfault = {{ {fault} = true }}\n'))
    scripted = play(script, dialect, request(dialect, stream=stream), stream=stream)
    with pytest.raises(Unmetered):
        settled(book, script, dialect, scripted, stream=stream)


@EVERY
def test_a_fault_can_bill_above_the_bound(book: PriceBook, dialect: Dialect) -> None:
    script = load(script_text('[[case.turn]]\ntext = "x"\nfault = { usage_over = true }\n'))
    body = request(dialect, **LIMITS[dialect])
    route = Route(dialect, Operation.GENERATE, script.model, False)
    traits = Traits(Kind.SCRIPTED, script.provider)
    quoted = quote(read(route, body, len(json.dumps(body))), book, traits, AT, UNTIL)
    cost = settled(book, script, dialect, play(script, dialect, body), stream=False).cost_pusd
    assert cost > quoted.worst(quoted.asked)


def test_faults_of_the_connection_are_data_for_the_sender() -> None:
    def faulty(fault: str) -> Scripted:
        return play(
            load(script_text(f'[[case.turn]]\ntext = "x"\nfault = {{ {fault} }}\n')), MESSAGES, request(MESSAGES)
        )

    assert faulty("reset_after_bytes = 100").reset_after_bytes == 100
    assert faulty("stall_s = 400").stall_s == 400
    overloaded = faulty("status = 529")
    assert (overloaded.status, json.loads(overloaded.body)["error"]["type"]) == (529, "overloaded_error")


def test_the_free_counters_answer_in_their_dialects_words() -> None:
    assert json.loads(count(MESSAGES, 101).body) == {"input_tokens": 26}
    assert json.loads(count(GEMINI, 101).body) == {"totalTokens": 26}


WRONG = [
    ('[[case.turn]]\ntext = "x"\nvoice = 1\n', "case[0].turn[0].voice"),
    ("[[case.turn]]\ntext = 5\n", "case[0].turn[0].text"),
    ('match = { job = "x" }\n[[case.turn]]\n', "case[0].match.job"),
    ('match = { attempt = "x" }\n[[case.turn]]\n', "case[0].match.attempt"),
    ("match = {}\n", "case[0].turn"),
    ('[[case.turn]]\nfinish = true\nshell = "ls"\n', "case[0].turn[0].finish"),
    ("[[case.turn]]\nusage = { input = 1, cached = 2 }\n", "case[0].turn[0].usage.input"),
    ("[[case.turn]]\nusage = { output = 1, reasoning = 2 }\n", "case[0].turn[0].usage.output"),
    ("[[case.turn]]\nusage = { tokens = 2 }\n", "case[0].turn[0].usage.tokens"),
    ("[[case.turn]]\nfault = { status = 200 }\n", "case[0].turn[0].fault.status"),
    ("[[case.turn]]\nfault = { status = 500, no_usage = true }\n", "case[0].turn[0].fault"),
    ("[[case.turn]]\nfault = { smoke = true }\n", "case[0].turn[0].fault.smoke"),
    ('[[case.turn]]\nstop = "tool"\n', "case[0].turn[0].stop"),
    ('on_end = "loop"\n[[case.turn]]\n', "case[0].on_end"),
    ("[[case.turn]]\nchunk_chars = 0\n", "case[0].turn[0].chunk_chars"),
    ('[[case.turn]]\ncalls = [ { tool = "x", args = { at = 2026-01-01 } } ]\n', "case[0].turn[0].calls[0].args"),
    ("[[case.turn]\n", "the file"),
]


@pytest.mark.parametrize(("turns", "place"), WRONG)
def test_a_wrong_script_is_refused_by_table_and_key(turns: str, place: str) -> None:
    with pytest.raises(InvalidScript) as refused:
        load(script_text(turns))
    assert refused.value.message.startswith(f"The script cannot be used: {place} ")


@pytest.mark.parametrize("head", ['[usage]\ninput = "words"\n', "[usage]\ncached = 2\n", 'colour = "red"\n'])
def test_a_wrong_head_is_refused(head: str) -> None:
    with pytest.raises(InvalidScript):
        load(script_text('[[case.turn]]\ntext = "x"\n', head=head))
    with pytest.raises(InvalidScript):
        load(script_text('[[case.turn]]\ntext = "x"\n', priced_as="claude"))


def test_a_script_is_charged_at_a_row_that_has_both_rates(book: PriceBook) -> None:
    turn = '[[case.turn]]\ntext = "x"\n'
    assert price_row(load(script_text(turn)), book, AT).model == "claude-sonnet-4-5"
    for unpriced in ("openai:gpt-99", "openai:whisper-1"):
        with pytest.raises(InvalidScript):
            price_row(load(script_text(turn, priced_as=unpriced)), book, AT)
