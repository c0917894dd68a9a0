"""The gateway of a worker: keys for its Jobs' tries, listeners, the ledger, and what a stopped budget stops."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.app.installation import Installation
from tollbar.app.listeners import Listeners
from tollbar.app.models import Models
from tollbar.engine.port import Engine
from tollbar.gateway import keys
from tollbar.gateway.app import Gateway
from tollbar.gateway.books import Books
from tollbar.gateway.dispatch import Dispatch
from tollbar.gateway.errors import Code, Refused
from tollbar.gateway.keys import IssuedKey, KeyOrder
from tollbar.gateway.metering import Metering, Stopper
from tollbar.gateway.offers import Offer
from tollbar.gateway.providers import Provider
from tollbar.gateway.relay import Relays, upstream_client
from tollbar.jobs import endings
from tollbar.kit.clock import Clock
from tollbar.vault.redactor import Redactor

_CLOSE_S: Final = 20.0


@dataclass(frozen=True)
class WorkerGateway:
    """The gateway of one worker, as its Jobs use it."""

    models: Models
    gateway: Gateway
    listeners: Listeners
    redactor: Redactor
    _secrets: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Of live keys, by subject: what the redactor has to know."""

    @property
    def prices(self) -> str:
        return self.models.prices

    async def offer(self, session: AsyncSession, workspace_id: str, name: str) -> Offer:
        return await self.models.offer(session, workspace_id, name)

    async def issue(self, session: AsyncSession, order: KeyOrder) -> IssuedKey:
        issued = await keys.issue(session, order)
        self.redactor.add("virtual key", issued.secret)
        self._secrets.setdefault(order.subject, []).append(issued.secret)
        return issued

    async def serve(self, listening: socket.socket, subject: str) -> None:
        await self.listeners.serve(listening, subject)

    def forget(self, subject: str) -> None:
        for secret in self._secrets.pop(subject, []):
            self.redactor.forget(secret)


async def start_gateway(
    stack: AsyncExitStack, installation: Installation, engine: Engine, worker_id: str
) -> WorkerGateway:
    """Returns the gateway of a worker; `stack` ends it, its calls settled."""
    clock, models = installation.clock, installation.models
    books = Books(installation.database, models.book)
    metering = Metering(installation.database, clock, worker_id, books, _stopper(engine, clock))
    client = await stack.enter_async_context(upstream_client())
    dispatch = Dispatch(metering, models.providers, models.scripts, Relays(client), _secrets(installation))
    gateway = Gateway(dispatch)
    stack.push_async_callback(gateway.close, _CLOSE_S)
    return WorkerGateway(models, gateway, Listeners(gateway), installation.vault.redactor)


def _stopper(engine: Engine, clock: Clock) -> Stopper:
    async def follow(session: AsyncSession, subject: str, stop: Callable[[], Awaitable[object]] | None) -> None:
        await endings.follow_stop(session, engine, subject, stop, clock.now())

    return follow


def _secrets(installation: Installation) -> Callable[[Provider, str], Awaitable[str | None]]:
    async def secret_of(provider: Provider, workspace_id: str) -> str | None:
        reference = provider.secret
        if reference.vault_name is None:
            return None if reference.value is None else reference.value.get_secret_value()
        async with installation.database.session() as session:
            found = await installation.vault.use(session, workspace_id, reference.vault_name)
        if found is None:
            raise Refused(Code.MODEL_NOT_ALLOWED, f"the vault has no secret {reference.vault_name}")
        return found.value

    return secret_of
