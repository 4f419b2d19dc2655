"""Schedules of the collectives: pure data, one family per file. They know nothing of sockets, processes or buffers.

`schedule` says what a schedule is: for each rank a sequence of rounds, in each of which it sends to at most one rank
and receives from at most one. `placement` is where ranks are: which of them share a host. All others make schedules.

>>> from ringcast.schedules import schedule
"""

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
