"""Which addresses lie on the public internet. Whoever connects for somebody else asks here first."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_CLOSED: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "::/8",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
"""Everything that is not for the public internet, by the special-purpose registries; Python's own tables lag behind."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")


def is_public(text: str, also_closed: Iterable[str] = ()) -> bool:
    """Says whether an address is on the public internet; `also_closed` are addresses of one's own that are not.

    An IPv6 form that carries an IPv4 address (mapped, NAT64, 6to4) is judged by that one. What is no address is not
    public.
    """
    try:
        address = _inner(ip_address(text.partition("%")[0]))
    except ValueError:
        return False
    return not any(address in network for network in _CLOSED if network.version == address.version) and (
        address not in {_inner(ip_address(own)) for own in also_closed}
    )


def is_address(text: str) -> bool:
    """Says whether a host is written as an address, in whatever form resolvers take for one (`127.1`, `0x7f000001`)."""
    host = text.strip("[]")
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        last = host.rstrip(".").rpartition(".")[2]
        return last.isdigit() or last[:2].lower() == "0x"
    return True


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return address
