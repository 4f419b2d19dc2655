"""Ports of this host at which a program listens later."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import random
import socket

_FIRST, _COUNT = 10_000, 100
_BLOCKS = 220  # of _COUNT ports each; all are below Linux's range of ephemeral ports


def _claim() -> tuple[socket.socket, int]:
    """Return a socket whose name, without a file, says that the ports of a block are ours, and the first of them."""
    while True:
        first = _FIRST + _COUNT * random.SystemRandom().randrange(_BLOCKS)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0ringcast-ports-{first}")
        except OSError:
            claim.close()
        else:
            return claim, first


_CLAIM, _START = _claim()  # at the import, as a test may leave no open file
atexit.register(_CLAIM.close)  # else Python warns at the end
_PORTS = itertools.cycle(range(_START, _START + _COUNT))


def free_port() -> int:
    """Return a port that is free now.

    Linux gives it to no connection meanwhile, and `free_port` of no other process, but for forks of this one, returns
    it as long as this one lives.
    """
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("a cycle ends")
