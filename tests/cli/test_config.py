"""Where the server, the key and the form come from, and what is not trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli import examples
from tests.cli.conftest import Ended
from tests.cli.standin import KEY, StandIn, running

from tollbar.cli.config import Places, resolve

U = "https://{}.example"


def places(root: Path, environ: dict[str, str] | None = None) -> Places:
    (root / "repo" / "deep").mkdir(parents=True, exist_ok=True)
    (root / "repo" / ".git").mkdir(exist_ok=True)
    return Places(environ or {}, root / "repo" / "deep", root / "config.toml", root / "data")


def local(root: Path, url: str = "http://127.0.0.1:8787", key: str = "local-key") -> Path:
    folder = root / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("server.json", json.dumps({"url": url})), ("api_key", key + "\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder


PROJECT = 'url = "https://project.example"\nworkspace = "ws_project"\n'
CONTEXTS = '[contexts.a]\nurl = "https://a.example"\nworkspace = "ws_a"\n[contexts.b]\nurl = "https://b.example"\n'
USER = 'context = "a"\n' + CONTEXTS


@pytest.mark.parametrize(
    ("options", "environ", "project", "user", "has_local", "url", "workspace"),
    [
        ({"url": U.format("option")}, {"TOLLBAR_URL": U.format("env")}, PROJECT, USER, True, "option", "ws_project"),
        ({}, {"TOLLBAR_URL": U.format("env")}, PROJECT, USER, True, "env", "ws_project"),
        ({}, {"TOLLBAR_URL": U.format("env"), "TOLLBAR_WORKSPACE": "ws_env"}, PROJECT, USER, True, "env", "ws_env"),
        ({}, {}, PROJECT, USER, True, "project", "ws_project"),
        ({}, {}, None, USER, True, "a", "ws_a"),
        ({}, {}, None, CONTEXTS, True, "local", None),
        ({}, {}, None, None, True, "local", None),
        ({}, {}, None, None, False, None, None),
        ({"context": "b"}, {"TOLLBAR_URL": U.format("env")}, PROJECT, USER, True, "b", "ws_project"),
        ({}, {"TOLLBAR_CONTEXT": "b"}, PROJECT, USER, True, "b", "ws_project"),
        ({}, {"TOLLBAR_CONTEXT": "b", "TOLLBAR_URL": U.format("env")}, None, USER, True, "env", None),
        ({}, {}, 'context = "b"\n', USER, True, "b", None),
        ({}, {"TOLLBAR_URL": ""}, PROJECT, None, False, "project", "ws_project"),
    ],
)
def test_the_nearest_source_wins(
    tmp_path: Path,
    options: dict[str, str],
    environ: dict[str, str],
    project: str | None,
    user: str | None,
    has_local: bool,
    url: str | None,
    workspace: str | None,
) -> None:
    at = places(tmp_path, environ)
    if project is not None:
        (tmp_path / "repo" / ".tollbar.toml").write_text(project)
    if user is not None:
        (tmp_path / "config.toml").write_text(user)
    if has_local:
        local(tmp_path)
    found = resolve(options, at)
    expected = "http://127.0.0.1:8787" if url == "local" else None if url is None else U.format(url)
    assert found.get("url") == expected
    assert found.get("workspace") == workspace


def test_explain_names_the_origin_of_each_value_and_never_shows_the_key(
    tollbar: Callable[..., Ended], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = home / "work"
    (work / ".tollbar.toml").write_text('project = "prj_1"\n')
    user = home / "config" / "tollbar" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text(USER)
    monkeypatch.setenv("TOLLBAR_API_KEY", "very-secret-key")
    ended = tollbar("config", "explain", "--context", "b")
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in ended.out.splitlines()}
    assert rows == {
        "url": ["https://b.example", f"context b in {user}"],
        "api_key": ["set, not shown", "TOLLBAR_API_KEY"],
        "workspace": ["-", "-"],
        "project": ["prj_1", str(work / ".tollbar.toml")],
        "context": ["b", "option"],
        "output": ["-", "-"],
    }
    as_json = tollbar("config", "explain", "--json")
    assert "very-secret-key" not in ended.out + ended.err + as_json.out + as_json.err
    paths = tollbar("config", "path", "--json").json
    assert paths["user_file"] == str(user)
    assert paths["project_file"] == str(work / ".tollbar.toml")


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("project", 'api_key = "k"\n', "holds a key"),
        ("project", 'urll = "x"\n', "did you mean url?"),
        ("project", "url = 7\n", "must be text"),
        ("project", 'url = "a\n', "not valid TOML"),
        ("project", 'context = "prod"\n', "there is no context prod"),
        ("project", 'output = "yaml"\n', "must be table, plain, json"),
        ("user", 'url = "https://x.example"\n', "is not a known key"),
        ("user", '[contexts.a]\nurls = "x"\n', "did you mean contexts.a.url?"),
        ("user", '[contexts.a]\napi_key = "x"\n', "is not a known key"),
        ("user", "contexts = 3\n", "is not a table"),
        ("user", 'context = "stagin"\n[contexts.staging]\nurl = "https://s.example"\n', "did you mean staging?"),
    ],
)
def test_a_file_that_holds_what_it_must_not_is_an_error(
    tollbar: Callable[..., Ended], home: Path, file: str, text: str, problem: str
) -> None:
    path = home / "work" / ".tollbar.toml" if file == "project" else home / "config" / "tollbar" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    ended = tollbar("config", "explain")
    assert (ended.code, ended.out) == (2, "")
    assert problem in ended.err
    assert str(path) in ended.err or "context" in problem or "mean" in problem


def test_a_project_file_is_looked_for_up_to_the_root_of_its_repository(tmp_path: Path) -> None:
    at = places(tmp_path)
    (tmp_path / ".tollbar.toml").write_text(PROJECT)
    assert resolve({}, at).get("url") is None, "above the repository nothing is read"
    (tmp_path / "repo" / ".tollbar.toml").write_text(PROJECT)
    assert resolve({}, at).get("url") == "https://project.example"
    (tmp_path / "repo" / "deep" / ".tollbar.toml").write_text('url = "https://nearer.example"\n')
    assert resolve({}, at).get("url") == "https://nearer.example"


def test_outside_a_repository_only_the_folder_itself_is_read(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".tollbar.toml").write_text(PROJECT)
    assert resolve({}, Places({}, tmp_path / "deep", tmp_path / "none", tmp_path / "none")).get("url") is None
    assert resolve({}, Places({}, tmp_path, tmp_path / "none", tmp_path / "none")).get("url") is not None


def test_output_can_be_set_and_the_option_wins(
    tollbar: Callable[..., Ended], signed_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in.on("GET /v1/me", examples.me())
    monkeypatch.setenv("TOLLBAR_OUTPUT", "json")
    assert tollbar("whoami").json == examples.me()
    assert tollbar("whoami", "--output", "plain").out.startswith("server\t")
    assert tollbar("whoami", "--wrong").json["code"] == "USAGE"
    monkeypatch.setenv("TOLLBAR_OUTPUT", "xml")
    assert tollbar("whoami").code == 2


def test_the_local_server_needs_no_configuration(tollbar: Callable[..., Ended], server: StandIn, home: Path) -> None:
    server.on("GET /v1/me", examples.me())
    data = home / "data" / "tollbar"
    data.mkdir(parents=True)
    local(home / "data", server.url, KEY)
    for name in ("server.json", "api_key"):
        (home / "data" / "data" / name).rename(data / name)
    assert tollbar("whoami").code == 0
    assert tollbar("whoami", "--url", server.url).code == 0, "the same address, named"


def test_the_data_folder_can_be_named(
    tollbar: Callable[..., Ended], server: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET /v1/me", examples.me())
    monkeypatch.setenv("TOLLBAR_DATA_DIR", str(local(home, server.url, KEY)))
    assert tollbar("whoami").code == 0


def test_the_local_key_goes_to_no_other_server(
    tollbar: Callable[..., Ended], server: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as other:
        monkeypatch.setenv("TOLLBAR_DATA_DIR", str(local(home, server.url, KEY)))
        ended = tollbar("whoami", "--url", other.url, "--json")
        assert (ended.code, ended.json["code"]) == (4, "NO_KEY")
        assert other.asked == []


@pytest.mark.parametrize("name", ["server.json", "api_key"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o622])
def test_a_file_that_others_can_use_is_refused_with_the_fix(
    tollbar: Callable[..., Ended], server: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    data = local(home, server.url, KEY)
    monkeypatch.setenv("TOLLBAR_DATA_DIR", str(data))
    (data / name).chmod(mode)
    ended = tollbar("whoami")
    assert ended.code == 4
    assert f"chmod 600 {data / name}" in ended.err
    assert server.asked == []


def test_a_command_that_needs_no_server_does_not_mind_its_key_file(
    tollbar: Callable[..., Ended], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = local(home)
    (data / "api_key").chmod(0o644)
    monkeypatch.setenv("TOLLBAR_DATA_DIR", str(data))
    assert tollbar("help", "exit-codes").code == 0
    assert tollbar("config", "path").code == 0
    assert tollbar("config", "explain").code == 4


def test_a_key_is_not_sent_to_a_foreign_server_that_only_the_project_names(
    tollbar: Callable[..., Ended], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "work" / ".tollbar.toml").write_text('url = "https://elsewhere.invalid"\n')
    monkeypatch.setenv("TOLLBAR_API_KEY", KEY)
    ended = tollbar("whoami")
    assert ended.code == 2
    assert "export TOLLBAR_URL=https://elsewhere.invalid" in ended.err
    monkeypatch.setenv("TOLLBAR_URL", "https://elsewhere.invalid")
    assert tollbar("whoami").code == 1, "named by the user, it is asked (and does not exist)"


def test_a_server_of_the_project_on_this_machine_or_in_a_context_gets_the_key(
    tollbar: Callable[..., Ended], server: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET /v1/me", examples.me())
    monkeypatch.setenv("TOLLBAR_API_KEY", KEY)
    (home / "work" / ".tollbar.toml").write_text(f'url = "{server.url}"\n')
    assert tollbar("whoami").code == 0
    at = Places({}, home / "work", home / "config.toml", home / "none")
    (home / "work" / ".tollbar.toml").write_text('url = "https://a.example/v1"\n')
    (home / "config.toml").write_text(CONTEXTS)
    assert resolve({}, at).untrusted_url is False
    (home / "work" / ".tollbar.toml").write_text('url = "https://c.example"\n')
    assert resolve({}, at).untrusted_url is True


def test_without_any_server_both_ways_to_one_are_told(tollbar: Callable[..., Ended]) -> None:
    ended = tollbar("jobs", "list")
    assert ended.code == 2
    assert "tollbar up" in ended.err
    assert "TOLLBAR_URL" in ended.err


def test_plain_http_beyond_this_machine_is_refused(
    tollbar: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBAR_API_KEY", KEY)
    ended = tollbar("whoami", "--url", "http://10.0.0.5")
    assert ended.code == 2
    assert "plain text" in ended.err
