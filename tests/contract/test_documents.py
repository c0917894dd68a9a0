"""What the documents name exists: links, make targets, commands, tools, packages, files."""

from __future__ import annotations

import re
from typing import Final

import pytest
from tests.contract.source import ROOT, repository_files

from tollbar.__main__ import APP_COMMANDS, APP_NOUNS
from tollbar.cli.tree import COMMANDS, NOUNS
from tollbar.mcp.tools import TOOLS

DOCUMENTS: Final = sorted(path for path in repository_files() if path.suffix == ".md" and "src" not in path.parts)
_NAMES: Final = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", _NAMES)
def test_every_link_to_a_file_leads_somewhere(name: str) -> None:
    folder = (ROOT / name).parent
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)", _text(name)) if "://" not in target]
    assert [target for target in targets if not (folder / target).exists()] == []


@pytest.mark.parametrize("name", _NAMES)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    makefile = _text("Makefile")
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", _text(name), flags=re.MULTILINE))
    assert [target for target in sorted(named) if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def _code(name: str) -> str:
    """Returns what the document gives as code: its blocks and its spans, each on a line of its own."""
    text = _text(name)
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join([*blocks, *spans])


@pytest.mark.parametrize("name", _NAMES)
def test_every_command_that_is_named_exists(name: str) -> None:
    verbs = {noun.name: set(noun.verbs) for noun in NOUNS}
    for noun, _, more in APP_NOUNS:
        verbs.setdefault(noun, set()).update(more)
    alone = {name for name, _, _ in APP_COMMANDS} | {command.name for command in COMMANDS}
    named = re.findall(r"^(?:.*bin/)?tollbar ([a-z][a-z-]*)(?: ([a-z-]+))?", _code(name), flags=re.MULTILINE)
    assert [f"{noun} {verb}" for noun, verb in named if noun not in alone and verb not in verbs.get(noun, ())] == []


def test_readme_names_every_tool() -> None:
    assert set(re.findall(r"`(envloop_[a-z_]+)`", _text("README.md"))) == {tool.name for tool in TOOLS}


def test_the_architecture_names_every_package() -> None:
    rows = "\n".join(line for line in _text("ARCHITECTURE.md").splitlines() if line.startswith("|"))
    packages = {path.parent.name for path in (ROOT / "src" / "tollbar").glob("*/__init__.py")}
    assert [package for package in sorted(packages) if f"`{package}`" not in rows] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    """Paths are from `src/tollbar`; those with a blank such as `<noun>` are left out."""
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*/?(?:\.py)?)`", _text("ARCHITECTURE.md"))
    paths = [path for path in named if "/" in path]
    assert paths
    assert [path for path in paths if not (ROOT / "src" / "tollbar" / path).exists()] == []
