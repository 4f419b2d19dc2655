"""Choose the address at which a process listens and that it gives to others, and the rendezvous's address.

The default is the address from which the system's routes lead to the rendezvous: the network that leads there leads to
the other ranks. A wish (RINGCAST_IFACE) comes first: interfaces by name, networks as 10.0.0.0/8 or 2001:db8::/32,
several of them separated by commas; or, after a ^, the interfaces (by the beginning of their names) and networks not to
use. Of several addresses that fit the wish, the one that leads to the rendezvous is taken, else the first.

A loopback address means another machine on every machine. So it is taken only if the rendezvous was given as one, and
not if /etc/hosts maps this machine's name to 127.0.1.1, as Debian does. Link-local IPv6 addresses (fe80::) mean nothing
without the name of the own interface, and are never taken.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.errors import ConfigError

IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Route: TypeAlias = Callable[[IP], "IP | None"]

# Addresses for documentation (RFC 5737, RFC 3849) are in no network: packets to them take the default route.
_ELSEWHERE = ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("2001:db8::1")


@dataclass(frozen=True, slots=True)
class Own:
    """An address of this machine, and the interface that has it."""

    interface: str
    address: IP

    def __str__(self) -> str:
        return f"{self.interface} {self.address}"


@dataclass(frozen=True, slots=True)
class Wish:
    """The value of RINGCAST_IFACE, parsed; no items: no wish."""

    items: tuple[str | Network, ...] = ()
    excluding: bool = False
    text: str = ""

    def among(self, own: Sequence[Own]) -> list[Own]:
        """Return the addresses that fit the wish, in the order of its items."""
        if self.excluding:
            return [o for o in own if not any(self._means(item, o) for item in self.items)]
        return list(dict.fromkeys(o for item in self.items for o in own if self._means(item, o)))

    def _means(self, item: str | Network, own: Own) -> bool:
        if isinstance(item, str):
            return own.interface.startswith(item) if self.excluding else own.interface == item
        return own.address.version == item.version and own.address in item


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address at which a process listens, the reason for it, and the address of the rendezvous."""

    address: IP
    why: str
    rendezvous: IP


def parse(text: str) -> Wish:
    """Parse a wish such as eth0, 10.0.0.0/8 or ^docker,lo; "" is no wish.

    Raises:
        ConfigError: an item is empty, or looks like a network and is not one.
    """
    excluding, items = text.startswith("^"), text.removeprefix("^").split(",")
    if not text:
        return Wish()
    if not all(items):
        raise ConfigError(f"interfaces {text!r}: an item is empty; expected eth0, 10.0.0.0/8, or ^docker,lo")
    return Wish(tuple(_network(text, item) if "/" in item or ":" in item else item for item in items), excluding, text)


def decide(host: str, found: Sequence[IP], own: Callable[[], Sequence[Own]], wish: Wish, route: Route) -> ListenAddress:
    """Return the address to listen at in a job whose rendezvous is at `host`.

    Args:
        host: of the rendezvous, as it was given.
        found: the addresses to which this machine resolves that name.
        own: returns the addresses of this machine; called only if they matter.
        wish: the user's RINGCAST_IFACE.
        route: returns the own address from which packets to an address leave; None if there is no route.

    Raises:
        ConfigError: no address fits; the text lists the addresses of this machine.
    """
    if _means_loopback(host):
        return _on_one_machine(found[0], own, wish)
    elsewhere = [address for address in found if not address.is_loopback]
    if not elsewhere:
        return _by_own_name(host, found[0], own(), wish, route)
    rendezvous = _preferred(elsewhere, wish, own)
    if _is_scoped(rendezvous):
        fix = "give the rendezvous by another address"
        raise ConfigError(f"{rendezvous} is a link-local address, which means nothing on other hosts; {fix}")
    routed = route(rendezvous)
    if wish.text:
        alike = sorted(own(), key=lambda o: o.address.version != rendezvous.version)
        here = _wished(wish, alike, [routed], f"other hosts cannot reach it, and the rendezvous is at {rendezvous}")
        return ListenAddress(*_as_wished(here, wish), rendezvous)
    if routed is None:
        raise ConfigError(f"there is no route from here to the rendezvous at {rendezvous}; is the network up?")
    return ListenAddress(routed, "the way to the rendezvous", rendezvous)


def _on_one_machine(rendezvous: IP, own: Callable[[], Sequence[Own]], wish: Wish) -> ListenAddress:
    if not wish.text:
        return ListenAddress(rendezvous, "the rendezvous is on this machine", rendezvous)
    wished = [o for o in wish.among(own()) if not _is_scoped(o.address)]
    if not wished:
        raise _no_match(wish, own())
    return ListenAddress(*_as_wished(wished[0], wish), rendezvous)


