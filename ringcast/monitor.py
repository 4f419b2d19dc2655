"""What a monitor of ZeroMQ's tells. pyzmq's own reader imports asyncio, which takes longer than a handshake."""

from __future__ import annotations

from struct import Struct

import zmq

_FACT = Struct("=HI")  # number of the event, and a value that goes with it


def told(monitor: zmq.Socket[bytes]) -> zmq.Event:
    """Return the event that the socket of a monitor has next."""
    fact, _address = monitor.recv_multipart()
    return zmq.Event(_FACT.unpack(fact)[0])
