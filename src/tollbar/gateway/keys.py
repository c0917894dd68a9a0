"""Virtual keys: issued for one try of a Trial or one execution of a run, revoked with its end."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.budget.calls import CallPurpose
from tollbar.budget.schemas import Chain
from tollbar.gateway import store
from tollbar.gateway.tables import VirtualKeyRow
from tollbar.kit.ids import new_id

PREFIX: Final = "tbv_"
_SECRET_BYTES: Final = 32


@dataclass(frozen=True)
class KeyOrder:
    """What a key is to allow. Its calls are charged to `chain`, and go only where `routes` says."""

    workspace_id: str
    subject: str
    """`trial:<id>:<try_no>` or `run:<id>`."""
    purpose: CallPurpose
    chain: Chain
    routes: Mapping[str, str]
    """Wire model to provider, such as `{"gpt-5-mini": "openai"}`, or to a script: `scripted:demo`."""
    expires_at: datetime
    egress: bool = False
    """The subject's network policy lets it out, so its provider may fetch URLs for it."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For scripts: task, task_ref, dataset, adapter, profile, attempt, team; and `prices`, the version that holds."""


@dataclass(frozen=True)
class IssuedKey:
    """A fresh key. The secret is shown this once; its representation hides it."""

    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Key:
    """A valid key as the gateway uses it."""

    id: str
    workspace_id: str
    subject: str
    purpose: CallPurpose
    chain: Chain
    routes: Mapping[str, str]
    egress: bool
    facts: Mapping[str, Any]

    @property
    def prices(self) -> str | None:
        """Returns the version of the prices that its work began with; None: the present ones."""
        return self.facts.get("prices")


async def issue(session: AsyncSession, order: KeyOrder) -> IssuedKey:
    """Writes a key and returns its secret, which whoever gets it must also tell the redactor."""
    made = IssuedKey(new_id("vkey"), PREFIX + secrets.token_urlsafe(_SECRET_BYTES))
    await store.add(
        session,
        {
            "id": made.id,
            "secret_sha256": _hash(made.secret),
            "workspace_id": order.workspace_id,
            "project_id": order.chain.project_id,
            "subject": order.subject,
            "purpose": order.purpose.value,
            "budget_ids": list(order.chain.budgets),
            "routes": dict(order.routes),
            "egress": order.egress,
            "facts": dict(order.facts),
            "expires_at": order.expires_at,
        },
    )
    return made


async def find(session: AsyncSession, secret: str) -> Key | None:
    """Returns the key of a secret; None when it is unknown, revoked or expired."""
    if not secret.startswith(PREFIX):
        return None
    row = await store.valid(session, _hash(secret))
    return None if row is None else _key(row)


async def hold(session: AsyncSession, key: Key) -> bool:
    """Says whether the key still holds, and lets no revocation pass before this transaction has ended."""
    return await store.still_valid(session, key.id)


async def revoke(session: AsyncSession, subjects: Sequence[str]) -> int:
    """Revokes every key of these subjects, in the transaction that ends them; returns how many it were."""
    return await store.revoke(session, subjects) if subjects else 0


async def forget(session: AsyncSession, before: datetime) -> int:
    """Deletes the rows of keys that ended before that moment; returns how many."""
    return await store.forget(session, before)


def _hash(secret: str) -> bytes:
    # The secret has full entropy: a slow hash would add nothing.
    return hashlib.sha256(secret.encode()).digest()


def _key(row: VirtualKeyRow) -> Key:
    return Key(
        id=row.id,
        workspace_id=row.workspace_id,
        subject=row.subject,
        purpose=CallPurpose(row.purpose),
        chain=Chain(row.project_id, tuple(row.budget_ids)),
        routes=row.routes,
        egress=row.egress,
        facts=row.facts,
    )
