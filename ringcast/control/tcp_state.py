"""The kernel's state of a TCP connection that another library owns (Linux; elsewhere None).

libzmq does not report a connection that is slow, stuck or cut, but it runs in this process: its sockets are among the
descriptors, and are identified by the address of their peer. A descriptor may be closed and used again at any time, by
another thread. So it is duplicated first, and the peer's address is checked on the duplicate.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import stat
import struct
import termios
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ringcast._util.dataclass import dataclass

_INFO = struct.Struct("=8B24I4Q6I")  # the first 160 bytes of struct tcp_info, the same since Linux 4.6
_OWN = "/proc/self/fd"
_UNACKED, _LAST_ACK, _RTT, _RETRANSMITTED, _ACKED, _SEGMENTS, _WITH_DATA = 12, 20, 23, 31, 34, 37, 40  # fields of it

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class TcpState:
    """A connection, as the kernel sees it; times in seconds."""

    queued: int  # bytes that the peer has not acknowledged, sent or not
    flying: int  # segments that were sent, and not acknowledged: 0 with bytes queued means that the window is closed
    silent: float  # since the peer's last segment that was in order; it may be one that the peer has sent again
    answers: int  # grows with all that answers this side: what is acknowledged, and segments without data
    rtt: float  # smoothed round-trip time
    retransmitted: int  # segments ever


def known() -> bool:
    """Return whether this system has these calls: a sandbox, or an emulated kernel, may not.

    If a call failed later, a live connection would be taken for a closed one.
    """
    if not (hasattr(socket, "TCP_INFO") and os.path.isdir(_OWN)):
        return False
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:  # it need not be connected
            of(probe)
    except (OSError, struct.error):
        return False
    return True


def parse(text: str) -> Address | None:
    """Return the address of `tcp://HOST:PORT`; None of anything else, or where the host is a name.

    >>> parse("tcp://127.0.0.1:5")[1], parse("tcp://[::1]:5")[1][:2], parse("tcp://name:5"), parse("ipc:///a")
    (('127.0.0.1', 5), ('::1', 5), None, None)
    """
    scheme, _, place = text.partition("://")
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)  # or else the system would look for a name, and wait
        found = socket.getaddrinfo(host, int(port), flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return None
    return (found[0][0], found[0][4]) if scheme == "tcp" else None


def state(file: int, peer: Address) -> TcpState | None:
    """Return the state of a connection; None if the descriptor is not, or not any more, a connection to `peer`.

    Raises:
        OSError: nothing can be said, as too many files are open.
    """
    try:
        sock = _duplicate(file, peer[0])
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return None
    with suppress(OSError), sock:
        if sock.getpeername()[:2] == peer[1][:2]:
            return of(sock)
    return None


def of(sock: socket.socket) -> TcpState:
    """Return the state of a connection of this process's own."""
    fields = _INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
    return TcpState(
        queued=_queued(sock.fileno()),
        flying=fields[_UNACKED],
        silent=fields[_LAST_ACK] / 1e3,
        answers=fields[_ACKED] + fields[_SEGMENTS] - fields[_WITH_DATA],
        rtt=fields[_RTT] / 1e6,
        retransmitted=fields[_RETRANSMITTED],
    )


def idle(file: int) -> bool:
    """Return whether a descriptor, of any kind, has nothing to send: one system call, for the usual case."""
    try:
        return _queued(file) == 0
    except OSError:
        return False


def find(wanted: Mapping[Address, int], but: Collection[int] = ()) -> dict[int, list[int]]:
    """Return the descriptors of the connections to each of these addresses, by what the mapping has for it.

    Descriptors in `but` are not meant.
    """
    names = {address[1][:2]: (address[0], value) for address, value in wanted.items()}
    families = {family for family, _ in names.values()}
    found: dict[int, list[int]] = {}
    for file in sorted(set(_sockets()) - set(but)):
        for family in families:
            with suppress(OSError), _duplicate(file, family) as sock:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) != family:
                    continue
                _, value = names.get(sock.getpeername()[:2], (family, None))
                if value is not None:
                    found.setdefault(value, []).append(file)
    return found


def _sockets() -> Iterator[int]:
    for name in os.listdir(_OWN):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)


def _duplicate(file: int, family: socket.AddressFamily) -> socket.socket:
    copy = os.dup(file)
    try:
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _queued(file: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(file, termios.TIOCOUTQ, bytes(4)))
    return int(count)
