"""The transports between processes, by name: RINGCAST_TRANSPORT, `--transport`, and the addresses of inboxes.

Plain data, which launcher and configuration need before anything is opened; `ringcast.bootstrap.inbox` opens them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TransportKind:
    """A way to move frames between processes."""

    name: str
    scheme: str  # with which its addresses begin
    local: bool  # only this user's processes on this host can connect: no key is needed, and nothing is encrypted


SHM = TransportKind("shm", "shm://", local=True)
IPC = TransportKind("ipc", "ipc://", local=True)
TCP = TransportKind("tcp", "tcp://", local=False)
SOCKETS = TransportKind("sockets", TCP.scheme, local=False)  # with the addresses of tcp
ZEROMQ = "zeromq"  # in place of a name: what ZeroMQ has, ipc within a host and tcp between hosts
KINDS: Mapping[str, TransportKind] = MappingProxyType({kind.name: kind for kind in (SHM, IPC, SOCKETS, TCP)})


def kind_of(address: str) -> TransportKind | None:
    """Return the transport of the control plane, which ZeroMQ has, at an address; None if it is of none.

    >>> kind_of("tcp://127.0.0.1:5000").name
    'tcp'
    """
    return next((kind for kind in (IPC, TCP) if address.startswith(kind.scheme)), None)
