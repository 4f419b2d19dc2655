"""Ranks that are threads, on hosts of their choice; and the memory of shared arrays that this process maps."""

from __future__ import annotations

import threading

from ringcast import Communicator

HOST = threading.local()  # of the rank that this thread runs


def color_of_host() -> int:
    """Return the colour of the host of this thread's rank."""
    return int(getattr(HOST, "number", 0))


def go_to_host(comm: Communicator, hosts: int) -> int:
    """Have this rank be on one of so many hosts, in turn; return its number."""
    HOST.number = comm.members[comm.rank] % hosts
    return color_of_host()


def mapped() -> list[str]:
    """Return the lines of /proc about shared arrays."""
    with open("/proc/self/maps") as lines:
        return [line for line in lines if "memfd:ringcast-array" in line]
