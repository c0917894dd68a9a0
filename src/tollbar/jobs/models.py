"""The gateway as Jobs use it: how a model is served and priced, a key for each try, a listener for each sandbox."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.agents.adapter import ServedModel
from tollbar.budget.calls import CallPurpose
from tollbar.budget.schemas import Chain
from tollbar.kit.errors import TollbarError


class ModelNotServed(TollbarError):
    """A model cannot be called here: no such provider, no key for it, or no such script."""

    code = "MODEL_NOT_SERVED"
    status = 422

    def __init__(self, model: str, problem: str, hint: str | None = None) -> None:
        super().__init__(f"The model {model} cannot be called here: {problem}.", hint=hint)


@dataclass(frozen=True)
class Offer:
    """How a model is served, and what a call of it costs; amounts in pUSD, None where it has no price."""

    name: str
    served: ServedModel
    provider: str
    """Id of the provider's record: the route of a key."""
    snapshot: str | None
    prices: Mapping[str, str] | None
    """USD per million tokens, by `input_usd`, `output_usd`, ..."""
    least_pusd: int | None
    """The least that is reserved for one call: of a small request with the least output limit."""
    usual_pusd: int | None
    """What is reserved for a small request with the output limit that a request without one gets."""

    @property
    def priced(self) -> bool:
        return self.least_pusd is not None

    @property
    def simulated(self) -> bool:
        return self.served.kind == "scripted"


@dataclass(frozen=True)
class KeyOrder:
    """A key to issue, for one try of a Trial."""

    workspace_id: str
    subject: str
    """`trial:<id>:<try_no>`."""
    purpose: CallPurpose
    chain: Chain
    routes: Mapping[str, str]
    """Provider's record by the bare name of the model in a request."""
    expires_at: datetime
    egress: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a script may choose its case by: task, dataset, adapter, profile, attempt, and its own name."""


class IssuedKey(Protocol):
    """A key, whose secret is seen this once."""

    @property
    def id(self) -> str: ...
    @property
    def secret(self) -> str: ...


class ModelGateway(Protocol):
    """The gateway of this process."""

    async def offer(self, session: AsyncSession, project_id: str, name: str) -> Offer:
        """Returns how `provider:model` is served for a project; raises `ModelNotServed`."""
        ...

    async def issue(self, session: AsyncSession, order: KeyOrder) -> IssuedKey:
        """Writes a key in the caller's transaction; it works from the commit on."""
        ...

    async def serve(self, listening: socket.socket, subject: str) -> None:
        """Serves a listening socket, for one subject alone, until it is cancelled; the caller closes the socket."""
        ...
