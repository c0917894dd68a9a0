"""Provider records: where a provider is, how it behaves, and which secret opens it.

The environment makes those of the well-known providers, an operator's file adds others, and one of scripts is always
there. A model is named `provider:model` everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import SecretStr

from tollbar.gateway.dialects import Dialect
from tollbar.gateway.errors import InvalidModelName, ProviderNotFound, UnsupportedProvider
from tollbar.gateway.traits import Kind, Traits

SCRIPTED: Final = "scripted"


@dataclass(frozen=True)
class SecretRef:
    """Where a provider's secret is: its value from the environment, or its name in the vault."""

    value: SecretStr | None = None
    vault_name: str | None = None


@dataclass(frozen=True)
class Provider:
    """One record. `base_url` is origin and path prefix; with or without the version that its paths begin with."""

    id: str
    base_url: str
    traits: Traits
    dialects: frozenset[Dialect]
    secret: SecretRef = field(default_factory=SecretRef)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    proxy: str | None = None
    ca_file: str | None = None
    stream_usage: bool = True
    """False: its streams report no usage, so a streaming chat call is refused under a cap."""
    bills_errors: bool = False
    max_concurrent: int | None = None
    """Calls at once in one process; further ones wait."""
    source: str = "built in"

    @property
    def is_scripted(self) -> bool:
        return self.traits.kind is Kind.SCRIPTED

    def url(self, path: str, query: str = "") -> str:
        """Returns the address of a path such as `/v1/messages`; a version that ends the prefix is not doubled."""
        base = self.base_url.rstrip("/")
        version = path[: path.index("/", 1)]
        whole = base + (path.removeprefix(version) if base.endswith(version) else path)
        return f"{whole}?{query}" if query else whole


@dataclass(frozen=True)
class ModelName:
    """`provider:model` in its two parts; of a scripted model the second one is the script's name."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model(text: object) -> ModelName:
    """Reads `provider:model`, split at the first colon. Raises `InvalidModelName`, `UnsupportedProvider`."""
    provider, colon, model = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not provider or not model or not provider.isprintable() or not model.isprintable():
        raise InvalidModelName(text)
    refuse_unsupported(provider)
    return ModelName(provider, model)


_UNSUPPORTED: Final = {
    "azure": "Azure OpenAI names deployments instead of models, so no price follows from the name",
    "bedrock": "Amazon Bedrock signs requests with AWS credentials and has paths of its own",
    "vertex": "Vertex AI needs a Google service account's short-lived tokens and regional paths",
}
_ALSO: Final = {"azure-openai": "azure", "aws": "bedrock", "aws-bedrock": "bedrock", "google-vertex": "vertex"}


def refuse_unsupported(name: str) -> None:
    """Raises `UnsupportedProvider` for a provider that is known and does not work yet, with the reason."""
    known = _ALSO.get(name.lower(), name.lower())
    if known in _UNSUPPORTED:
        raise UnsupportedProvider(name, _UNSUPPORTED[known])


_OPENAI_DIALECTS: Final = frozenset({Dialect.CHAT, Dialect.RESPONSES})
DIALECTS: Final[Mapping[Kind, frozenset[Dialect]]] = {
    Kind.OPENAI: _OPENAI_DIALECTS,
    Kind.OPENAI_COMPATIBLE: frozenset({Dialect.CHAT}),
    Kind.ANTHROPIC: frozenset({Dialect.MESSAGES}),
    Kind.ANTHROPIC_COMPATIBLE: frozenset({Dialect.MESSAGES}),
    Kind.GOOGLE: frozenset({Dialect.GEMINI}),
    Kind.SCRIPTED: frozenset(Dialect),
}
"""What a provider of each kind serves unless its record says otherwise."""


@dataclass(frozen=True)
class _Known:
    kind: Kind
    base_url: str
    variables: tuple[str, ...]
    output_limit_field: str = "max_completion_tokens"


WELL_KNOWN: Final[Mapping[str, _Known]] = {
    "openai": _Known(Kind.OPENAI, "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "anthropic": _Known(Kind.ANTHROPIC, "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",)),
    "google": _Known(
        Kind.GOOGLE, "https://generativelanguage.googleapis.com/v1beta", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "mistral": _Known(Kind.OPENAI_COMPATIBLE, "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), "max_tokens"),
    "openrouter": _Known(Kind.OPENAI_COMPATIBLE, "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), "max_tokens"),
}


def from_environment(environ: Mapping[str, str]) -> list[Provider]:
    """Returns the records of the well-known providers whose keys are set."""
    found: list[Provider] = []
    for name, known in WELL_KNOWN.items():
        value = next((environ[variable] for variable in known.variables if environ.get(variable)), None)
        if value is not None:
            traits = Traits(known.kind, name, known.output_limit_field)
            secret = SecretRef(value=SecretStr(value))
            dialects = DIALECTS[known.kind]
            found.append(Provider(name, known.base_url, traits, dialects, secret, source="environment"))
    return found


_SCRIPTED: Final = Provider(
    SCRIPTED, "http://scripted.invalid/v1", Traits(Kind.SCRIPTED, SCRIPTED), DIALECTS[Kind.SCRIPTED]
)


@dataclass(frozen=True)
class Providers:
    """The records of an installation. Of two with one id the later one holds, as a file's over the environment's."""

    records: Mapping[str, Provider]

    @classmethod
    def of(cls, records: Sequence[Provider]) -> Providers:
        """Returns these, and the one of scripts."""
        return cls({record.id: record for record in (_SCRIPTED, *records)})

    def get(self, provider: str) -> Provider:
        """Returns a record. Raises `ProviderNotFound` with what would bring it."""
        found = self.records.get(provider)
        if found is None:
            refuse_unsupported(provider)
            known = WELL_KNOWN.get(provider)
            raise ProviderNotFound(provider, None if known is None else known.variables[0])
        return found
