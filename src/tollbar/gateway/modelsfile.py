"""`models.toml`: an operator's providers and own prices.

[[provider]] has `id`, `kind` and `base_url`, and may have what `_KNOWN` lists; `secret` names a secret of the vault, or
`env:NAME` a variable of the server. [[price]] is a row of an own price table (`owntable`).
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pydantic import SecretStr

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import InvalidModelsFile
from tollbar.gateway.owntable import OwnTable, own_table
from tollbar.gateway.providers import DIALECTS, Provider, SecretRef, refuse_unsupported
from tollbar.gateway.traits import Kind, Traits

_KNOWN: Final = frozenset(
    {
        "id", "kind", "base_url", "secret", "dialects", "price_provider", "output_limit_field", "stream_usage",
        "bills_errors", "priority_commitment", "multiplier", "regions", "allow_fields", "headers", "proxy", "ca_file",
        "max_concurrent", "private",
    }
)  # fmt: skip
_ID: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z")
_LOOPBACK: Final = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/|\Z)")
_LIMIT_FIELDS: Final = ("max_completion_tokens", "max_tokens")
_SOURCE_DIGITS: Final = 12


@dataclass(frozen=True)
class ModelsFile:
    """What the file says."""

    providers: tuple[Provider, ...]
    prices: tuple[OwnTable, ...]


def read(text: str, environ: Mapping[str, str]) -> ModelsFile:
    """Reads the file's text. Raises `InvalidModelsFile` naming the table and the key, `InvalidPrice`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidModelsFile("the file", f"is not TOML: {error}") from None
    for name in document:
        if name not in {"provider", "price"}:
            raise InvalidModelsFile(name, "is unknown; the tables are [[provider]] and [[price]]")
    providers = tuple(_provider(table, environ) for table in _tables(document, "provider"))
    ids = [provider.id for provider in providers]
    if doubled := sorted({name for name in ids if ids.count(name) > 1}):
        raise InvalidModelsFile("provider", f"has {doubled[0]} twice")
    rows = _tables(document, "price")
    if not rows:
        return ModelsFile(providers, ())
    return ModelsFile(providers, (own_table(f"installation/{_version(rows)}", rows),))


def _version(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the name of a version of prices: the same rows have the same one."""
    whole = json.dumps(rows, sort_keys=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()[:_SOURCE_DIGITS]


def _tables(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InvalidModelsFile(name, f"is not a list of tables [[{name}]]")
    return found


def _provider(table: Mapping[str, Any], environ: Mapping[str, str]) -> Provider:
    name = table.get("id")
    if not isinstance(name, str) or _ID.match(name) is None or name == Kind.SCRIPTED:
        raise InvalidModelsFile("provider.id", "is not a name of small letters, digits, dots and hyphens of its own")
    row = _Row(table, f"provider {name}")
    row.only(_KNOWN)
    kind = row.kind()
    return Provider(
        id=name,
        base_url=row.address(),
        traits=Traits(
            kind,
            row.text("price_provider", name),
            row.choice("output_limit_field", _LIMIT_FIELDS),
            priority_commitment=row.switch("priority_commitment", default=False),
            multiplier=row.number("multiplier", table.get("multiplier", "1")),
            regions={key: row.number(f"regions.{key}", value) for key, value in row.table("regions").items()},
            allow_fields=frozenset(row.texts("allow_fields")),
        ),
        dialects=row.dialects(kind),
        secret=row.secret(environ),
        headers={key.lower(): row.header(key, value) for key, value in row.table("headers").items()},
        proxy=row.text("proxy", "") or None,
        ca_file=row.text("ca_file", "") or None,
        stream_usage=row.switch("stream_usage", default=True),
        bills_errors=row.switch("bills_errors", default=False),
        max_concurrent=row.count("max_concurrent"),
        source="models.toml",
    )


@dataclass(frozen=True)
class _Row:
    """A provider's table while it is read."""

    members: Mapping[str, Any]
    path: str

    def wrong(self, key: str, problem: str) -> InvalidModelsFile:
        return InvalidModelsFile(f"{self.path}.{key}", problem)

    def only(self, known: frozenset[str]) -> None:
        for key in self.members:
            if key not in known:
                raise self.wrong(key, "is unknown")

    def kind(self) -> Kind:
        given = self.members.get("kind")
        if isinstance(given, str):
            refuse_unsupported(given)
        if given not in list(Kind) or given == Kind.SCRIPTED:
            raise self.wrong("kind", f"is none of {', '.join(kind for kind in Kind if kind is not Kind.SCRIPTED)}")
        return Kind(given)

    def text(self, key: str, default: str) -> str:
        value = self.members.get(key, default)
        if not isinstance(value, str) or not value.isprintable():
            raise self.wrong(key, "is not a text")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.members.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(key, "is not a list of texts")
        return value

    def table(self, key: str) -> Mapping[str, Any]:
        value = self.members.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "is not a table")
        return value

    def header(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value.isprintable() or not value.isascii():
            raise self.wrong(f"headers.{key}", "is not a text")
        return value

    def switch(self, key: str, *, default: bool) -> bool:
        value = self.members.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "is not true or false")
        return value

    def count(self, key: str) -> int | None:
        value = self.members.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.wrong(key, "is not a whole number above 0")
        return value

    def choice(self, key: str, names: tuple[str, ...]) -> str:
        value = self.members.get(key, names[0])
        if value not in names:
            raise self.wrong(key, f"is none of {', '.join(names)}")
        return str(value)

    def number(self, key: str, value: object) -> Decimal:
        try:
            found = Decimal(value) if isinstance(value, str) else None
        except InvalidOperation:
            found = None
        if found is None or not found.is_finite() or not 0 < found <= 1000:
            raise self.wrong(key, 'is not decimal text above 0, such as "1.1"')
        return found

    def address(self) -> str:
        value = self.text("base_url", "")
        plain = value.startswith("http://") and self.switch("private", default=False)
        if not value.startswith("https://") and not plain and _LOOPBACK.match(value) is None:
            raise self.wrong("base_url", "begins with https://, or names loopback, or is declared private")
        return value

    def dialects(self, kind: Kind) -> frozenset[Dialect]:
        given = self.texts("dialects")
        if unknown := [one for one in given if one not in list(Dialect)]:
            raise self.wrong("dialects", f"has {unknown[0]}, which is none of {', '.join(Dialect)}")
        return frozenset(map(Dialect, given)) or DIALECTS[kind]

    def secret(self, environ: Mapping[str, str]) -> SecretRef:
        name = self.text("secret", "")
        if not name.startswith("env:"):
            return SecretRef(vault_name=name or None)
        variable = name.removeprefix("env:")
        value = environ.get(variable)
        if not value:
            raise self.wrong("secret", f"names the variable {variable}, which is not set")
        return SecretRef(value=SecretStr(value))
