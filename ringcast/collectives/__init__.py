"""The collectives, as generators over a `Group`: check arguments, plan, run the stages, hand over the result.

A Communicator drives one such generator; the simulated wire drives the generators of all ranks in one thread. Arrays
travel as raw buffers; everything else as pickles, whole. Nothing is sent before this rank's arguments are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringcast._util.on_demand import on_demand

__all__ = [
    "alltoall",
    "broadcast",
    "gather",
    "merge",
    "point_to_point",
    "recovery",
    "reduce",
    "scan",
    "scatter",
    "self_describing",
    "shared_memory",
    "shift",
    "split",
]

if TYPE_CHECKING:
    from ringcast.collectives import (
        alltoall,
        broadcast,
        gather,
        merge,
        point_to_point,
        recovery,
        reduce,
        scan,
        scatter,
        self_describing,
        shared_memory,
        shift,
        split,
    )
else:
    __getattr__ = on_demand(__name__, {f"{__name__}.{name}": () for name in __all__})  # a program uses few of them
