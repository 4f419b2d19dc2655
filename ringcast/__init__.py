"""Collective communication for numpy programs over ZeroMQ, without MPI.

>>> import numpy, ringcast
>>> comm = ringcast.init()  # a world of one rank, unless started with: ringcast-launch -n 4 program.py
>>> comm.allreduce(numpy.arange(3.0) + comm.rank)
array([0., 1., 2.])
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
