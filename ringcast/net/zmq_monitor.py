"""Read events of ZeroMQ's socket monitors; pyzmq's own reader imports asyncio, which takes longer than a handshake."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import zmq

_FACT = Struct("=HI")  # number of the event, and a value that goes with it


class MonitorEvent(NamedTuple):
    """An event of a connection, its address, and a value: the file descriptor, if it was accepted or has ended."""

    event: zmq.Event
    value: int
    address: bytes


def read_event(monitor: zmq.Socket[bytes]) -> MonitorEvent:
    """Return the next event of a monitor's socket."""
    data, address = monitor.recv_multipart()
    number, value = _FACT.unpack(data)
    return MonitorEvent(zmq.Event(number), value, address)


def read_event_type(monitor: zmq.Socket[bytes]) -> zmq.Event:
    """Return the type of the next event of a monitor's socket."""
    return read_event(monitor).event
