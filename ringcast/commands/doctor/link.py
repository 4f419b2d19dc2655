"""Check the link between two hosts, and its speed, by a TCP stream of zeros for 0.2 s to a port of the job's.

The listener accepts one connection, waits some seconds, and drops the data.
"""

from __future__ import annotations

import socket
import time

from ringcast.commands.doctor.finding import Finding, fail, ok, warn
from ringcast.net.ports import PortRange

SECONDS = 0.2
WAIT = 5.0  # seconds for a connection: enough for two lost packets
LEAST = 10e6  # bytes per second
_CHUNK = 1 << 16


def listen(host: str, ports: PortRange | None) -> socket.socket:
    """Return a socket that listens at the first free port.

    Raises:
        OSError: no port is free.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.settimeout(WAIT)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    candidates = [*range(ports.first, ports.last + 1)] if ports else [0]
    for port in candidates:
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError:
            if port == candidates[-1]:
                listener.close()
                raise
        else:
            break
    return listener


def receive(listener: socket.socket) -> float:
    """Take one connection and return its bytes per second.

    Raises:
        OSError: no connection, or no more data, came for `WAIT` seconds.
    """
    buffer, count = bytearray(_CHUNK), 0
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(WAIT)
        start = time.monotonic()
        while time.monotonic() < start + WAIT and (got := connection.recv_into(buffer)):
            count += got
        return count / max(1e-9, time.monotonic() - start)


def send(host: str, port: int) -> None:
    """Connect, and send for `SECONDS`.

    Raises:
        OSError: the connection was not made in `WAIT` seconds, or was lost.
    """
    with socket.create_connection((host, port), timeout=WAIT) as connection:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            connection.sendall(bytes(_CHUNK))


def judge(source: str, sink: str, address: str, rate: float, error: str) -> Finding:
    """Judge the link from one host to another by its bytes per second, or by the error of the connection."""
    if error:
        text = f"{source} does not reach {sink} at {address}: {error}"
        return fail("link", text, "open the ports of --port-range in the firewalls, or name another --iface")
    text = f"{source} to {sink}: {rate / 1e6:.0f} MB/s"
    if rate < LEAST:
        return warn("link", text, "look for a faster interface (--iface), or for other programs that use this one")
    return ok("link", text)
