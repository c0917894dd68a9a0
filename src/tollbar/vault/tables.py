"""Tables of the vault. Values are encrypted; nothing about one can be read from its row but its name."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tollbar.db.base import Base


class VaultSecretRow(Base):
    """One version of a secret. A revoked one has lost its ciphertext, so that no key opens it again."""

    __tablename__ = "vault_secret"
    __table_args__ = (
        UniqueConstraint("workspace_id", "owner", "name", "version"),
        CheckConstraint("(revoked_at IS NULL) = (sealed IS NOT NULL)", name="sealed"),
        CheckConstraint("version > 0", name="version"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ForeignKey("workspace.id"))
    owner: Mapped[str]
    """Whose it is: empty for the workspace's own, else what it belongs to, e.g. `profile:ID:VERSION`."""
    name: Mapped[str]
    version: Mapped[int]
    sealed: Mapped[bytes | None]
    hosts: Mapped[list[str]]
    """Where it may be sent; empty: to the host of whatever uses it."""
    shared: Mapped[bool]
    """New installs may use it without a person's word."""
    made_by: Mapped[str]
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class VaultCheckRow(Base):
    """One known text under the vault's key, by which a wrong key is found out before it is used."""

    __tablename__ = "vault_check"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sealed: Mapped[bytes]
