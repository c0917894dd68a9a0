"""The gateway as Jobs use it: how a model is served and priced, a key for each try, a listener for each sandbox."""

from __future__ import annotations

import socket
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.gateway.keys import IssuedKey, KeyOrder
from tollbar.gateway.offers import Offer
from tollbar.kit.errors import TollbarError


class ModelNotServed(TollbarError):
    """A model cannot be called here: no such provider, no key for it, or no such script."""

    code = "MODEL_NOT_SERVED"
    status = 422

    def __init__(self, model: str, problem: str, hint: str | None = None) -> None:
        super().__init__(f"The model {model} cannot be called here: {problem}", hint=hint)


class ModelOffers(Protocol):
    """What models cost and who serves them: known to every process of an installation."""

    @property
    def prices(self) -> str:
        """Returns the version of the prices that a Job which begins now keeps."""
        ...

    async def offer(self, session: AsyncSession, workspace_id: str, name: str) -> Offer:
        """Returns how `provider:model` is served for a workspace; raises `ModelNotServed`."""
        ...


class ModelGateway(ModelOffers, Protocol):
    """The gateway of this process."""

    async def issue(self, session: AsyncSession, order: KeyOrder) -> IssuedKey:
        """Writes a key in the caller's transaction; it works from the commit on."""
        ...

    async def serve(self, listening: socket.socket, subject: str) -> None:
        """Serves a listening socket, for one subject alone, until it is cancelled; the caller closes the socket."""
        ...

    def forget(self, subject: str) -> None:
        """Says that nothing of this subject is written any more in which its key could stand."""
        ...
