"""What passes between client and provider: an allow-list of request headers, a short list that answers lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tollbar.gateway.traits import Kind

_PASSED: Final = frozenset(
    {
        "accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta",
        "idempotency-key", "x-client-request-id", "x-goog-api-client", "originator", "x-app",
    }
)  # fmt: skip
_PASSED_PREFIXES: Final = ("x-stainless-", "x-codex-", "x-claude-code-")
_DROPPED: Final = frozenset(
    {
        "set-cookie", "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade", "content-length", "openai-organization", "openai-project",
        "anthropic-organization-id",
    }
)  # fmt: skip
_CREDENTIALS: Final = {
    Kind.ANTHROPIC: "x-api-key",
    Kind.ANTHROPIC_COMPATIBLE: "x-api-key",
    Kind.GOOGLE: "x-goog-api-key",
}


def presented(headers: Mapping[str, str], query: Mapping[str, list[str]]) -> str:
    """Returns the virtual key that a client presents, wherever its dialect puts one; empty for none."""
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    given = [
        bearer.strip() if kind.lower() == "bearer" else "",
        headers.get("x-api-key", ""),
        headers.get("x-goog-api-key", ""),
        *query.get("key", [])[:1],
    ]
    return next((one for one in given if one), "")


def outgoing(headers: Mapping[str, str], kind: Kind, secret: str | None, fixed: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of the provider's request: what may pass, the record's own, the real credential.

    Whatever says who is billed is the record's alone, and the answer is never packed: its usage must be readable.
    """
    passed = {name: value for name, value in headers.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    whole = {"content-type": "application/json"} | passed | dict(fixed) | {"accept-encoding": "identity"}
    if secret is not None:
        name = _CREDENTIALS.get(kind, "authorization")
        whole[name] = secret if name != "authorization" else f"Bearer {secret}"
    return whole


def returned(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers of the client's answer.

    Its length is not among them: an event that only reports usage may be left out, and an answer that breaks off must
    not look whole.
    """
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in headers
        if name.lower() not in _DROPPED
    ]
