"""TCP sockets of ranks: addresses, options, the port that a rank binds."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Any, TypeAlias

from ringcast.net.ports import BACKLOG
from ringcast.transports.registry import TCP
from ringcast.transports.zeromq import KEEPALIVE

SILENCE = 60_000  # ms without an answer after which a connection that is being made is given up
_UNDER_WAY = (0, errno.EINPROGRESS)

Address: TypeAlias = tuple[socket.AddressFamily, Any]


def resolve(text: str) -> Address:
    """Return the address of `tcp://HOST:PORT`; a port `*` is any free one. Blocks if the host is a name.

    >>> resolve("tcp://127.0.0.1:5")[1], resolve("tcp://[::1]:*")[1][:2]
    (('127.0.0.1', 5), ('::1', 0))

    Raises:
        OSError: it is no such address, or the name is not known.
    """
    host, _, port = text.removeprefix(TCP.scheme).rpartition(":")
    number = 0 if port == "*" else int(port) if port.isascii() and port.isdigit() else -1
    if not text.startswith(TCP.scheme) or not host or not 0 <= number <= 65535:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    found = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)
    return found[0][0], found[0][4]


def listen(binds: Sequence[str]) -> tuple[socket.socket, str]:
    """Listen at the first address whose port is free; return the socket, and its address as text.

    Raises:
        OSError: an address cannot be bound for another reason; or (EADDRINUSE) every port is taken.
    """
    for i, text in enumerate(binds, start=1):
        family, address = resolve(text)
        try:
            sock = socket.create_server(address, family=family, backlog=BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or i == len(binds):
                raise
        else:
            break
    sock.setblocking(False)
    host, port = sock.getsockname()[:2]
    return sock, f"{TCP.scheme}{f'[{host}]' if ':' in host else host}:{port}"


def connecting(address: Address) -> socket.socket:
    """Return a socket that is being connected.

    Raises:
        OSError: that is not possible.
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

    TCP_USER_TIMEOUT would end it also where the peer computes for so long, and takes nothing meanwhile.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def accepted(sock: socket.socket) -> None:
    """Prepare the other end of a connection."""
    sock.setblocking(False)
    _prepare(sock)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Who keeps state of idle connections (NAT, firewalls) is to keep that of ours.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE)
