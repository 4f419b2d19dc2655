"""The collectives, as generators over a `Group`: check arguments, plan, run the stages, hand over the result.

A Communicator drives one such generator; the simulated wire drives the generators of all ranks in one thread. Arrays
travel as raw buffers; everything else as pickles, whole. Nothing is sent before this rank's arguments are checked.
"""

from ringcast.collectives.alltoall import alltoall, alltoallv
from ringcast.collectives.broadcast import bcast
from ringcast.collectives.gather import allgather, allgatherv, gather, gatherv
from ringcast.collectives.merge import merge_sorted
from ringcast.collectives.point_to_point import sendrecv
from ringcast.collectives.reduce import allreduce, barrier, reduce, reduce_scatter
from ringcast.collectives.scan import exscan, scan
from ringcast.collectives.scatter import scatter, scatterv
from ringcast.collectives.shift import shift

__all__ = [
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "alltoallv",
    "barrier",
    "bcast",
    "exscan",
    "gather",
    "gatherv",
    "merge_sorted",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "scatterv",
    "sendrecv",
    "shift",
]
