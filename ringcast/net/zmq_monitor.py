"""What a monitor of ZeroMQ's tells. pyzmq's own reader imports asyncio, which takes longer than a handshake."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import zmq

_FACT = Struct("=HI")  # number of the event, and a value that goes with it


class Fact(NamedTuple):
    """An event, the value that goes with it (of a connection that was accepted or has ended, its file), and where."""

    event: zmq.Event
    value: int
    address: bytes


def fact(monitor: zmq.Socket[bytes]) -> Fact:
    """Return what the socket of a monitor has next."""
    data, address = monitor.recv_multipart()
    number, value = _FACT.unpack(data)
    return Fact(zmq.Event(number), value, address)


def told(monitor: zmq.Socket[bytes]) -> zmq.Event:
    """Return the event that the socket of a monitor has next."""
    return fact(monitor).event
