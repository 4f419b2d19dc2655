"""Wait for files and for sockets of ZeroMQ at once, with the events of `select.poll`."""

from __future__ import annotations

import math
import select
from collections.abc import Mapping
from typing import TypeAlias

import zmq

File: TypeAlias = "int | zmq.Socket[bytes]"


def usable(files: Mapping[File, int], seconds: float) -> set[File]:
    """Return the `files` that can be used as wanted or have ended: at once if there are any, or after `seconds`."""
    poller = zmq.Poller()
    for file, events in files.items():
        poller.register(file, _of_zmq(events))
    return {file for file, _ in poller.poll(max(0, math.ceil(1000 * seconds)))}


def _of_zmq(events: int) -> int:
    """Translate the events of `select.poll` into ZeroMQ's."""
    return (zmq.POLLIN if events & select.POLLIN else 0) | (zmq.POLLOUT if events & select.POLLOUT else 0)
