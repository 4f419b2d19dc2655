"""Make the schedules of the collectives: pure data, one family per file, without sockets, processes or buffers.

`schedule` defines a schedule: for each rank a sequence of rounds; in a round the rank sends to at most one rank and
receives from at most one. `placement` describes which ranks share a host. All other modules make schedules.

>>> from ringcast.schedules import schedule
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringcast._util.on_demand import on_demand

__all__ = [
    "blocks",
    "blocks2022",
    "circulant",
    "conditions",
    "crossbar",
    "doubling",
    "dualroot",
    "embedding",
    "exchange",
    "fractional",
    "grid",
    "grouptree",
    "hypercube",
    "lanes",
    "merging",
    "mesh",
    "neighborhood",
    "one_to_all",
    "ordered",
    "placement",
    "ring",
    "ringorder",
    "scan",
    "schedule",
    "shift",
    "simplex",
]

if TYPE_CHECKING:
    from ringcast.schedules import (
        blocks,
        blocks2022,
        circulant,
        conditions,
        crossbar,
        doubling,
        dualroot,
        embedding,
        exchange,
        fractional,
        grid,
        grouptree,
        hypercube,
        lanes,
        merging,
        mesh,
        neighborhood,
        one_to_all,
        ordered,
        placement,
        ring,
        ringorder,
        scan,
        schedule,
        shift,
        simplex,
    )
else:
    __getattr__ = on_demand(__name__, {f"{__name__}.{name}": () for name in __all__})  # a job runs few of them
