"""The vault's own key, and the encryption under it: AES-256-GCM, a fresh nonce for each value, bound to its place."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tollbar.vault.errors import VaultKeyMalformed, VaultKeyWrong

KEY_FILE: Final = "vault.key"
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


@dataclass(frozen=True)
class VaultKey:
    """32 bytes. Its representation shows none of them."""

    _bytes: bytes = field(repr=False)

    def encrypt(self, value: str, *, place: str) -> bytes:
        """Returns nonce and ciphertext; only the same `place` opens it again, so rows cannot trade their values."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._bytes).encrypt(nonce, value.encode(), place.encode())

    def decrypt(self, sealed: bytes, *, place: str) -> str:
        """Returns the value. Raises `VaultKeyWrong` for another key, another place, or a changed ciphertext."""
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return AESGCM(self._bytes).decrypt(nonce, ciphertext, place.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise VaultKeyWrong from error


def load_key(data_dir: Path, text: str | None) -> VaultKey:
    """Returns the key that `text` holds as base64 (`TOLLBAR_VAULT_KEY`), else that of the data directory, made once.

    Raises `VaultKeyMalformed`.
    """
    if text is not None:
        return _read(text, "TOLLBAR_VAULT_KEY")
    path = data_dir / KEY_FILE
    _make(path)
    return _read(path.read_text(encoding="ascii", errors="replace"), str(path))


def _make(path: Path) -> None:
    """Writes a new key unless there is one; complete or not at all, whoever else makes it at the same moment."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a renaming it never replaces the key of somebody who was quicker.
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()


def _read(text: str, source: str) -> VaultKey:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise VaultKeyMalformed(source) from error
    if len(key) != KEY_BYTES:
        raise VaultKeyMalformed(source)
    return VaultKey(key)
