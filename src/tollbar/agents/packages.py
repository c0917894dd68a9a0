"""Which packages an agent's software comes from, and the version that tollbar is tested with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class NpmPackage:
    """A program that npm brings as a native binary; Node is used to install it, never to run it."""

    name: str
    package: str
    version: str
    """Tested with this tollbar; another one can be named."""
    program: str
    """Name of the command in the sandbox."""
    binaries: str
    """Pattern of the native binary below the folder: one file for this machine."""
    licence: str


@dataclass(frozen=True)
class PythonPackage:
    """A program in Python, run by the sandbox's own interpreter with packages of its own beside it."""

    name: str
    package: str
    version: str
    program: str
    entry: str
    """`module:function` of the command."""
    licence: str


Package = NpmPackage | PythonPackage

_ALL: Final[tuple[Package, ...]] = (
    NpmPackage(
        name="claude-code",
        package="@anthropic-ai/claude-code",
        version="2.1.197",
        program="claude",
        binaries="node_modules/@anthropic-ai/claude-code-*/claude",
        licence="proprietary: its own terms hold, and you install it yourself",
    ),
    NpmPackage(
        name="codex",
        package="@openai/codex",
        version="0.171.0",
        program="codex",
        binaries="node_modules/@openai/codex-*/vendor/*/bin/codex",
        licence="Apache-2.0",
    ),
    PythonPackage(
        name="mini-swe-agent",
        package="mini-swe-agent",
        version="2.4.6",
        program="mini",
        entry="minisweagent.run.mini:app",
        licence="MIT",
    ),
)

PACKAGES: Final[Mapping[str, Package]] = MappingProxyType({package.name: package for package in _ALL})
