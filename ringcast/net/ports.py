"""Parse the range of ports that a job may use, and bind the first free one in a rank's own order.

A port counts as free only if it can be bound: between a check and the binding another process could take it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

import zmq

from ringcast._util.dataclass import dataclass

LARGEST = 65535
# Connections that may wait to be accepted, as far as the system allows: all peers of a large job may connect in the
# same moment, and many strangers. A connection without room is not refused: it tries again after 1 s, then 2, 4, … .
BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class PortRange:
    """The ports from `first` to `last`, both included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def order(self, rank: int, size: int) -> Iterator[int]:
        """Yield all ports in the order of a rank; ranks begin at different ports if the range has enough of them.

        >>> list(PortRange(20000, 20004).order(1, 2))
        [20002, 20003, 20004, 20000, 20001]
        """
        count = len(self)
        start = rank * count // size
        return (self.first + (start + i) % count for i in range(count))


def parse(text: str) -> PortRange:
    """Parse a range such as 20000-20063, or 20000 for a single port.

    >>> str(parse("20000-20063")), len(parse("20000"))
    ('20000-20063', 1)

    Raises:
        ValueError: the text is no range of ports from 1 to 65535.
    """
    first, dash, last = text.partition("-")
    if first.isascii() and first.isdigit() and (last.isascii() and last.isdigit() if dash else not last):
        found = PortRange(int(first), int(last or first))
        if 1 <= found.first <= found.last <= LARGEST:
            return found
    raise ValueError(f"{text!r}: expected FIRST-LAST, such as 20000-20063, with ports from 1 to {LARGEST}")


def endpoints(host: str, ports: PortRange | None, rank: int, size: int) -> list[str]:
    """Return the endpoints that a rank tries to bind at `host`, in order; without a range the system chooses a port.

    >>> endpoints("10.0.0.1", None, 0, 1), endpoints("[::1]", PortRange(7, 8), 1, 2)
    (['tcp://10.0.0.1:*'], ['tcp://[::1]:8', 'tcp://[::1]:7'])
    """
    return [f"tcp://{host}:{port}" for port in (ports.order(rank, size) if ports else "*")]


def bind_first(socket: zmq.Socket[bytes], addresses: Sequence[str]) -> None:
    """Bind the socket to the first address whose port is free.

    Raises:
        zmq.ZMQError: an address cannot be bound for another reason; or (EADDRINUSE) every port is taken.
    """
    for i, address in enumerate(addresses, start=1):
        if "[" in address:
            socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or i == len(addresses):
                raise
        else:
            return
