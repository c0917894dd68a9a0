"""Network policies of a task: modes, and allow-lists of hosts in one form."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollbar.datasets.problems import shown
from tollbar.datasets.reader import Table

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_HOST_RULE: Final = (
    "must be a host name, '*.' and a host name, an IP address, or a CIDR range without host bits; no URL, port or path"
)


class NetworkMode(StrEnum):
    """What a phase or a sandbox may reach."""

    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


@dataclass(frozen=True)
class NetworkPolicy:
    """A policy; `mode` None means that the task wrote none, so that the runner decides."""

    mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] = ()


def normal_host(text: str) -> str | None:
    """Returns an entry of an allow-list in its one form (lower case, no trailing dot), or None when it is none."""
    host = text.strip().lower().rstrip(".")
    if "%" in host:
        return None
    try:
        if "/" in host:
            return ipaddress.ip_network(host, strict=True).compressed
        if ":" in host:
            return ipaddress.IPv6Address(host).compressed
    except ValueError:
        return None
    name = host.removeprefix("*.")
    if name != host and _is_address(name):
        return None
    return host if all(_LABEL.match(label) for label in name.split(".")) and len(name) <= 253 else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def read_hosts(table: Table) -> tuple[str, ...] | None:
    """Reads `allowed_hosts`; None when it is absent."""
    values = table.texts("allowed_hosts")
    if values is None:
        return None
    hosts: list[str] = []
    for index, value in enumerate(values):
        host = normal_host(value)
        if host is None:
            table.document.add((*table.path, "allowed_hosts", index), _HOST_RULE, found=shown(value))
        else:
            hosts.append(host)
    return tuple(hosts)


def read_override(table: Table) -> NetworkPolicy | None:
    """Reads `network_mode` and `allowed_hosts` of `[agent]` or `[verifier]`; None when nothing overrides."""
    mode = table.word("network_mode", NetworkMode)
    hosts = read_hosts(table)
    if hosts is not None and mode is not NetworkMode.ALLOWLIST and (hosts or not table.has("network_mode")):
        _needs_allowlist(table)
    return None if mode is None else NetworkPolicy(mode, hosts or ())


def read_baseline(table: Table) -> NetworkPolicy:
    """Reads the network keys of an environment, the legacy `allow_internet` included."""
    mode = table.word("network_mode", NetworkMode)
    hosts = read_hosts(table)
    internet = table.flag("allow_internet")
    if internet is not None and hosts is not None:
        table.problem("allow_internet", "cannot stand beside allowed_hosts; write network_mode instead")
    elif hosts and mode is not NetworkMode.ALLOWLIST:
        _needs_allowlist(table)
    if not table.has("network_mode") and internet is False:
        mode = NetworkMode.NO_NETWORK
    return NetworkPolicy(mode, hosts or ())


def _needs_allowlist(table: Table) -> None:
    table.problem("allowed_hosts", 'is only allowed with network_mode = "allowlist"')
