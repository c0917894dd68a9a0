"""Every row of the table of reward files: one Job whose verifiers write them, in real sandboxes, on a real server."""

from __future__ import annotations

import math
import re
from typing import Final

import pytest

from tests.e2e.conftest import Running
from tests.e2e.tasks import Ended, run_folder, toml, write_task

LOGS: Final = "/logs/verifier"
WEIGHTS: Final = '[metadata.tollbar.weights]\nc = "3"\ns = "1"'


def txt(octal: str) -> str:
    return f"printf -- '{octal}' > {LOGS}/reward.txt"


def as_json(octal: str) -> str:
    return f"printf '{octal}' > {LOGS}/reward.json"


ONE_IN_JSON: Final = as_json('{"reward": 1}')
NUMBERS: Final = {
    "plain": (txt("1"), 1.0),
    "padded": (txt(r" 1 \r\n"), 1.0),
    "signed": (txt("+1"), 1.0),
    "exponent": (txt("1e0"), 1.0),
    "no-lead": (txt(".5"), 0.5),
    "no-tail": (txt("5."), 5.0),
    "negative": (txt("-3.5"), -3.5),
    "negative-json": (as_json('{"reward": -3.5}'), -3.5),
    "minus-zero": (txt("-0"), 0.0),
    "minus-zero-json": (as_json('{"reward": -0.0}'), 0.0),
    "largest-file": (f"printf '%65536s' 1 > {LOGS}/reward.txt", 1.0),
    "single-member": (as_json('{"accuracy": 0.5}'), 0.5),
    "link-json": (f"ln -s /etc/passwd {LOGS}/reward.json; {txt('1')}", 1.0),
    "folder-json": (f"mkdir {LOGS}/reward.json; {txt('1')}", 1.0),
    "same-twice": (f"{txt('1')}; {ONE_IN_JSON}", 1.0),
}

REFUSED: Final = {
    "underscore": (txt("1_0"), "REWARD_INVALID", "not_a_number"),
    "full-width": (txt(r"\357\274\221"), "REWARD_INVALID", "not_a_number"),
    "no-break-space": (txt(r"\302\2401"), "REWARD_INVALID", "not_a_number"),
    "unit": (txt("0.5 pts"), "REWARD_INVALID", "not_a_number"),
    "comma": (txt("1,0"), "REWARD_INVALID", "not_a_number"),
    "true": (txt("true"), "REWARD_INVALID", "not_a_number"),
    "hexadecimal": (txt("0x1"), "REWARD_INVALID", "not_a_number"),
    "two-lines": (txt(r"1\n0\n"), "REWARD_INVALID", "not_a_number"),
    "nul": (txt(r"1\000"), "REWARD_INVALID", "not_a_number"),
    "nan": (txt("nan"), "REWARD_INVALID", "not_finite"),
    "infinity": (txt("Infinity"), "REWARD_INVALID", "not_finite"),
    "overflow": (txt("1e309"), "REWARD_INVALID", "not_finite"),
    "bom": (txt(r"\357\273\2771"), "REWARD_INVALID", "bom"),
    "bom-json": (as_json(r'\357\273\277{"reward": 1}'), "REWARD_INVALID", "bom"),
    "encoding": (txt(r"\377\3761\000"), "REWARD_INVALID", "encoding"),
    "encoding-json": (as_json(r'{"reward\377": 1}'), "REWARD_INVALID", "encoding"),
    "zero-bytes": (f": > {LOGS}/reward.txt", "REWARD_MISSING", "empty"),
    "zero-bytes-json": (f": > {LOGS}/reward.json; {txt('1')}", "REWARD_MISSING", "empty"),
    "white-space": (txt(r" \n\t "), "REWARD_MISSING", "empty"),
    "white-space-json": (as_json(r" \n\t "), "REWARD_MISSING", "empty"),
    "no-file": (":", "REWARD_MISSING", "absent"),
    "link": (f"echo 1 > /tmp/r; ln -s /tmp/r {LOGS}/reward.txt; test -L {LOGS}/reward.txt", "REWARD_MISSING", "absent"),
    "fifo": (f"mkfifo {LOGS}/reward.txt {LOGS}/reward.json; test -p {LOGS}/reward.txt", "REWARD_MISSING", "absent"),
    "socket": (
        f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{LOGS}/reward.txt\")'",
        "REWARD_MISSING",
        "absent",
    ),
    "device": (f"mknod {LOGS}/reward.txt c 1 5; mknod {LOGS}/reward.json c 0 0; :", "REWARD_MISSING", "absent"),
    "boolean": (as_json('{"reward": true}'), "REWARD_INVALID", "not_a_number"),
    "duplicate": (as_json('{"reward": 0, "reward": 1}'), "REWARD_INVALID", "duplicate_key"),
    "no-keys": (as_json("{}"), "REWARD_INVALID", "no_keys"),
    "bare-number": (as_json("0.5"), "REWARD_INVALID", "not_an_object"),
    "empty-list": (as_json("[]"), "REWARD_INVALID", "not_an_object"),
    "list": (as_json("[1]"), "REWARD_INVALID", "not_an_object"),
    "null": (as_json("null"), "REWARD_INVALID", "not_an_object"),
    "string": (as_json('"1"'), "REWARD_INVALID", "not_an_object"),
    "value-object": (as_json('{"reward": {"a": 1}}'), "REWARD_INVALID", "not_a_number"),
    "value-list": (as_json('{"reward": [1]}'), "REWARD_INVALID", "not_a_number"),
    "value-null": (as_json('{"reward": null}'), "REWARD_INVALID", "not_a_number"),
    "value-string": (as_json('{"reward": "1"}'), "REWARD_INVALID", "not_a_number"),
    "value-nan": (as_json('{"reward": NaN}'), "REWARD_INVALID", "not_finite"),
    "value-infinity": (as_json('{"reward": Infinity}'), "REWARD_INVALID", "not_finite"),
    "value-overflow": (as_json('{"reward": 1e309}'), "REWARD_INVALID", "not_finite"),
    "trailing-comma": (as_json('{"reward": 1,}'), "REWARD_INVALID", "syntax"),
    "two-documents": (as_json('{"reward": 1} {"reward": 0}'), "REWARD_INVALID", "syntax"),
    "text-after": (as_json('{"reward": 1} ok'), "REWARD_INVALID", "syntax"),
    "single-quotes": (as_json(r"{\047reward\047: 1}"), "REWARD_INVALID", "syntax"),
    "empty-name": (as_json('{"": 1}'), "REWARD_INVALID", "bad_key"),
    "nul-in-name": (as_json(r'{"a\\u0000b": 1}'), "REWARD_INVALID", "bad_key"),
    "1e308": (as_json('{"reward": 1e308}'), "REWARD_INVALID", "out_of_range"),
    "thirty-digits": (as_json('{"reward": 123456789012345678901234567890}'), "REWARD_INVALID", "out_of_range"),
    "too-large": (f"printf '%65537s' 1 > {LOGS}/reward.txt", "REWARD_TOO_LARGE", "size"),
    "too-large-json": (f"printf '{{\"reward\": %65537s}}' 1 > {LOGS}/reward.json", "REWARD_TOO_LARGE", "size"),
    "json-decides": (f"{txt('1')}; {as_json('{}')}", "REWARD_INVALID", "no_keys"),
    "unavailable": ("exit 75", "VERIFIER_FAILED", "unavailable"),
}  # fmt: skip

