"""What a runner is: one immutable revision of backend, base, limits, prices and permissions, named by its hash."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from tollbar.kit.clock import wire_time
from tollbar.kit.jsonio import canonical_sha256
from tollbar.kit.money import format_usd
from tollbar.sandboxes.errors import InvalidRunner
from tollbar.sandboxes.interface import Limits, Network

DEFAULT_NAMESPACE: Final = "envhub"
DEFAULT_LABEL: Final = "main"

_PART: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z")
_REFUSED: Final = re.compile(r"\.\.|[:~^?*\[\\{}\s\x00-\x1f\x7f]|@")
_HEAD: Final = re.compile(r"(?:[A-Z]+_)?HEAD(?:/.*)?\Z", re.IGNORECASE)
_REVISION_MAX: Final = 128


@dataclass(frozen=True)
class Description:
    """Everything that makes a revision; a change of any member is another revision.

    Prices are pico-USD per vCPU-second and per GiB-second. `demanded_level` is the weakest enforcement of limits
    (`kernel`, `watched`, `none`) with which a trial may run; `declared_free` says that zero prices are meant.
    """

    backend: str
    base: str
    limits: Limits
    maxima: Limits
    vcpu_second_pusd: int
    gib_second_pusd: int
    demanded_level: str
    allow_base_substitution: bool
    default_network: Network
    networks: tuple[Network, ...]
    capabilities: Mapping[str, bool]
    declared_free: bool

    def facts(self) -> dict[str, Any]:
        """Returns the description as JSON; `revision` is the hash of its canonical form."""
        return {
            "backend": self.backend,
            "base": self.base,
            "limits": asdict(self.limits),
            "maxima": asdict(self.maxima),
            "prices": {"vcpu_second_pusd": self.vcpu_second_pusd, "gib_second_pusd": self.gib_second_pusd},
            "demanded_level": self.demanded_level,
            "allow_base_substitution": self.allow_base_substitution,
            "default_network": self.default_network.value,
            "networks": sorted(network.value for network in self.networks),
            "capabilities": dict(self.capabilities),
            "declared_free": self.declared_free,
        }

    def revision(self) -> str:
        """Returns 64 hex digits."""
        return canonical_sha256(self.facts())


@dataclass(frozen=True)
class Runner:
    """A stored revision; `facts` is its description as JSON and `source_ref` its moving label, if it has one."""

    namespace: str
    short_name: str
    revision: str
    source_ref: str | None
    visibility: str
    facts: Mapping[str, Any]
    created_at: datetime

    @property
    def name(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.short_name}"

    @property
    def backend(self) -> str:
        return str(self.facts["backend"])

    @property
    def allow_base_substitution(self) -> bool:
        return bool(self.facts["allow_base_substitution"])

    @property
    def default_network(self) -> Network:
        return Network(self.facts["default_network"])

    @property
    def limits(self) -> Limits:
        """Returns what a task gets that asks for nothing."""
        return Limits(**self.facts["limits"])

    @property
    def maxima(self) -> Limits:
        """Returns the most that a task gets, whatever it asks for."""
        return Limits(**self.facts["maxima"])

    @property
    def is_free(self) -> bool:
        """Says whether a second of it costs nothing; then no leases are taken."""
        return not any(self.facts["prices"].values())

    def can(self, flag: str) -> bool:
        """Says whether the revision has a capability flag, e.g. `regrade`."""
        return bool(self.facts["capabilities"].get(flag, False))

    def frozen(self) -> dict[str, Any]:
        """Returns what a Job keeps of it: the name, the revision, the label that led to it, and the description."""
        return {"name": self.name, "revision": self.revision, "source_ref": self.source_ref, **self.facts}

    def wire(self) -> dict[str, Any]:
        """Returns the object of GET /runners; prices as decimal text of USD."""
        prices = self.facts["prices"]
        return {
            "name": self.name,
            "revision": self.revision,
            "source_ref": self.source_ref,
            "visibility": self.visibility,
            "created_at": wire_time(self.created_at),
            "backend": self.backend,
            "base": self.facts["base"],
            "capabilities": dict(self.facts["capabilities"]),
            "prices": {
                "usd_per_vcpu_second": format_usd(prices["vcpu_second_pusd"]),
                "usd_per_gib_second": format_usd(prices["gib_second_pusd"]),
                "declared_free": self.facts["declared_free"],
            },
            "limits": dict(self.facts["limits"]),
            "maxima": dict(self.facts["maxima"]),
        }


@dataclass(frozen=True)
class Reference:
    """A runner as somebody named it: `revision` is a hash or a label."""

    namespace: str
    short_name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.short_name}@{self.revision}"


def parse_reference(text: object) -> Reference:
    """Reads `namespace/name@revision`; the namespace and the revision may be left out (`envhub`, `main`).

    Raises `InvalidRunner` for a form that no runner can have.
    """
    if not isinstance(text, str):
        raise InvalidRunner("is not text")
    full_name, at, revision = text.partition("@")
    namespace, slash, short_name = full_name.rpartition("/")
    if not slash:
        namespace = DEFAULT_NAMESPACE
    if not _PART.match(namespace) or not _PART.match(short_name):
        raise InvalidRunner("has a name that is not made of small letters, digits, dots, hyphens and underscores")
    if not at:
        revision = DEFAULT_LABEL
    if not revision or len(revision) > _REVISION_MAX:
        raise InvalidRunner(f"has a revision that is empty or longer than {_REVISION_MAX} characters")
    if revision.startswith("-") or _REFUSED.search(revision) or _HEAD.match(revision):
        raise InvalidRunner("has a revision that no runner can have")
    return Reference(namespace, short_name, revision)
