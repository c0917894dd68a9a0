"""Every agent adapter by its name on the wire. A new agent is a file beside this one and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tollbar.agents.adapter import Adapter
from tollbar.agents.claude_code import ClaudeCode
from tollbar.agents.codex import Codex
from tollbar.agents.command import Command
from tollbar.agents.llm.adapter import Llm
from tollbar.agents.mini_swe import MiniSweAgent
from tollbar.agents.nop import Nop
from tollbar.agents.oracle import Oracle
from tollbar.agents.replay import Replay

_ALL: Final[tuple[Adapter, ...]] = (Oracle(), Nop(), Command(), Replay(), Llm(), ClaudeCode(), Codex(), MiniSweAgent())

ADAPTERS: Final[Mapping[str, Adapter]] = MappingProxyType({adapter.name: adapter for adapter in _ALL})
