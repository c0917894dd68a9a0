"""Every key of `task.toml`: its default, its legacy form, and a value that is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tollbar.datasets.artifactlist import ArtifactEntry
from tollbar.datasets.network import NetworkMode, NetworkPolicy
from tollbar.datasets.taskmodel import (
    AgentConfig,
    Author,
    CollectHook,
    EnvironmentConfig,
    Healthcheck,
    McpServer,
    RewardStrategy,
    TaskConfig,
    TaskOs,
    Tpu,
    Transport,
    VerifierConfig,
    VerifierMode,
)


@pytest.mark.requirement("G-EVAL-21.1")
def test_an_empty_file_gives_every_default(read):
    config = read("").config
    assert config == TaskConfig(
        schema_version="1.4",
        source=None,
        artifacts=(),
        reward_strategy=None,
        metadata={},
        package=None,
        agent=AgentConfig(timeout_s=None, user=None, network=None),
        verifier=VerifierConfig(
            timeout_s=600.0, env={}, user=None, mode=None, environment=None, network=None, collect=()
        ),
        environment=EnvironmentConfig(
            build_timeout_s=600.0,
            docker_image=None,
            os=TaskOs.LINUX,
            cpus=None,
            memory_mb=None,
            storage_mb=None,
            gpus=None,
            gpu_types=None,
            tpu=None,
            env={},
            workdir=None,
            skills_dir=None,
            network=NetworkPolicy(None, ()),
            mcp_servers=(),
            healthcheck=None,
        ),
        solution_env={},
        steps=(),
    )


def _at(config: TaskConfig, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


HEALTHY = '[environment.healthcheck]\ncommand = "true"\n'
MCP = '[[environment.mcp_servers]]\nname = "s"\n'
STEP = '[[steps]]\nname = "one"\n'
ACCEPTED = [
    ('schema_version = "1.0"', "schema_version", "1.0"),
    ('version = "1.0"', "schema_version", "1.0"),
    ('schema_version = "1.2"\nversion = "1.2"', "schema_version", "1.2"),
    ('source = "a book"', "source", "a book"),
    ('artifacts = ["/a"]', "artifacts", (ArtifactEntry("/a"),)),
    ('[environment]\n[[artifacts]]\nsource = "/a"', "artifacts", (ArtifactEntry("/a"),)),
    ("[metadata]\nanything = [1, {b = 2}]", "metadata", {"anything": [1, {"b": 2}]}),
    ('[metadata.tollbar]\nweights = {a = "3.00", b = "0.5"}', "own.weights", {"a": "3", "b": "0.5"}),
    ('[metadata.tollbar]\npass_threshold = "0.750"', "own.pass_threshold", "0.75"),
    ('[metadata.tollbar]\nverifier_model = "openai:gpt-5"', "own.verifier_model", "openai:gpt-5"),
    ("[metadata.tollbar]\nkeep_agent_processes = true", "own.keep_agent_processes", True),
    ('[task]\nname = "a/b"', "package.name", "a/b"),
    ('[task]\nname = "a/b"', "package.description", ""),
    ('[task]\nname = "a/b"\nversion = "one two"', "package.version", "one two"),
    ('[task]\nname = "a/b"\ndescription = "what"', "package.description", "what"),
    ('[task]\nname = "a/b"\nauthors = [{name = "N"}]', "package.authors", (Author("N", None),)),
    ('[task]\nname = "a/b"\nauthors = [{name = "N", email = "e"}]', "package.authors.0.email", "e"),
    ('[task]\nname = "a/b"\nkeywords = ["k"]', "package.keywords", ("k",)),
    ("[agent]\ntimeout_sec = 5", "agent.timeout_s", 5.0),
    ('[agent]\nuser = "bob"', "agent.user", "bob"),
    ("[agent]\nuser = 1000", "agent.user", 1000),
    ('[agent]\nnetwork_mode = "no-network"', "agent.network", NetworkPolicy(NetworkMode.NO_NETWORK)),
    ('[agent]\nnetwork_mode = "allowlist"', "agent.network", NetworkPolicy(NetworkMode.ALLOWLIST)),
    ("[verifier]\ntimeout_sec = 0.5", "verifier.timeout_s", 0.5),
    ('[verifier.env]\nA = "${X:-1}"', "verifier.env", {"A": "${X:-1}"}),
    ("[verifier]\nuser = 0", "verifier.user", 0),
    ('[verifier]\nenvironment_mode = "separate"', "verifier.mode", VerifierMode.SEPARATE),
    ("[verifier.environment]\ncpus = 2", "verifier.environment.cpus", 2),
    ('[[verifier.collect]]\ncommand = "c"', "verifier.collect", (CollectHook("c", "main", 60.0, None),)),
    ("[environment]\nbuild_timeout_sec = 10", "environment.build_timeout_s", 10.0),
    ('[environment]\ndocker_image = "x:1"', "environment.docker_image", "x:1"),
    ('[environment]\nos = "Linux"', "environment.os", TaskOs.LINUX),
    ("[environment]\ncpus = 2.0", "environment.cpus", 2),
    ("[environment]\ncpus = 0.5", "environment.cpus", 0.5),
    ("[environment]\nmemory_mb = 512", "environment.memory_mb", 512),
    ("[environment]\nstorage_mb = 9", "environment.storage_mb", 9),
    ('[environment]\nmemory = "1.5g"', "environment.memory_mb", 1536),
    ('[environment]\nmemory = "2048K"\nmemory_mb = 2', "environment.memory_mb", 2),
    ('[environment]\nstorage = "10M"', "environment.storage_mb", 10),
    ("[environment]\ngpus = 0", "environment.gpus", 0),
    ('[environment]\ngpu_types = ["H100"]', "environment.gpu_types", ("H100",)),
    ('[environment]\ntpu = {type = "v6e", topology = "2x2x1"}', "environment.tpu", Tpu("v6e", "2x2x1")),
    ('[environment.env]\nA = "1"', "environment.env", {"A": "1"}),
    ('[environment]\nworkdir = "/w"', "environment.workdir", "/w"),
    ('[environment]\nskills_dir = "/s"', "environment.skills_dir", "/s"),
    ("[environment]\nallow_internet = true", "environment.network", NetworkPolicy(None)),
    ("[environment]\nallow_internet = false", "environment.network", NetworkPolicy(NetworkMode.NO_NETWORK)),
    (
        '[environment]\nallow_internet = false\nnetwork_mode = "public"',
        "environment.network",
        NetworkPolicy(NetworkMode.PUBLIC),
    ),
    (
        '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["*.Example.com.", "10.0.0.0/8", "::1"]',
        "environment.network",
        NetworkPolicy(NetworkMode.ALLOWLIST, ("*.example.com", "10.0.0.0/8", "::1")),
    ),
    (MCP + 'url = "http://x"', "environment.mcp_servers", (McpServer("s", Transport.SSE, "http://x"),)),
    (MCP + 'transport = "http"\nurl = "u"', "environment.mcp_servers.0.transport", Transport.STREAMABLE_HTTP),
    (MCP + 'transport = "stdio"\ncommand = "c"\nargs = ["-x"]', "environment.mcp_servers.0.args", ("-x",)),
    (
        MCP + 'url = "u"\nheaders = {Authorization = "Bearer ${TOKEN}", X-Plain = "v"}',
        "environment.mcp_servers.0.headers",
        {"Authorization": "Bearer ${TOKEN}", "X-Plain": "v"},
    ),
    (HEALTHY, "environment.healthcheck", Healthcheck("true", 5.0, 30.0, 0.0, 5.0, 3)),
    (HEALTHY + "retries = 1\ninterval_sec = 0", "environment.healthcheck.interval_s", 0.0),
    ('[solution.env]\nA = "b"', "solution_env", {"A": "b"}),
    (
        'artifacts = [{source = "/a", destination = "x/y", exclude = ["*.o"], service = "db"}]',
        "artifacts",
        (ArtifactEntry("/a", "x/y", ("*.o",), "db"),),
    ),
]


@pytest.mark.requirement("G-EVAL-21.1")
@pytest.mark.parametrize(("toml", "path", "value"), ACCEPTED)
def test_a_key_is_read(read, toml, path, value):
    assert _at(read(toml).config, path) == value


STEP_FILES = {"steps/one/instruction.md": b"Do.\n", "steps/one/tests/test.sh": b"#!/bin/sh\n"}
STEP_ACCEPTED = [
    (STEP, "reward_strategy", RewardStrategy.MEAN),
    ('multi_step_reward_strategy = "final"\n' + STEP, "reward_strategy", RewardStrategy.FINAL),
    (STEP, "steps.0.min_reward", None),
    (STEP + "min_reward = 1", "steps.0.min_reward", 1.0),
    (STEP + "min_reward = {reward = 1, style = 0.5}", "steps.0.min_reward", {"reward": 1.0, "style": 0.5}),
    (STEP + '[steps.healthcheck]\ncommand = "true"', "steps.0.healthcheck.retries", 3),
    (STEP + 'artifacts = ["/x"]', "steps.0.artifacts", (ArtifactEntry("/x"),)),
    (STEP + "[steps.agent]\ntimeout_sec = 7", "steps.0.agent.timeout_s", 7.0),
    (STEP + '[steps.verifier]\nenv = {A = "1"}', "steps.0.verifier.env", {"A": "1"}),
]


@pytest.mark.requirement("G-EVAL-21.1")
@pytest.mark.parametrize(("toml", "path", "value"), STEP_ACCEPTED)
def test_a_key_of_a_step_is_read(read, toml, path, value):
    assert _at(read(toml, STEP_FILES).config, path) == value


REFUSED = [
    ("schema_version = 1.0", "schema_version"),
    ('schema_version = "0.9"', "schema_version"),
    ('schema_version = "1.0"\nversion = "1.1"', "version"),
    ("source = 1", "source"),
    ('artifacts = "x"', "artifacts"),
    ("artifacts = [1]", "artifacts[0]"),
    ('artifacts = ["../x"]', "artifacts[0]"),
    ('artifacts = [{destination = "x"}]', "artifacts[0].source"),
    ('artifacts = [{source = "/x", destination = "/y"}]', "artifacts[0].destination"),
    ('artifacts = [{source = "/x", destination = "a\\\\b"}]', "artifacts[0].destination"),
    ('artifacts = [{source = "/x", destination = "manifest.json"}]', "artifacts[0].destination"),
    ('artifacts = [{source = "x", service = "db"}]', "artifacts[0].source"),
    ('artifacts = [{source = "/x", service = "-db"}]', "artifacts[0].service"),
    ('artifacts = [{source = "/x", exclude = [1]}]', "artifacts[0].exclude[0]"),
    ("metadata = 1", "metadata"),
    ("[metadata.tollbar]\nweights = {a = 3}", "metadata.tollbar.weights.a"),
    ('[metadata.tollbar]\nweights = {a = "0"}', "metadata.tollbar.weights.a"),
    ('[metadata.tollbar]\npass_threshold = "half"', "metadata.tollbar.pass_threshold"),
    ('[metadata.tollbar]\nverifier_model = "gpt"', "metadata.tollbar.verifier_model"),
    ('[metadata.tollbar]\nthreshold = "1"', "metadata.tollbar.threshold"),
    (
        '[metadata.tollbar]\nkeep_agent_processes = true\n[verifier]\nenvironment_mode = "separate"',
        "metadata.tollbar.keep_agent_processes",
    ),
    ("[task]", "task.name"),
    ('[task]\nname = "hello"', "task.name"),
    ('[task]\nname = "a/b..c"', "task.name"),
    ('[task]\nname = "a/b"\nversion = ""', "task.version"),
    ('[task]\nname = "a/b"\nauthors = [{email = "e"}]', "task.authors[0].name"),
    ('[task]\nname = "a/b"\ndescription = 1', "task.description"),
    ('[task]\nname = "a/b"\nkeywords = [1]', "task.keywords[0]"),
    ("[agent]\ntimeout_sec = 0", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = inf", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = true", "agent.timeout_sec"),
    ("[agent]\nuser = 1.5", "agent.user"),
    ('[agent]\nnetwork_mode = "none"', "agent.network_mode"),
    ('[agent]\nallowed_hosts = ["a.b"]', "agent.allowed_hosts"),
    ("[agent]\nallowed_hosts = []", "agent.allowed_hosts"),
    ("[verifier]\ntimeout_sec = -1", "verifier.timeout_sec"),
    ("[verifier]\nuser = 1.5", "verifier.user"),
    ('[verifier]\nnetwork_mode = "none"', "verifier.network_mode"),
    ('[verifier]\nallowed_hosts = ["a.b"]', "verifier.allowed_hosts"),
    ("[verifier.env]\nA = 1", "verifier.env.A"),
    ('[verifier]\nenvironment_mode = "both"', "verifier.environment_mode"),
    ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', "verifier.environment_mode"),
    ("[[verifier.collect]]", "verifier.collect[0].command"),
    ('[[verifier.collect]]\ncommand = "c"\ntimeout_sec = 0', "verifier.collect[0].timeout_sec"),
    ("[verifier.environment]\ncpus = 0", "verifier.environment.cpus"),
    ("[environment]\nbuild_timeout_sec = 0", "environment.build_timeout_sec"),
    ("[environment]\ndocker_image = 1", "environment.docker_image"),
    ("[environment]\nskills_dir = 1", "environment.skills_dir"),
    ('[environment]\nnetwork_mode = "none"', "environment.network_mode"),
    ('[environment]\nstorage = "2T"', "environment.storage"),
    ('[environment]\nos = "beos"', "environment.os"),
    ("[environment]\ncpus = nan", "environment.cpus"),
    ("[environment]\nmemory_mb = 0", "environment.memory_mb"),
    ("[environment]\nmemory_mb = 1.5", "environment.memory_mb"),
    ("[environment]\nstorage_mb = -1", "environment.storage_mb"),
    ("[environment]\nmemory = 2", "environment.memory"),
    ('[environment]\nmemory = "2T"', "environment.memory"),
    ('[environment]\nmemory = "2G"\nmemory_mb = 1024', "environment.memory"),
    ("[environment]\ngpus = -1", "environment.gpus"),
    ("[environment]\ngpu_types = [1]", "environment.gpu_types[0]"),
    ('[environment]\ntpu = {type = "v", topology = "2x"}', "environment.tpu.topology"),
    ('[environment]\ntpu = {topology = "2x2"}', "environment.tpu.type"),
    ("[environment.env]\nA = 1", "environment.env.A"),
    ('[environment]\nworkdir = "w"', "environment.workdir"),
    ('[environment]\nnetwork_mode = "public"\nallowed_hosts = ["a.b"]', "environment.allowed_hosts"),
    ('[environment]\nallow_internet = true\nallowed_hosts = ["a.b"]', "environment.allow_internet"),
    ("[environment]\nallow_internet = 1", "environment.allow_internet"),
    (MCP, "environment.mcp_servers[0].url"),
    (MCP + 'transport = "stdio"', "environment.mcp_servers[0].command"),
    (MCP + 'transport = "tcp"\nurl = "u"', "environment.mcp_servers[0].transport"),
    (MCP + 'transport = "stdio"\ncommand = "c"\nheaders = {A = "b"}', "environment.mcp_servers[0].headers"),
    ("[environment.healthcheck]", "environment.healthcheck.command"),
    (HEALTHY + "interval_sec = -1", "environment.healthcheck.interval_sec"),
    (HEALTHY + "retries = 0", "environment.healthcheck.retries"),
    ("[solution.env]\nA = true", "solution.env.A"),
    ('multi_step_reward_strategy = "mean"', "multi_step_reward_strategy"),
    ("min_reward = 1", "min_reward"),
    ("steps = 1", "steps"),
]


RULE = re.compile(r"must|is missing|is needed|only (allowed|for)|cannot|not a known key|; drop|same folder name")


@pytest.mark.requirement("G-EVAL-17.wrong_type", "G-EVAL-17.step_keys", "G-EVAL-21.1", "G-EVAL-21.3")
@pytest.mark.parametrize(("toml", "key"), REFUSED)
def test_a_wrong_value_is_named_by_its_key_with_the_rule(problems_of, toml, key):
    (problem,) = problems_of(toml)
    assert (problem.file, problem.key) == ("t/task.toml", key)
    assert RULE.search(problem.message)


STEP_REFUSED = [
    ("[[steps]]", "steps[0].name"),
    ('[[steps]]\nname = "a/b"', "steps[0].name"),
    ('[[steps]]\nname = "NUL.txt"', "steps[0].name"),
    ('[[steps]]\nname = "dot."', "steps[0].name"),
    (STEP + '[[steps]]\nname = "ONE"', "steps[1].name"),
    (STEP + 'min_reward = "1"', "steps[0].min_reward"),
    (STEP + "[steps.verifier]\ntimeout_sec = 0", "steps[0].verifier.timeout_sec"),
    (STEP + "[steps.environment]\ncpus = 1", "steps[0].environment"),
    (STEP + "agent = 1", "steps[0].agent"),
    (STEP + "healthcheck = 1", "steps[0].healthcheck"),
    (STEP + "artifacts = 1", "steps[0].artifacts"),
]


@pytest.mark.requirement("G-EVAL-17.wrong_type", "G-EVAL-21.1", "G-EVAL-21.3")
@pytest.mark.parametrize(("toml", "key"), STEP_REFUSED)
def test_a_wrong_value_of_a_step_is_named_by_its_key_with_the_rule(problems_of, toml, key):
    (problem,) = problems_of(toml, STEP_FILES)
    assert problem.key == key
    assert RULE.search(problem.message)


KEYS = """
schema_version version source artifacts multi_step_reward_strategy metadata
task.name task.version task.description task.authors task.keywords
agent.timeout_sec agent.user agent.network_mode agent.allowed_hosts
verifier.timeout_sec verifier.env verifier.user verifier.environment_mode verifier.environment verifier.network_mode
verifier.allowed_hosts verifier.collect
environment.build_timeout_sec environment.docker_image environment.os environment.cpus environment.memory_mb
environment.storage_mb environment.gpus environment.gpu_types environment.tpu environment.env environment.workdir
environment.skills_dir environment.network_mode environment.allowed_hosts environment.mcp_servers
environment.healthcheck environment.memory environment.storage environment.allow_internet
solution.env
steps[0].name steps[0].agent steps[0].verifier steps[0].min_reward steps[0].healthcheck steps[0].artifacts
artifacts[0].source artifacts[0].destination artifacts[0].exclude artifacts[0].service
"""
"""Every key of the format, schema 1.0 to 1.4, legacy ones included."""


@pytest.mark.requirement("G-EVAL-21.1")
@pytest.mark.parametrize("key", KEYS.split())
def test_every_key_of_the_format_is_tested_with_a_value_and_with_one_that_is_refused(key):
    word = re.compile(rf"\b{key.rpartition('.')[2]}\b")
    assert any(word.search(toml) for toml, _, _ in (*ACCEPTED, *STEP_ACCEPTED))
    assert any(found == key or found.startswith((f"{key}.", f"{key}[")) for _, found in (*REFUSED, *STEP_REFUSED))


@pytest.mark.requirement("G-EVAL-17.limits", "G-EVAL-21.3")
@pytest.mark.parametrize("value", ["0", "-1", "0.0", "-0.5"])
@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("[agent]", "agent.timeout_sec"),
        ("[verifier]", "verifier.timeout_sec"),
        ("[environment]", "environment.build_timeout_sec"),
        ("[environment]", "environment.cpus"),
        ("[environment]", "environment.memory_mb"),
        ("[environment]", "environment.storage_mb"),
        ("[verifier.environment]", "verifier.environment.cpus"),
        (HEALTHY, "environment.healthcheck.timeout_sec"),
        (HEALTHY, "environment.healthcheck.retries"),
    ],
)
def test_a_limit_or_time_out_that_is_zero_or_negative_is_refused(problems_of, table, key, value):
    (problem,) = problems_of(f"{table}\n{key.rpartition('.')[2]} = {value}")
    assert problem.key == key
    assert problem.message


@pytest.mark.parametrize(
    "host",
    ["http://a.b", "a.b:80", "a.b/x", "a.*.b", "*", "*.10.0.0.1", "10.0.0.1/8", "a..b", "-a.b", "fe80::1%eth0", ""],
)
def test_a_host_that_is_no_plain_host_is_refused(problems_of, host):
    toml = f'[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["{host}"]'
    assert [problem.key for problem in problems_of(toml)] == ["environment.allowed_hosts[0]"]


@pytest.mark.parametrize(
    "header",
    [
        'Authorization = "Bearer abc123"',
        'Authorization = "Bearer ${TOKEN:-abc123}"',
        'X-Api-Key = "abc123"',
        'Cookie = "a=abc123"',
        'X-Plain = "${MY_SECRET:-abc123}"',
    ],
)
def test_a_literal_credential_is_refused_and_never_repeated(problems_of, header):
    found = problems_of(MCP + f'url = "u"\nheaders = {{{header}}}')
    assert len(found) == 1
    assert "abc123" not in str(found[0].wire())


@pytest.mark.requirement("G-EVAL-17.unknown_key", "G-EVAL-21.3")
def test_an_unknown_key_comes_with_the_nearest_known_one_and_its_line(problems_of):
    problem = problems_of("\n[agent]\ntimeout_secs = 5\n")[0].wire()
    assert problem == {
        "file": "t/task.toml",
        "key": "agent.timeout_secs",
        "line": 3,
        "found": "5",
        "allowed": "timeout_sec",
        "message": "is not a known key; did you mean timeout_sec?",
    }


@pytest.mark.requirement("G-EVAL-17.unknown_key", "G-EVAL-21.3")
def test_a_misspelt_section_is_refused(problems_of):
    problem = problems_of("[enviroment]\ncpus = 1\n")[0]
    assert (problem.key, problem.line) == ("enviroment", 1)
    assert "environment" in problem.message


@pytest.mark.requirement("G-EVAL-17.unknown_key")
def test_artifacts_below_a_table_are_explained(problems_of):
    problem = problems_of('[environment]\ncpus = 1\nartifacts = ["/x"]\n')[0]
    assert (problem.key, problem.line) == ("environment.artifacts", 3)
    assert "above the first table header" in problem.message
    assert "[[artifacts]]" in problem.message


@pytest.mark.requirement("G-EVAL-17.newer_schema", "G-EVAL-21.3")
def test_a_newer_schema_names_the_newest_readable_one(problems_of):
    problem = problems_of('schema_version = "9.9"')[0]
    assert '"1.4"' in problem.message


@pytest.mark.requirement("G-EVAL-17.parse", "G-EVAL-21.3")
def test_a_text_that_is_no_toml_is_placed(problems_of):
    problem = problems_of("[agent]\ntimeout_sec = = 5\n")[0]
    assert (problem.file, problem.line) == ("t/task.toml", 2)
    assert "line 2, column 15" in problem.message


def test_lines_are_found_beside_long_texts_and_in_repeated_tables(problems_of):
    toml = 'source = """\n[agent]\ntimeout_sec = 1\n"""\n[[steps]]\nname = "one"\n[[steps]]\nname = "o:ne"\n'
    problem = problems_of(toml, STEP_FILES)[0]
    assert (problem.key, problem.line) == ("steps[1].name", 8)