SPECIAL: Final = {
    "weighted": {"tests/test.sh": as_json('{"c": 1, "s": 0.5}'), "task.toml": toml(more=WEIGHTS)},
    "lacking": {"tests/test.sh": as_json('{"c": 1, "x": 0}'), "task.toml": toml(more=WEIGHTS)},
    "lacking-with-reward": {"tests/test.sh": as_json('{"reward": 1, "c": 1}'), "task.toml": toml(more=WEIGHTS)},
    "threshold": {
        "tests/test.sh": txt("0.5"),
        "task.toml": toml(more='[metadata.tollbar]\npass_threshold = "0.5"'),
    },
    "both-differ": {"tests/test.sh": f"{txt('0')}; {ONE_IN_JSON}"},
    "exit-after": {"tests/test.sh": f"{txt('1')}; exit 7"},
    "bad-details": {"tests/test.sh": f"{txt('1')}; printf '{{' > {LOGS}/reward-details.json"},
    "long-details": {
        "tests/test.sh": f"{txt('1')}; printf '\"%262144s\"' x > {LOGS}/reward-details.json",
    },
    "agent-slow": {"solution/solve.sh": "#!/bin/sh\nsleep 60\n", "task.toml": toml(agent_s=1)},
    "agent-exit": {"solution/solve.sh": "#!/bin/sh\nexit 3\n"},
    "verifier-slow": {"tests/test.sh": f"{txt('1')}; sleep 60", "task.toml": toml(verifier_s=1)},
    "not-written": {"task.toml": toml(top='artifacts = ["/app/report.txt"]')},
    "rewriting-agent": {
        "solution/solve.sh": f'#!/bin/sh\nmkdir -p {LOGS}\nsetsid nohup sh -c \'trap "" TERM HUP; while :; do '
        f"echo 1 > {LOGS}/reward.txt; sleep 0.01; done' > /dev/null 2>&1 &\nsleep 0.2\n",
        "tests/test.sh": f"{txt('0')}; sleep 1",
    },
    "rewriting-verifier": {
        "tests/test.sh": f'{txt("0")}; setsid nohup sh -c \'trap "" TERM HUP; sleep 0.3; while :; do '
        f"echo 1 > {LOGS}/reward.txt; done' > /dev/null 2>&1 &",
    },
    "loud-bytes": {"tests/test.sh": f"head -c 300000 /dev/urandom; {txt('1')}"},
    "loud-text": {"tests/test.sh": f"yes 'line of text' | head -c 60000000; {txt('1')}"},
}


