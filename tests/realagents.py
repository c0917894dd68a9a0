"""The real coding agents that `.ci/agents` installed, for tests that run them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tollbar.agents import software

NAMES: Final = ("claude-code", "codex", "mini-swe-agent")


def folder() -> Path:
    """Returns the folder of the installed software; it need not be there."""
    data_dir = os.environ.get("TOLLBAR_TEST_AGENTS")
    return Path(data_dir) / software.FOLDER if data_dir else Path("/nonexistent")


def require(name: str) -> software.Installed:
    """Returns an agent's software, or skips the test by the agent's name."""
    found = software.find(folder(), name)
    if found is None:
        pytest.skip(f'{name} is not installed for tests; say: eval "$(.ci/agents)"')
    return found
