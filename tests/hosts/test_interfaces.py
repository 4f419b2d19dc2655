"""The address at which a rank listens: the decision over made-up machines, then on emulated hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import pytest

from ringcast.errors import ConfigError
from ringcast.net.interfaces import IP, ListenAddress, Own, decide, own_addresses, parse, place, routed, towards


def ip(text: str) -> IP:
    return ipaddress.ip_address(text)


def machine(text: str) -> list[Own]:
    """Return the addresses in a text such as "lo 127.0.0.1, eth0 10.0.0.1"."""
    return [Own(item.split()[0], ip(item.split()[1])) for item in text.split(", ")]


CLUSTER = machine(
    "lo 127.0.0.1, lo ::1, docker0 172.17.0.1, eth0 192.168.5.7, eth0 2001:db8:5::7, eth0 fe80::7%eth0, ib0 10.1.0.7"
)
ROUTES = {"10.": "10.1.0.7", "192.": "192.168.5.7", "2001:db8:": "2001:db8:5::7", "127.": "127.0.0.1", "::1": "::1"}


def by(routes: Mapping[str, str], address: IP) -> IP | None:
    return next((ip(own) for start, own in routes.items() if str(address).startswith(start)), None)


def chosen(
    host: str, found: str, wish: str = "", own: Sequence[Own] = CLUSTER, routes: Mapping[str, str] = ROUTES
) -> ListenAddress:
    addresses = [ip(text) for text in found.split()]
    return decide(host, addresses, lambda: own, parse(wish), lambda address: by(routes, address))


@pytest.mark.parametrize(
    ("host", "found", "wish", "address"),
    [
        ("10.1.0.1", "10.1.0.1", "", "10.1.0.7"),
        ("head", "192.168.5.1", "", "192.168.5.7"),
        ("head", "192.168.5.1 2001:db8:5::1", "", "192.168.5.7"),  # IPv4 first
        ("2001:db8:5::1", "2001:db8:5::1", "", "2001:db8:5::7"),
        ("head", "192.168.5.1", "ib0", "10.1.0.7"),
        ("head", "192.168.5.1", "10.0.0.0/8", "10.1.0.7"),
        ("head", "192.168.5.1", "nic9,10.0.0.0/8,eth0", "192.168.5.7"),  # the one with the route
        ("head", "192.168.5.1", "nic9,docker0,10.0.0.0/8", "172.17.0.1"),  # else the first
        ("head", "2001:db8:5::1", "docker0,ib0", "172.17.0.1"),
        ("head", "192.168.5.1", "2001:db8::/32", "2001:db8:5::7"),
        ("head", "192.168.5.1 2001:db8:5::1", "2001:db8::/32", "2001:db8:5::7"),
        ("head", "192.168.5.1", "^docker,lo", "192.168.5.7"),  # of those that are left, the one with the route
        ("head", "192.168.5.1", "^docker,lo,192.168.0.0/16,2001::/16", "10.1.0.7"),
        ("head", "192.168.5.1", "eth0", "192.168.5.7"),
        ("127.0.0.1", "127.0.0.1", "", "127.0.0.1"),
        ("localhost", "127.0.0.1 ::1", "", "127.0.0.1"),
        ("::1", "::1", "", "::1"),
        ("127.0.0.1", "127.0.0.1", "eth0", "192.168.5.7"),
        ("127.0.0.1", "127.0.0.1", "lo", "127.0.0.1"),
        ("me", "127.0.1.1", "", "192.168.5.7"),  # /etc/hosts as Debian writes it: the default route tells
        ("me", "127.0.1.1 192.168.5.7", "", "192.168.5.7"),
        ("me", "127.0.1.1", "ib0", "10.1.0.7"),
        ("me", "::1", "^docker", "192.168.5.7"),
    ],
)
def test_the_address_that_is_chosen(host: str, found: str, wish: str, address: str) -> None:
    assert chosen(host, found, wish).address == ip(address)


def test_the_rendezvous_that_is_found() -> None:
    assert chosen("head", "192.168.5.1 2001:db8:5::1").rendezvous == ip("192.168.5.1")
    assert chosen("head", "192.168.5.1 2001:db8:5::1", "2001:db8::/32").rendezvous == ip("2001:db8:5::1")
    assert chosen("head", "127.0.1.1 192.168.5.1").rendezvous == ip("192.168.5.1")
    assert chosen("me", "127.0.1.1").rendezvous == ip("192.168.5.7")  # where rank 0, on this machine, listens


def test_loopback_is_taken_only_where_the_rendezvous_is_one() -> None:
    for host, found in ("head", "192.168.5.1"), ("10.1.0.1", "10.1.0.1"), ("me", "127.0.1.1"):
        for wish in "", "eth0", "ib0", "^lo", "^nothing", "10.0.0.0/8":
            assert not chosen(host, found, wish).address.is_loopback
        with pytest.raises(ConfigError, match=r"interface lo 127\.0\.0\.1 \(RINGCAST_IFACE=lo\) is no use"):
            chosen(host, found, "lo")


@pytest.mark.parametrize(
    ("host", "found", "wish", "words"),
    [
        (
            "head",
            "192.168.5.1",
            "nic9",
            "no interface is as wished by RINGCAST_IFACE=nic9; there are: lo 127",
        ),
        ("127.0.0.1", "127.0.0.1", "nic9", "no interface is as wished by RINGCAST_IFACE=nic9"),
        ("head", "192.168.5.1", "172.16.0.0/16", "no interface is as wished"),
        ("head", "192.168.5.1", "^lo,docker,eth,ib", "no interface is as wished"),
        ("head", "192.168.5.1", "fe80::/10", "is no use"),
        ("fe80::1", "fe80::1", "", "link-local address"),
        ("far", "8.8.8.8", "", r"no route from here to the rendezvous at 8\.8\.8\.8"),
    ],
)
def test_what_cannot_work_is_an_error(host: str, found: str, wish: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        chosen(host, found, wish)


def test_a_machine_whose_name_is_loopback_and_that_has_no_default_route() -> None:
    one, two = machine("lo 127.0.0.1, e0 10.77.0.1"), machine("lo 127.0.0.1, e0 10.77.0.1, e1 10.78.0.1")
    assert chosen("me", "127.0.1.1", own=one, routes={}).address == ip("10.77.0.1")
    assert chosen("me", "127.0.1.1", own=machine("lo 127.0.0.1"), routes={}).address == ip("127.0.1.1")
    with pytest.raises(ConfigError, match=r"name the interface .*; there are: lo .*, e1 10\.78\.0\.1"):
        chosen("me", "127.0.1.1", own=two, routes={})
    assert chosen("me", "127.0.1.1", "e1", own=two, routes={}).address == ip("10.78.0.1")


@pytest.mark.parametrize("text", ["^", ",", "eth0,", "10.0.0.0/33", "10.0.0/8x", "2001:db8::/129", "::x"])
def test_wishes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="interfaces"):
        parse(text)


def test_this_machine_has_the_addresses_that_its_routes_lead_from() -> None:
    own = own_addresses()
    assert ip("127.0.0.1") in {o.address for o in own}
    assert routed(ip("127.0.0.1")) == ip("127.0.0.1")
    assert place("127.0.0.1", "").address == ip("127.0.0.1")
    for o in own:
        if o.address.version == 4:
            assert routed(o.address) is not None
            assert place(str(o.address), "").address.is_loopback == o.address.is_loopback


def test_a_name_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'no-such-host\.invalid' of the rendezvous cannot be resolved"):
        place("no-such-host.invalid", "")


def test_the_address_by_which_others_reach_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [Own("lo", ip("127.0.0.1")), Own("e0", ip("10.0.0.1")), Own("e0", ip("fd00::1")), Own("e1", ip("10.1.0.1"))]
    monkeypatch.setattr("ringcast.net.interfaces.own_addresses", lambda: own)
    elsewhere, seen = ip("198.51.100.1"), ip("10.1.0.1")
    assert towards([elsewhere, seen], "") == seen
    assert towards([seen], "e0,e1") == seen
    assert towards([seen], "e0") == ip("10.0.0.1")
    assert towards([seen], "fd00::/8") == ip("fd00::1")
    for candidates, wish, words in [
        ([elsewhere], "", "--iface names the interface; there are: lo 127.0.0.1, e0 10.0.0.1"),
        ([seen], "lo", "interface lo 127.0.0.1 .* is no use: other hosts cannot reach it"),
        ([seen], "e2", "no interface is as wished by RINGCAST_IFACE=e2"),
    ]:
        with pytest.raises(ConfigError, match=words):
            towards(candidates, wish)
