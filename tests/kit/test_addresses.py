"""The public internet, and everything that only looks like it."""

import pytest

from tollbar.kit.addresses import is_address, is_public


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_of_the_internet_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.8.8.8", "169.254.169.254",
        "172.16.0.1", "172.31.255.255", "192.0.0.9", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
        "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::10.0.0.1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:a00:1::", "2002:7f00:1::1", "3fff::1", "fc00::1",
        "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "", "example.com", "10.0.0.1.",
    ],
)  # fmt: skip
def test_everything_else_is_not(address):
    assert not is_public(address)


def test_ones_own_addresses_are_closed_in_every_form():
    assert not is_public("8.8.8.8", also_closed=["8.8.8.8"])
    assert not is_public("::ffff:8.8.8.8", also_closed=["8.8.8.8"])
    assert is_public("8.8.4.4", also_closed=["8.8.8.8"])


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "::1", "[::1]", "fe80::1%lo", "127.1", "2130706433", "0x7f000001", "0x7f.1", "1.2.3.4."]
)
def test_a_host_that_resolvers_take_for_an_address_is_one(host):
    assert is_address(host)


@pytest.mark.parametrize("host", ["example.com", "1password.com", "a.b", "xn--bcher-kva.example"])
def test_a_name_is_none(host):
    assert not is_address(host)