def _by_own_name(host: str, loopback: IP, own: Sequence[Own], wish: Wish, route: Route) -> ListenAddress:
    """Return the address to listen at when the rendezvous host is this machine, but its name resolves to loopback here.

    Other hosts reach this machine at another address, which is chosen here.
    """
    why = f"{host} is the name of this machine, but its address here is {loopback}, which other hosts cannot reach"
    routes = [route(address) for address in _ELSEWHERE]
    useful = [o for o in own if _useful(o)]
    if wish.text:
        here = _wished(wish, own, routes, why)
    elif not useful:
        return ListenAddress(loopback, "this machine has no other address", loopback)
    else:
        here = _on_route(useful, routes) or useful[0]
        if here.address not in routes and len({o.interface for o in useful}) > 1:
            raise ConfigError(f"{why}; name the interface by RINGCAST_IFACE or --iface; {_list(own)}")
    return ListenAddress(here.address, f"{here.interface}, as the rendezvous {host} is this machine", here.address)


def place(host: str, wish: str) -> ListenAddress:
    """Return the address to listen at on this machine in a job whose rendezvous is at `host`.

    Args:
        host: a name or an address; IPv6 in brackets.
        wish: the user's RINGCAST_IFACE; "" for none.

    Raises:
        ConfigError: the name cannot be resolved, there is no route, or no interface fits the wish.
    """
    bare = host.strip("[]")
    return decide(bare, resolve(bare), own_addresses, parse(wish), routed)


def towards(candidates: Sequence[IP], wish: str) -> IP:
    """Return the address by which other hosts are to reach this machine.

    It is the first candidate that this machine has and that fits the wish, or else the first address that fits.

    Raises:
        ConfigError: no address fits; the text lists the addresses of this machine.
    """
    own = own_addresses()
    if wish:
        return _wished(parse(wish), own, candidates, "other hosts cannot reach it").address
    here = _on_route([o for o in own if _useful(o)], candidates)
    if here is None:
        raise ConfigError(f"it is not known how other hosts reach this one; --iface names the interface; {_list(own)}")
    return here.address


def resolve(host: str) -> list[IP]:
    """Return the sorted addresses of a host, IPv4 first, so that all ranks choose the same.

    Raises:
        ConfigError: the name cannot be resolved.
    """
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the host name {host!r} of the rendezvous cannot be resolved: {error}") from None
    found = {ipaddress.ip_address(answer[4][0]) for answer in answers}
    return sorted(found, key=lambda address: (address.version, int(address)))


def routed(towards: IP) -> IP | None:
    """Return the own address from which packets to `towards` leave; None if there is no route. Sends nothing."""
    family = socket.AF_INET if towards.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(towards), 9))
            return ipaddress.ip_address(probe.getsockname()[0])
    except OSError:
        return None


def own_addresses() -> list[Own]:
    """Return the addresses of this machine's interfaces that are up."""
    import psutil  # takes 40 ms, for which a job with no wishes does not wait

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    return [
        Own(name, ipaddress.ip_address(address.address))
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]


def in_brackets(address: IP) -> str:
    """Return an address as it is written before a port.

    >>> in_brackets(ipaddress.ip_address("::1"))
    '[::1]'
    """
    return f"[{address}]" if address.version == 6 else str(address)


def _network(text: str, item: str) -> Network:
    try:
        return ipaddress.ip_network(item, strict=False)
    except ValueError as error:
        raise ConfigError(f"interfaces {text!r}: {error}") from None


def _means_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _as_wished(own: Own, wish: Wish) -> tuple[IP, str]:
    return own.address, f"wished by RINGCAST_IFACE={wish.text}"


def _is_scoped(address: IP) -> bool:
    return address.version == 6 and address.is_link_local


def _useful(own: Own) -> bool:
    """Return whether other machines can reach an address as it is written."""
    return not own.address.is_loopback and not _is_scoped(own.address)


def _preferred(found: Sequence[IP], wish: Wish, own: Callable[[], Sequence[Own]]) -> IP:
    """Return the rendezvous's address of the family (IPv4 or IPv6) that the wish allows, if it has one."""
    if not wish.text:
        return found[0]
    families = [o.address.version for o in wish.among(own()) if _useful(o)]
    return min(found, key=lambda address: families.index(address.version) if address.version in families else 99)


def _wished(wish: Wish, own: Sequence[Own], routes: Sequence[IP | None], why: str) -> Own:
    """Return an address that fits the wish; among several, one from which a route leaves.

    Raises:
        ConfigError: no address fits the wish, or other hosts cannot use the ones that do (`why`).
    """
    wished = wish.among(own)
    useful = [o for o in wished if _useful(o)]
    if not wished:
        raise _no_match(wish, own)
    if not useful:
        raise ConfigError(f"interface {wished[0]} (RINGCAST_IFACE={wish.text}) is no use: {why}; {_list(own)}")
    return _on_route(useful, routes) or useful[0]


def _on_route(own: Sequence[Own], routes: Sequence[IP | None]) -> Own | None:
    return next((o for route in routes for o in own if o.address == route), None)


def _no_match(wish: Wish, own: Sequence[Own]) -> ConfigError:
    return ConfigError(f"no interface is as wished by RINGCAST_IFACE={wish.text}; {_list(own)}")


def _list(own: Sequence[Own]) -> str:
    return f"there are: {', '.join(map(str, own)) or 'none'}"
