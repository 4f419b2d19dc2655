"""Parse the hosts that the user names, and decide which rank runs on which host: pure functions.

No host gets more ranks than it has slots before every host has as many. The name goes to ssh, so a text that ssh, or a
shell, could take for anything but a name is refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import AddressValueError, IPv6Address
from itertools import islice
from typing import Literal

from ringcast._util import input_files
from ringcast._util.dataclass import dataclass
from ringcast.net import interfaces
from ringcast.net.host_ranges import MOST, expand, items

_ITEM = re.compile(  # a name never begins with "-", as an option does
    r"(?P<user>(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?)"
    r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\])"
    r"(?::(?P<slots>.*))?"
)
_LIMITS = ("max_slots", "max-slots")  # Open MPI's

How = Literal["block", "cyclic"]


class HostError(Exception):
    """The hosts or the placement are invalid; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host by its name for ssh (`name`, `user@name`; IPv6 without brackets), and its number of slots."""

    name: str
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of a rank: number and name of its host, its number among the host's ranks, and their number."""

    rank: int
    node: int
    host: str
    local_rank: int
    local_size: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of a list such as "a:4,b"; a host without a number has one slot, one named again adds its slots.

    Ranges in brackets are as in Slurm's lists: h[1-3,7] or r[01-16].

    >>> parse_hosts("a:4,me@b,a,[fe80::1]:2")
    (Host(name='a', slots=5), Host(name='me@b', slots=1), Host(name='fe80::1', slots=2))
    >>> [host.name for host in parse_hosts("h[08-10,12]")]
    ['h08', 'h09', 'h10', 'h12']

    Raises:
        HostError: an item is no host.
    """
    return merged(_host(each) for item in items(text) for each in _expanded(item.strip()))


def read_hostfile(text: str, name: str) -> tuple[Host, ...]:
    """Return the hosts of a hostfile: `host`, `host slots=4` or `host:4` in each line, and comments after #.

    Raises:
        HostError: a line is none of these, or there is no host; its text begins with the file's `name` and the line.
    """
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].split():
            try:
                hosts.extend(_line([each, *words[1:]]) for each in _expanded(words[0]))
            except HostError as error:
                raise HostError(f"{name}:{number}: {error}") from None
    if not hosts:
        raise HostError(f"{name}: there is no host in it; a line is `host slots=4`, for example")
    return merged(hosts)


def listed(hosts: Sequence[str] | None, hostfile: str | None) -> tuple[Host, ...]:
    """Return the hosts of all options -H together, or of --hostfile; none if neither is given.

    Raises:
        HostError: both are given, or one is invalid.
    """
    if hosts is not None and hostfile is not None:
        raise HostError("give either -H or --hostfile")
    if hosts is not None:
        return _of_option(",".join(hosts))
    if hostfile is None:
        return ()
    try:
        return read_hostfile(input_files.read(hostfile).decode(), hostfile)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise HostError(f"--hostfile {hostfile}: {why}") from None


def merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Return each host once, at its first place in the list, with the sum of the slots of all its entries."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return tuple(Host(name, each) for name, each in slots.items())


def _of_option(text: str) -> tuple[Host, ...]:
    try:
        return parse_hosts(text)
    except HostError as error:
        raise HostError(f"-H {error}") from None


def is_own(host: str, own: str) -> bool:
    """Return whether a name that a user wrote means this machine, whose hostname is `own`; no name server is asked.

    >>> [is_own(host, "a.lab") for host in ("localhost", "a", "a.lab", "b", "me@a")]
    [True, True, True, False, False]
    """
    if host in ("localhost", own, own.partition(".")[0]):
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return address.is_loopback or any(o.address == address for o in interfaces.own_addresses())
    return False


def place(
    hosts: Sequence[Host], size: int | None = None, how: How = "block", per_node: int | None = None
) -> tuple[Placement, ...]:
    """Return the placement of each rank; without a size there are as many ranks as slots, or `per_node` on every host.

    "block" fills one host after the other; "cyclic" deals the ranks round the hosts that have slots left. More ranks
    than slots are spread in proportion to the slots. The hosts that have ranks are always the first ones.

    >>> [(p.rank, p.host, p.local_rank) for p in place(parse_hosts("a:2,b:1"), how="cyclic")]
    [(0, 'a', 0), (1, 'b', 0), (2, 'a', 1)]

    Raises:
        HostError: the size is not positive, or differs from `per_node` times the number of hosts.
    """
    slots = _room(hosts, size, per_node)
    total = sum(slots) if size is None else size
    order = _block(slots) if how == "block" else _cyclic(slots)
    nodes = list(islice(order, total))
    sizes, before = Counter(nodes), Counter[int]()
    places = []
    for rank, node in enumerate(nodes):
        places.append(Placement(rank, node, hosts[node].name, before[node], sizes[node]))
        before[node] += 1
    return tuple(places)


def oversubscribed(hosts: Sequence[Host], size: int) -> str:
    """Return a warning if there are more ranks than slots; empty if there are not.

    >>> oversubscribed(parse_hosts("a:2,b:1"), 4).partition(", which")[0]
    'the hosts have 3 slots for 4 ranks'
    >>> oversubscribed(parse_hosts("a:2,b:1"), 3)
    ''
    """
    slots = sum(host.slots for host in hosts)
    count = f"{slots} slot{'s' if slots != 1 else ''} for {size} ranks"
    fix = "name more slots (HOST:SLOTS) to say that this is wanted, or more hosts"
    return f"the hosts have {count}, which share the processors; {fix}" if size > slots else ""


def _room(hosts: Sequence[Host], size: int | None, per_node: int | None) -> list[int]:
    """Return how many ranks each host can take; the sum is at least the number of ranks."""
    if not hosts:
        raise HostError("there is no host to run on")
    if size is not None and size < 1:
        raise HostError(f"{size} ranks: at least one is needed")
    if per_node is not None:
        if per_node < 1:
            raise HostError(f"{per_node} ranks per host: at least one is needed")
        total = per_node * len(hosts)
        if size not in (None, total):
            raise HostError(
                f"{per_node} ranks on each of {len(hosts)} hosts are {total}, not {size}; give only one of them"
            )
        return [per_node] * len(hosts)
    slots = [host.slots for host in hosts]
    return slots if size is None or size <= sum(slots) else _spread(slots, size)


def _spread(slots: Sequence[int], size: int) -> list[int]:
    """Return how many ranks each host takes, in proportion to its slots, rounded down or up."""
    total, before, counts = sum(slots), 0, []
    for each in slots:
        counts.append(size * (before + each) // total - size * before // total)
        before += each
    return counts


def _block(slots: Sequence[int]) -> Iterator[int]:
    return (node for node, each in enumerate(slots) for _ in range(each))


def _cyclic(slots: Sequence[int]) -> Iterator[int]:
    return (node for turn in range(max(slots)) for node, each in enumerate(slots) if turn < each)


def _expanded(item: str) -> list[str]:
    try:
        return expand(item)
    except ValueError as error:
        raise HostError(str(error)) from None


def _line(words: Sequence[str]) -> Host:
    """Return the host of a line of a hostfile."""
    item, *settings = words
    if not settings:
        return _host(item)
    if any(setting.startswith(_LIMITS) for setting in settings):
        raise HostError("there is no max_slots here; slots= says how many ranks the host takes, so write only that")
    key, equals, value = settings[0].partition("=")
    if key != "slots" or not equals or len(settings) > 1:
        raise HostError(f"{' '.join(settings)!r}: after the host nothing but slots=NUMBER is expected")
    name, slots = _parts(item)
    if slots is not None:
        raise HostError(f"{' '.join(words)!r} gives the slots twice; write `host slots=4` or `host:4`")
    return Host(name, _number(value, settings[0]))


def _host(item: str) -> Host:
    name, slots = _parts(item)
    return Host(name, 1 if slots is None else _number(slots, item))


def _parts(item: str) -> tuple[str, str | None]:
    """Split an item into the name and the text after its colon (None: no colon)."""
    if not item:
        raise HostError("a host is missing: expected are names such as a:4,b (no comma too many)")
    if (match := _ITEM.fullmatch(item)) is None:
        raise HostError(
            f"{item!r} is no host; expected is NAME, NAME:SLOTS or USER@NAME, with letters, digits and ._- only"
        )
    user, name, slots = match["user"], match["name"], match["slots"]
    if slots is not None and ":" in slots and not name.startswith("["):
        raise HostError(f"{item!r} has several colons; an IPv6 address is written in brackets, as [fe80::1]:4")
    return user + (_address(name, item) if name.startswith("[") else name), slots


def _address(brackets: str, item: str) -> str:
    """Return the IPv6 address in brackets in its canonical form, as it goes to ssh."""
    try:
        return str(IPv6Address(brackets[1:-1]))
    except AddressValueError:
        raise HostError(f"{item!r}: {brackets} is no IPv6 address") from None


def _number(text: str, item: str) -> int:
    slots = int(text) if re.fullmatch("[0-9]{1,6}", text) else 0
    if not 1 <= slots <= MOST:
        raise HostError(f"{item!r}: {text!r} is no number of slots; expected is 1 to {MOST}")
    return slots
