"""Make TCP sockets of ranks: resolve addresses, set options, bind a rank's port."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from ringcast.net.ports import BACKLOG
from ringcast.wire.transport_kinds import TCP

KEEPALIVE = 60  # seconds after which an idle connection sends a probe
SILENCE = 60_000  # ms without an answer after which an attempt to connect is given up
HELD = 1 << 20  # bytes that the kernel takes of several connections, beyond the sent ones; a rank may send them unasked
_NOTSENT_LOWAT = 25  # Linux's TCP_NOTSENT_LOWAT, which `socket` has from Python 3.12 on
# In struct tcp_info: the round trip in microseconds; a segment's bytes, segments under way and allowed, bytes not sent.
_U32, _RTT_AT, _QUEUE_AT, _INFO_SIZE = struct.Struct("=I"), 68, (16, 24, 80, 144), 148
_NOT_HERE = errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT
_UNDER_WAY = (0, errno.EINPROGRESS)

Address: TypeAlias = tuple[socket.AddressFamily, Any]


def resolve(text: str) -> list[Address]:
    """Return the addresses of `tcp://HOST:PORT`, one or more; a port `*` is any free one. Blocks if the host is a name.

    >>> [address[:2] for text in ("tcp://127.0.0.1:5", "tcp://[::1]:*") for _, address in resolve(text)]
    [('127.0.0.1', 5), ('::1', 0)]

    Raises:
        OSError: the text is no such address, or the name cannot be resolved.
    """
    host, _, port = text.removeprefix(TCP.scheme).rpartition(":")
    number = 0 if port == "*" else int(port) if port.isascii() and port.isdigit() else -1
    if not text.startswith(TCP.scheme) or not host or not 0 <= number <= 65535:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    try:
        found = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part of the name is empty, or longer than 63 characters
        raise OSError(errno.EINVAL, f"{host!r} is no name of a host") from None
    return [(family, address) for family, _, _, _, address in found]


def with_route(addresses: Sequence[Address]) -> Address:
    """Return the first address to which this host has a route, as it may have none for IPv6; else the first one."""
    return next(filter(_has_route, addresses), addresses[0])


def _has_route(address: Address) -> bool:
    try:
        with socket.socket(address[0], socket.SOCK_DGRAM) as probe:
            probe.connect(address[1])  # a datagram socket: nothing is sent
    except OSError:
        return False
    return True


def listen(binds: Sequence[str]) -> tuple[socket.socket, str]:
    """Listen at the first address whose port is free; return the socket, and its address as text.

    If a name has several addresses, the first one that this host has is bound.

    Raises:
        OSError: an address cannot be bound for another reason; or (EADDRINUSE) every port is taken.
    """
    for i, text in enumerate(binds, start=1):
        try:
            sock = _bound(resolve(text))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or i == len(binds):
                raise
        else:
            break
    sock.setblocking(False)
    host, port = sock.getsockname()[:2]
    return sock, f"{TCP.scheme}{f'[{host}]' if ':' in host else host}:{port}"


def _bound(addresses: Sequence[Address]) -> socket.socket:
    for i, (family, address) in enumerate(addresses, start=1):
        try:
            return socket.create_server(address, family=family, backlog=BACKLOG)
        except OSError as error:
            if error.errno not in _NOT_HERE or i == len(addresses):
                raise
    raise AssertionError("a name that is known has an address")


def connecting(address: Address) -> socket.socket:
    """Return a socket that has begun to connect.

    Raises:
        OSError: the attempt fails at once.
    """
    sock = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        _prepare(sock)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE)
        code = sock.connect_ex(address[1])
        if code not in _UNDER_WAY:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


def established(sock: socket.socket) -> None:
    """Let a connection live as long as its peer's kernel answers.

    TCP_USER_TIMEOUT would also end a connection whose peer computes for that long, and takes no data meanwhile.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def round_trip(sock: socket.socket) -> float:
    """Return the seconds that the kernel has measured, by now, for the round trip of a connection; 0 if none."""
    try:
        (micro,) = _U32.unpack_from(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_AT + _U32.size), _RTT_AT)
    except (AttributeError, OSError, struct.error):  # not Linux, or a sandbox
        return 0.0
    return float(micro) / 1e6


def round_trips(sock: socket.socket) -> float:
    """Return for how many round trips a connection has bytes to send, as fast as it is now; below 1 it sends at once.

    0 where the kernel does not tell.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_SIZE)
        segment, flying, window, waiting = (int(_U32.unpack_from(info, at)[0]) for at in _QUEUE_AT)
    except (AttributeError, OSError, struct.error):
        return 0.0
    return (flying + waiting / max(segment, 1)) / max(window, 1)


def hold_little(sock: socket.socket, count: int) -> None:
    """Let the kernel take few bytes of one of `count` connections beyond those that it can send now.

    So each of them takes as much as it can carry, and little waits behind a lost packet.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may not have it
            sock.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, HELD // count)


def accepted(sock: socket.socket) -> None:
    """Prepare the other end of a connection."""
    sock.setblocking(False)
    _prepare(sock)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # NAT and firewalls drop the state of idle connections; probes keep ours.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE)
