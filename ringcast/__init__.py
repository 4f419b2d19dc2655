"""Collective communication for numpy programs over ZeroMQ, without MPI.

>>> import numpy, ringcast
>>> comm = ringcast.init()  # a world of one rank, unless started with: ringcast-launch -n 4 program.py
>>> comm.allreduce(numpy.arange(3.0) + comm.rank)
array([0., 1., 2.])
"""

from typing import TYPE_CHECKING, Any

from ringcast.release import __version__ as __version__

if TYPE_CHECKING:
    from ringcast.communicator import Communicator
    from ringcast.dask_ranks import on_dask
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
        ScheduleError,
        UsageError,
    )
    from ringcast.ops import BAND, BOR, LAND, LOR, MAX, MIN, PROD, SUM, Op
    from ringcast.ray_ranks import on_ray
    from ringcast.runner import run
    from ringcast.world import finalize, init, terminal

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
    "ObjectsRefused",
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
    "on_dask",
    "on_ray",
    "run",
    "terminal",
]

_HOMES = {
    "Communicator": "communicator",
    "Op": "ops",
    "run": "runner",
    "on_dask": "dask_ranks",
    "on_ray": "ray_ranks",
} | dict.fromkeys(("finalize", "init", "terminal"), "world")


def __getattr__(name: str) -> Any:
    """Import what is asked for: the launcher and the control plane do not wait for numpy."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'ringcast' has no attribute {name!r}")
    home = _HOMES.get(name, "ops" if name.isupper() else "errors")
    value = globals()[name] = getattr(import_module(f"ringcast.{home}"), name)
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]
