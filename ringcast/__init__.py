"""Collective communication for numpy programs, without MPI.

>>> import numpy, ringcast
>>> comm = ringcast.init()  # a world of one rank, unless started with: ringcast-launch -n 4 program.py
>>> comm.allreduce(numpy.arange(3.0) + comm.rank)
array([0., 1., 2.])
"""

from __future__ import annotations

import sys

from ringcast.version import __version__ as __version__

if sys.platform == "win32":
    raise ImportError("ringcast does not run on Windows: use Linux, for instance in WSL")

TYPE_CHECKING = False  # as in `typing`, for which the watchdog does not wait
if TYPE_CHECKING:
    from typing import Any

    from ringcast.bootstrap.cluster.cluster import Cluster, cluster
    from ringcast.bootstrap.dask import on_dask
    from ringcast.bootstrap.fetch import fetch
    from ringcast.bootstrap.profile import Profile, profile
    from ringcast.bootstrap.progress_bar import progress
    from ringcast.bootstrap.ray import on_ray
    from ringcast.bootstrap.run import run
    from ringcast.bootstrap.world import finalize, init, terminal
    from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Status
    from ringcast.communicator import Communicator
    from ringcast.errors import (
        ArgumentError,
        CollectiveMismatch,
        CollectiveTimeout,
        ConfigError,
        JobAborted,
        LinkLost,
        ObjectsRefused,
        PeerFailed,
        RendezvousError,
        Revoked,
        RingcastError,
        RunFailed,
        RunTimeout,
        ScheduleError,
        SharedMemoryError,
        SourceChanged,
        SourceError,
        TransferError,
        UsageError,
    )
    from ringcast.ops import BAND, BOR, BXOR, LAND, LOR, LXOR, MAX, MIN, PROD, SUM, Op
    from ringcast.pool.errors import PoolBroken, TaskError, WorkerDied
    from ringcast.pool.pool import Pool
    from ringcast.requests.persistent import Persistent
    from ringcast.requests.request import Request, wait_all, wait_any, wait_some
    from ringcast.topology.cartesian import Grid, dims_create
    from ringcast.topology.graph import Topology

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "ArgumentError",
    "Cluster",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Communicator",
    "ConfigError",
    "Grid",
    "JobAborted",
    "LinkLost",
    "ObjectsRefused",
    "Op",
    "PeerFailed",
    "Persistent",
    "Pool",
    "PoolBroken",
    "Profile",
    "RendezvousError",
    "Request",
    "Revoked",
    "RingcastError",
    "RunFailed",
    "RunTimeout",
    "ScheduleError",
    "SharedMemoryError",
    "SourceChanged",
    "SourceError",
    "Status",
    "TaskError",
    "Topology",
    "TransferError",
    "UsageError",
    "WorkerDied",
    "cluster",
    "dims_create",
    "fetch",
    "finalize",
    "init",
    "on_dask",
    "on_ray",
    "profile",
    "progress",
    "run",
    "terminal",
    "wait_all",
    "wait_any",
    "wait_some",
]

_HOMES = {
    name: home
    for home, names in {
        "bootstrap.cluster.cluster": ("Cluster", "cluster"),
        "bootstrap.dask": ("on_dask",),
        "bootstrap.fetch": ("fetch",),
        "bootstrap.profile": ("Profile", "profile"),
        "bootstrap.progress_bar": ("progress",),
        "bootstrap.ray": ("on_ray",),
        "bootstrap.run": ("run",),
        "bootstrap.world": ("finalize", "init", "terminal"),
        "collectives.status": ("ANY_SOURCE", "ANY_TAG", "Status"),
        "communicator": ("Communicator",),
        "errors": (
            "ArgumentError",
            "CollectiveMismatch",
            "CollectiveTimeout",
            "ConfigError",
            "JobAborted",
            "LinkLost",
            "ObjectsRefused",
            "PeerFailed",
            "RendezvousError",
            "Revoked",
            "RingcastError",
            "RunFailed",
            "RunTimeout",
            "ScheduleError",
            "SharedMemoryError",
            "SourceChanged",
            "SourceError",
            "TransferError",
            "UsageError",
        ),
        "pool.errors": ("PoolBroken", "TaskError", "WorkerDied"),
        "pool.pool": ("Pool",),
        "requests.persistent": ("Persistent",),
        "requests.request": ("Request", "wait_all", "wait_any", "wait_some"),
        "topology.cartesian": ("Grid", "dims_create"),
        "topology.graph": ("Topology",),
        "ops": ("BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MIN", "PROD", "SUM", "Op"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the launcher and the control plane do not wait for numpy."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'ringcast' has no attribute {name!r}{_advice(name)}", name=name)
    value = globals()[name] = getattr(import_module(f"ringcast.{_HOMES[name]}"), name)
    return value


def _advice(name: str) -> str:
    """Return advice on a name that users look for in the module, although it is a method of communicators."""
    from importlib.util import find_spec

    # Python asks for modules of the package before it imports them; these must not wait for numpy either.
    if name.startswith("_") or find_spec(f"ringcast.{name}") is not None:
        return ""
    if name == "COMM_WORLD":
        return "; ringcast.init() returns the communicator of all ranks"
    from ringcast.communicator import Communicator

    return f", but communicators have it: comm = ringcast.init(); comm.{name}" if hasattr(Communicator, name) else ""


def __dir__() -> list[str]:
    return ["__version__", *__all__]
