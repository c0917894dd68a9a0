"""Rules of the vault: who may write a secret, what a secret is, and the one way to use it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.kit.clock import Clock
from tollbar.kit.ids import new_id
from tollbar.vault import store
from tollbar.vault.errors import InvalidSecret, VaultKeyWrong
from tollbar.vault.keys import VaultKey
from tollbar.vault.redactor import MIN_LENGTH, Redactor
from tollbar.vault.tables import VaultSecretRow

WORKSPACE: Final = ""
"""The owner of secrets that belong to the workspace itself."""
MAX_LENGTH: Final = 16_384
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}\Z")
_CHECK: Final = "tollbar vault"


@dataclass(frozen=True)
class SecretView:
    """What may be known of a secret: neither its value, nor its length, nor a hash."""

    name: str
    version: int
    hosts: tuple[str, ...]
    shared: bool
    made_by: str
    created_at: datetime


@dataclass(frozen=True)
class Secret:
    """A secret in use. Its representation does not show the value."""

    name: str
    version: int
    hosts: tuple[str, ...]
    value: str = field(repr=False)


@dataclass(frozen=True)
class Vault:
    """An open vault: its key, and the redactor that knows every value which this process has seen."""

    key: VaultKey
    redactor: Redactor

    async def open(self, session: AsyncSession) -> None:
        """Checks the key against the stored secrets and teaches the redactor all of them; called once, at start.

        Raises `VaultKeyWrong`. A vault without secrets takes any key.
        """
        self._check(await store.check(session))
        await self.learn(session)

    async def learn(self, session: AsyncSession) -> None:
        """Teaches the redactor what other processes wrote since."""
        for row in await store.every_live(session):
            self._reveal(row)

    async def put(
        self,
        session: AsyncSession,
        actor: Principal,
        name: str,
        value: str,
        *,
        clock: Clock,
        owner: str = WORKSPACE,
        hosts: Sequence[str] = (),
        shared: bool = True,
    ) -> SecretView:
        """Writes a new version of a secret; what runs keeps the version that it began with. Needs a transaction.

        Raises `InvalidSecret`.
        """
        check_name(name)
        check_value(value)
        # Before anything is sent: an error of the database could repeat it.
        self.redactor.add(name, value)
        await self._claim(session)
        await store.lock_name(session, actor.workspace_id, owner, name)
        number = await store.last_version(session, actor.workspace_id, owner, name) + 1
        row = VaultSecretRow(
            id=new_id("sec"),
            workspace_id=actor.workspace_id,
            owner=owner,
            name=name,
            version=number,
            hosts=list(hosts),
            shared=shared,
            made_by=actor.key_id,
            created_at=clock.now(),
            revoked_at=None,
        )
        row.sealed = self.key.encrypt(value, place=_place(row))
        await store.add(session, row)
        return _view(row)

    async def list(self, session: AsyncSession, actor: Principal, *, owner: str = WORKSPACE) -> list[SecretView]:
        """Returns the secrets of the actor's workspace by name, each at its newest version."""
        return [_view(row) for row in await store.live(session, actor, owner)]

    async def revoke(
        self, session: AsyncSession, actor: Principal, name: str, *, clock: Clock, owner: str = WORKSPACE
    ) -> bool:
        """Wipes every version of a secret, also for what uses it now; False when there is none."""
        return await store.revoke(session, actor.workspace_id, owner, name, clock.now()) > 0

    async def use(
        self, session: AsyncSession, workspace_id: str, name: str, *, owner: str = WORKSPACE, version: int | None = None
    ) -> Secret | None:
        """Returns a secret to send it where it belongs, never to show it; None when there is none or it was revoked.

        `version` None is the newest. The value is in the redactor before anybody has it.
        """
        found = (
            await store.current(session, workspace_id, owner, name)
            if version is None
            else await store.version(session, workspace_id, owner, name, version)
        )
        return None if found is None else self._reveal(found)

    async def _claim(self, session: AsyncSession) -> None:
        """Makes this key the vault's with its first secret; from then on no other one opens it."""
        await store.add_check(session, self.key.encrypt(_CHECK, place=_CHECK))
        self._check(await store.check(session))

    def _check(self, sealed: bytes | None) -> None:
        if sealed is not None and self.key.decrypt(sealed, place=_CHECK) != _CHECK:
            raise VaultKeyWrong

    def _reveal(self, row: VaultSecretRow) -> Secret | None:
        if row.sealed is None:
            return None
        value = self.key.decrypt(row.sealed, place=_place(row))
        self.redactor.add(row.name, value)
        return Secret(row.name, row.version, tuple(row.hosts), value)


def check_name(name: str) -> None:
    """Raises `InvalidSecret` unless the name is a letter and up to 127 letters, digits and underscores."""
    if _NAME.match(name) is None:
        raise InvalidSecret("name", "is a letter, followed by at most 127 letters, digits and underscores")


def check_value(value: str) -> None:
    """Raises `InvalidSecret` for a value too short to be redacted safely, too long, or with a control character."""
    if not MIN_LENGTH <= len(value) <= MAX_LENGTH:
        raise InvalidSecret("value", f"has between {MIN_LENGTH} and {MAX_LENGTH} characters")
    if any(ord(character) < ord(" ") and character not in "\t\r\n" for character in value):
        raise InvalidSecret("value", "has no control characters but tabs and line ends")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidSecret("value", "is text in UTF-8") from error


def _place(row: VaultSecretRow) -> str:
    return "\n".join((row.id, row.workspace_id, row.owner, row.name, str(row.version)))


def _view(row: VaultSecretRow) -> SecretView:
    return SecretView(row.name, row.version, tuple(row.hosts), row.shared, row.made_by, row.created_at)
