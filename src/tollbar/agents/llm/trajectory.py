"""What the loop did, as an ATIF-v1.8 trajectory. Tokens and money are the ledger's and are filled in from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tollbar import __version__
from tollbar.kit.clock import wire_time

SCHEMA: Final = "ATIF-v1.8"

Step = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A tool call of the model. `arguments` None: they are no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None


@dataclass(frozen=True)
class Answer:
    """One turn of the model."""

    at: datetime
    model: str | None
    text: str
    thoughts: str
    calls: Sequence[Asked]


@dataclass
class Trajectory:
    """Steps so far; the first two are the prompt and the task."""

    model: str
    tools: Sequence[dict[str, Any]]
    steps: list[Step] = field(default_factory=list[Step])

    def say(self, source: str, message: str) -> None:
        """Adds what the system or the user said."""
        self.steps.append({"step_id": len(self.steps) + 1, "source": source, "message": message})

    def turn(self, answer: Answer) -> None:
        """Adds what the model answered."""
        step: Step = {
            "step_id": len(self.steps) + 1,
            "timestamp": wire_time(answer.at),
            "source": "agent",
            "model_name": answer.model or self.model,
            "message": answer.text,
        }
        if answer.thoughts:
            step["reasoning_content"] = answer.thoughts
        if answer.calls:
            step["tool_calls"] = [
                {"tool_call_id": call.id, "function_name": call.name, "arguments": dict(call.arguments or {})}
                for call in answer.calls
            ]
        self.steps.append(step)

    def observe(self, call_id: str, content: str) -> None:
        """Adds what a call of the last turn came to."""
        self.steps[-1].setdefault("observation", {"results": []})["results"].append(
            {"source_call_id": call_id, "content": content}
        )

    def document(self) -> dict[str, Any]:
        """Returns the whole as it is now."""
        return {
            "schema_version": SCHEMA,
            "agent": {
                "name": "tollbar-llm",
                "version": __version__,
                "model_name": self.model,
                "tool_definitions": list(self.tools),
            },
            "steps": self.steps,
        }
