"""The loop: ask the model, do what it calls for, until it calls for nothing. Loaded only where it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelContextWindowExceededError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from tollbar.agents.adapter import AgentReport, AgentSession, DriveEnd, DriveResult, GatewayAccess
from tollbar.agents.llm.adapter import Settings
from tollbar.agents.llm.tools import TOOLS, Actions, shown
from tollbar.agents.llm.trajectory import Answer, Asked, Trajectory
from tollbar.agents.modelnames import dialect_of
from tollbar.gateway.dialects import Dialect

_CALL_S: Final = 960.0
"""A call waits for money, and then for its provider: longer than the gateway allows it to take."""
_DEFINITIONS: Final = [
    ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
    for tool in TOOLS.values()
]
_TOLD: Final = [
    {"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in TOOLS.values()
]


async def run(session: AgentSession, settings: Settings, instruction: str) -> DriveResult:
    """Runs the loop to its end. Whatever a model or its provider does is an ending, no exception."""
    trajectory = Trajectory(settings.model, _TOLD)
    trajectory.say("system", settings.prompt)
    trajectory.say("user", instruction)
    async with _model(session.gateway, settings.model) as model:
        loop = _Loop(session, settings, model, trajectory)
        loop.note()
        first: list[ModelRequestPart] = [SystemPromptPart(settings.prompt), UserPromptPart(instruction)]
        return await loop.run(first)


class _Loop:
    def __init__(self, session: AgentSession, settings: Settings, model: Model, trajectory: Trajectory) -> None:
        self._session = session
        self._settings = settings
        self._model = model
        self._trajectory = trajectory
        self._actions = Actions(session, settings.timeout_s)
        self._messages: list[ModelMessage] = []

    def note(self) -> None:
        self._session.note(AgentReport(trajectory=self._trajectory.document()))

    async def run(self, first: Sequence[ModelRequestPart]) -> DriveResult:
        parts = first
        for turn in range(1, self._settings.max_turns + 1):
            self._messages.append(ModelRequest(parts))
            try:
                response = await self._ask()
            except AgentRunError as error:
                return self._failed(error)
            answer = _answer(response)
            self._messages.append(response)
            self._trajectory.turn(answer)
            self._session.log(f"[turn {turn}] {answer.text}".rstrip())
            if response.finish_reason == "content_filter":
                self.note()
                return DriveResult(DriveEnd.REFUSED, "The model declined to answer.")
            if not answer.calls:
                self.note()
                return self._ended(response)
            parts = [await self._do(call) for call in answer.calls]
            self.note()
        return DriveResult(DriveEnd.FAILED, f"The agent was not done after {self._settings.max_turns} turns.")

    async def _ask(self) -> ModelResponse:
        settings = ModelSettings(max_tokens=self._settings.max_tokens, timeout=_CALL_S)
        if self._settings.temperature is not None:
            settings["temperature"] = self._settings.temperature
        return await model_request(
            self._model,
            self._messages,
            model_settings=settings,
            model_request_parameters=ModelRequestParameters(function_tools=_DEFINITIONS),
        )

    async def _do(self, call: Asked) -> ToolReturnPart:
        given = json.dumps(call.arguments, ensure_ascii=False)
        self._session.log(shown(f"$ {call.name} {given}"))
        if call.arguments is None:
            said = "The arguments are no JSON object."
        else:
            said = await self._actions.call(call.name, call.arguments)
        self._session.log(said)
        self._trajectory.observe(call.id, said)
        return ToolReturnPart(tool_name=call.name, content=said, tool_call_id=call.id)

    def _ended(self, response: ModelResponse) -> DriveResult:
        if response.finish_reason == "length":
            return DriveResult(DriveEnd.CONTEXT_OVERFLOW, "The model's answer reached its output limit.")
        if response.finish_reason == "error":
            return DriveResult(DriveEnd.FAILED, "The model's answer ended with an error.")
        return DriveResult()

    def _failed(self, error: AgentRunError) -> DriveResult:
        # The message can hold whatever a provider said: it goes to the agent's log, which is untrusted as all of it.
        self._session.log(f"[{type(error).__name__}] {error}")
        if isinstance(error, ModelContextWindowExceededError):
            return DriveResult(DriveEnd.CONTEXT_OVERFLOW, "The task's history no longer fits the model's context.")
        if isinstance(error, ContentFilterError):
            return DriveResult(DriveEnd.REFUSED, "The model declined to answer.")
        if isinstance(error, ModelAPIError):
            return DriveResult(DriveEnd.FAILED, "A call of the model failed; the agent's log says how.")
        return DriveResult(DriveEnd.FAILED, "The model's answer could not be read; the agent's log says why.")


def _answer(response: ModelResponse) -> Answer:
    return Answer(
        at=response.timestamp,
        model=response.model_name,
        text="\n".join(part.content for part in response.parts if isinstance(part, TextPart)),
        thoughts="\n".join(part.content for part in response.parts if isinstance(part, ThinkingPart)),
        calls=[_asked(part) for part in response.parts if isinstance(part, ToolCallPart)],
    )


def _asked(part: ToolCallPart) -> Asked:
    given: Any = part.args
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except ValueError:
            given = None
    elif given is None:
        given = {}
    return Asked(part.tool_call_id, part.tool_name, given if isinstance(given, dict) else None)


@asynccontextmanager
async def _model(access: GatewayAccess, name: str) -> AsyncGenerator[Model]:
    """Makes the client of a model: of the gateway alone, whatever the environment says of proxies and keys."""
    served = access.models[name]
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=_CALL_S) as client:
        # Loading a library takes up to a second of CPU.
        yield await asyncio.to_thread(_client, dialect_of(served.kind), served.wire, access, client)


def _client(dialect: Dialect, wire: str, access: GatewayAccess, client: httpx2.AsyncClient) -> Model:
    # Each library is loaded only for the models that need it.
    if dialect is Dialect.MESSAGES:
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        anthropic = AnthropicProvider(base_url=access.base_url, api_key=access.key, http_client=client)
        return AnthropicModel(wire, provider=anthropic)
    if dialect is Dialect.GEMINI:
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        google = GoogleProvider(base_url=access.base_url, api_key=access.key, http_client=client)
        return GoogleModel(wire, provider=google)
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    openai = OpenAIProvider(base_url=f"{access.base_url}/v1", api_key=access.key, http_client=client)
    model = OpenAIResponsesModel if dialect is Dialect.RESPONSES else OpenAIChatModel
    return model(wire, provider=openai)
