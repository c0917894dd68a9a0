"""What a command loads: agents call it hundreds of times, so start-up is the experience."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.cli import examples
from tests.cli.standin import StandIn

import tollbar

NEVER = ("sqlalchemy", "fastapi", "mcp", "dbos", "psycopg")
HEAVY = (*NEVER, "rich", "httpx2", "pydantic_ai", "cyclopts", "platformdirs", "tollbar.cli")
SCRIPT = """
import json, sys
from tollbar.__main__ import main
sys.argv = ["tollbar", *json.loads(sys.argv[1])]
try:
    code = main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def loaded(*argv: str) -> tuple[int, str, set[str]]:
    """Returns exit code, stdout, and what was loaded in the end."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(argv)], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def test_the_version_is_told_before_anything_is_loaded(signed_in: StandIn) -> None:
    code, out, modules = loaded("--version")
    assert (code, out) == (0, f"tollbar {tollbar.__version__}\n")
    assert not modules & set(HEAVY)


def test_a_list_that_is_piped_loads_no_drawing_and_no_server(signed_in: StandIn) -> None:
    signed_in.on("GET /v1/job", examples.page(examples.job()))
    code, out, modules = loaded("jobs", "list")
    assert (code, out[:4]) == (0, "job_")
    assert not modules & {*NEVER, "rich", "asyncio", "pydantic"}
    assert "httpx2" in modules


@pytest.mark.parametrize("argv", [("jobs", "submit", "--help"), ("jobs", "lst"), (), ("config", "explain")])
def test_a_command_that_calls_no_server_loads_no_http_library(signed_in: StandIn, argv: tuple[str, ...]) -> None:
    _, _, modules = loaded(*argv)
    assert not modules & {*NEVER, "httpx2"}
    assert not {name for name in modules if name.startswith("tollbar.app")}
