"""Collective communication for numpy programs over ZeroMQ, without MPI.

import numpy, ringcast
comm = ringcast.init()                  # in a program started with: ringcast-launch -n 4 program.py
total = comm.allreduce(numpy.arange(5.0) + comm.rank)
"""

from ringcast.communicator import Communicator
from ringcast.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    ConfigError,
    JobAborted,
    LinkLost,
    PeerFailed,
    RendezvousError,
    Revoked,
    RingcastError,
    RunFailed,
    ScheduleError,
    UsageError,
)
from ringcast.ops import BAND, BOR, LAND, LOR, MAX, MIN, PROD, SUM, Op
from ringcast.runner import run
from ringcast.world import finalize, init

__all__ = [
    "BAND",
    "BOR",
    "LAND",
    "LOR",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "ArgumentError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Communicator",
    "ConfigError",
    "JobAborted",
    "LinkLost",
    "Op",
    "PeerFailed",
    "RendezvousError",
    "Revoked",
    "RingcastError",
    "RunFailed",
    "ScheduleError",
    "UsageError",
    "finalize",
    "init",
    "run",
]