@pytest.fixture(scope="module")
def ended(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One Job with a task for each row."""
    root = tmp_path_factory.mktemp("rows")
    for name, row in (*NUMBERS.items(), *REFUSED.items()):
        write_task(root, name, {"tests/test.sh": f"#!/bin/sh\n{row[0]}\n"})
    for name, files in SPECIAL.items():
        script = files.get("tests/test.sh", txt("1"))
        write_task(root, name, {**files, "tests/test.sh": f"#!/bin/sh\n{script}\n"})
    return run_folder(server, root)


@pytest.mark.requirement("G-EVAL-9.txt_plain", "G-EVAL-9.negative", "G-EVAL-9.minus_zero", "G-EVAL-9.single_member")
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_the_reward(ended: Ended, name: str) -> None:
    trial, wanted = ended.trials[name], NUMBERS[name][1]
    assert (trial["status"], trial["reward"], trial["reason"]) == ("succeeded", wanted, None)
    assert math.copysign(1, trial["reward"]) == math.copysign(1, wanted)
    assert trial["flags"] == []


@pytest.mark.requirement(
    "G-EVAL-9.txt_underscore", "G-EVAL-9.txt_unicode", "G-EVAL-9.txt_words", "G-EVAL-9.txt_not_finite", "G-EVAL-9.bom",
    "G-EVAL-9.encoding", "G-EVAL-9.zero_bytes", "G-EVAL-9.white_space", "G-EVAL-9.no_file", "G-EVAL-9.symlink",
    "G-EVAL-9.special_file", "G-EVAL-9.json_boolean", "G-EVAL-9.json_duplicate", "G-EVAL-9.json_no_keys",
    "G-EVAL-9.json_number", "G-EVAL-9.json_other", "G-EVAL-9.json_nested", "G-EVAL-9.json_not_finite",
    "G-EVAL-9.json_syntax", "G-EVAL-9.json_bad_key", "G-EVAL-9.json_out_of_range", "G-EVAL-9.too_large",
    "G-EVAL-9.no_fall_back", "G-EVAL-18.5", "G-EVAL-18.6", "G-EVAL-18.8", "G-EVAL-21.5",
)  # fmt: skip
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_reward_is_a_reason_with_its_word_and_never_a_number(ended: Ended, name: str) -> None:
    trial = ended.trials[name]
    assert (trial["status"], trial["reward"], trial["pass"]) == ("failed", None, None)
    assert (trial["reason"], trial["reason_detail"]) == REFUSED[name][1:]
    assert trial["verifier"]["exit_code"] == (75 if name == "unavailable" else 0), "the script could do what it says"


@pytest.mark.requirement("G-EVAL-18.8", "G-EVAL-18.9")
def test_a_score_is_the_mean_of_what_was_scored_and_stands_beside_its_coverage(ended: Ended) -> None:
    rewards = [trial["reward"] for trial in ended.trials.values() if trial["reward"] is not None]
    assert ended.job["score"] == pytest.approx(math.fsum(rewards) / len(rewards), abs=1e-6)
    assert (ended.job["n_scored"], ended.job["n_total"]) == (len(rewards), len(ended.trials))
    assert len(ended.trials) == len(NUMBERS) + len(REFUSED) + len(SPECIAL)
    assert len(rewards) < len(ended.trials)


@pytest.mark.requirement("G-EVAL-18.14")
def test_one_threshold_says_what_passes_in_a_trial_and_in_both_measures(ended: Ended) -> None:
    low, own = ended.trials["no-lead"], ended.trials["threshold"]
    assert (low["reward"], low["pass"], own["reward"], own["pass"]) == (0.5, False, 0.5, True)
    passed = [trial["pass"] for trial in ended.trials.values() if trial["reward"] is not None]
    rate = round(sum(passed) / len(passed), 6)
    assert ended.job["pass"] == ended.job["pass@k"]["1"] == ended.job["pass^k"]["1"] == rate


@pytest.mark.requirement("G-EVAL-9.weights", "G-EVAL-9.missing_dimension")
def test_declared_weights_make_the_composite_and_a_dimension_that_is_missing_makes_none(ended: Ended) -> None:
    whole, lacking, beside = (ended.trials[name] for name in ("weighted", "lacking", "lacking-with-reward"))
    assert (whole["reward"], whole["structured_result"]["composite"]) == (0.875, 0.875)
    assert whole["structured_result"]["dimensions"] == {"c": 1.0, "s": 0.5}
    assert (lacking["reward"], lacking["reason"], lacking["reason_detail"]) == (
        None,
        "REWARD_INVALID",
        "missing_dimension",
    )
    assert (beside["reward"], beside["structured_result"]["composite"]) == (1.0, None)


@pytest.mark.requirement("G-EVAL-9.both_files", "G-EVAL-18.4")
def test_of_two_files_that_differ_json_counts_and_the_trial_is_flagged(ended: Ended) -> None:
    assert (ended.trials["both-differ"]["reward"], ended.trials["both-differ"]["flags"]) == (
        1.0,
        ["reward_files_differ"],
    )


@pytest.mark.requirement("G-EVAL-9.exit_after", "G-EVAL-18.39")
def test_a_script_that_exits_7_after_a_reward_keeps_it_and_is_flagged(ended: Ended) -> None:
    trial = ended.trials["exit-after"]
    assert (trial["reward"], trial["verifier"]["exit_code"]) == (1.0, 7)
    assert trial["flags"] == ["verifier_exit_nonzero"]


@pytest.mark.requirement("G-EVAL-9.details")
@pytest.mark.parametrize("name", ["bad-details", "long-details"])
def test_details_that_cannot_be_read_never_touch_the_reward(ended: Ended, name: str) -> None:
    assert (ended.trials[name]["reward"], ended.trials[name]["flags"]) == (1.0, ["details_invalid"])


@pytest.mark.requirement("G-EVAL-9.agent_timeout", "G-EVAL-9.agent_exit", "G-EVAL-18.40")
@pytest.mark.parametrize(("name", "outcome"), [("agent-slow", "timeout"), ("agent-exit", "nonzero_exit")])
def test_an_agent_that_did_not_end_well_is_graded_and_its_outcome_shown(ended: Ended, name: str, outcome: str) -> None:
    trial = ended.trials[name]
    assert (trial["status"], trial["reward"], trial["agent_outcome"]) == ("succeeded", 1.0, outcome)


@pytest.mark.requirement("G-EVAL-18.28")
@pytest.mark.parametrize(("name", "timer"), [("agent-slow", "agent"), ("verifier-slow", "verifier")])
def test_a_time_out_says_which_timer_fired_its_limit_and_the_elapsed_time(ended: Ended, name: str, timer: str) -> None:
    said = re.fullmatch(
        rf"The {timer}'s time limit of 1 s was reached after (\d+\.\d) s\.", ended.trials[name]["message"]
    )
    assert said is not None
    assert 1 <= float(said[1]) < 4


@pytest.mark.requirement("G-EVAL-9.verifier_timeout")
def test_a_verifier_that_ran_out_of_time_scores_nothing_although_it_wrote_a_reward(ended: Ended) -> None:
    trial = ended.trials["verifier-slow"]
    assert (trial["status"], trial["reward"], trial["reason"]) == ("failed", None, "VERIFIER_TIMEOUT")


@pytest.mark.requirement("G-EVAL-9.artifact_missing", "G-EVAL-18.38")
def test_a_declared_artifact_that_is_missing_is_listed_and_the_reward_stands(ended: Ended) -> None:
    trial = ended.trials["not-written"]
    listed = {item["name"]: (item["state"], item["size"]) for item in trial["artifacts"]["items"]}
    assert trial["reward"] == 1.0
    assert listed["app/report.txt"] == ("missing", None)


@pytest.mark.requirement("G-EVAL-9.agent_rewrites", "G-EVAL-9.verifier_rewrites", "G-EVAL-18.2")
@pytest.mark.parametrize("name", ["rewriting-agent", "rewriting-verifier"])
def test_a_process_in_the_background_never_changes_the_reward_that_the_script_wrote(ended: Ended, name: str) -> None:
    assert (ended.trials[name]["status"], ended.trials[name]["reward"]) == ("succeeded", 0.0)


@pytest.mark.requirement("G-EVAL-9.loud_output", "G-EVAL-18.29", "G-EVAL-18.30")
def test_loud_output_leaves_the_trial_alive_and_its_log_capped_with_byte_counts(ended: Ended) -> None:
    assert [ended.trials[name]["reward"] for name in ("loud-bytes", "loud-text")] == [1.0, 1.0]
    assert len(ended.content("loud-bytes", "verifier/test-stdout.txt")) == 300_000
    log = ended.content("loud-text", "verifier/test-stdout.txt")
    head, _, rest = log.partition(b"\n[tollbar: ")
    missing, _, tail = rest.partition(b" bytes are left out here]\n")
    assert len(head) + int(missing) + len(tail) == 60_000_000
    assert len(log) < 11 << 20
    assert head.startswith(b"line of text\n")
    assert tail
