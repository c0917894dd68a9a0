"""Why a secret is not taken, and why the vault does not open. No error says a word of a value."""

from __future__ import annotations

from tollbar.kit.errors import TollbarError


class InvalidSecret(TollbarError):
    """The name or the value of a secret has a wrong form; `problem` says what is allowed, never what was given."""

    code = "INVALID_SECRET"
    status = 422

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"The {field} of the secret {problem}.", fields=[{"path": field, "problem": problem}])


class VaultKeyWrong(TollbarError):
    """The vault's key is not the one that the stored secrets were encrypted with: nothing starts with it."""

    code = "VAULT_KEY_WRONG"
    status = 500

    def __init__(self) -> None:
        super().__init__(
            "The vault's key does not fit the secrets in the database.",
            hint="Give the key of this installation: the file vault.key of its data directory, or TOLLBAR_VAULT_KEY.",
        )


class VaultKeyMalformed(TollbarError):
    """The vault's key has a wrong form; `source` is the file or the variable that holds it."""

    code = "VAULT_KEY_MALFORMED"
    status = 500

    def __init__(self, source: str) -> None:
        super().__init__(
            f"{source} holds no vault key: 32 bytes as base64.",
            hint="Make one with: head -c 32 /dev/urandom | base64",
        )
