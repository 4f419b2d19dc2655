"""Parts of arrays of several dimensions: a rectangular piece, or the part that a rank of a process grid owns."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ringcast.mpi.base.constants import (
    DISTRIBUTE_BLOCK,
    DISTRIBUTE_CYCLIC,
    DISTRIBUTE_DFLT_DARG,
    DISTRIBUTE_NONE,
    ORDER_C,
    ORDER_F,
)
from ringcast.mpi.base.exceptions import ERR_ARG, ERR_RANK, Exception
from ringcast.mpi.data import layout
from ringcast.mpi.data.layout import Layout, Numbers


def slab(base: Layout, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int) -> Layout:
    """Return the part of an array that begins at `starts` and has `subsizes`."""
    for size, part, start in zip(sizes, subsizes, starts, strict=True):
        if not (part > 0 and 0 <= start <= size - part):
            raise Exception(ERR_ARG, f"no part of {part} at {start} is in a dimension of {size}")
    places = [np.arange(start, start + part) for start, part in zip(starts, subsizes, strict=True)]
    return _chosen(base, sizes, places, order)


def owned(
    base: Layout,
    size: int,
    rank: int,
    gsizes: Sequence[int],
    distribs: Sequence[int],
    dargs: Sequence[int],
    psizes: Sequence[int],
    order: int,
) -> Layout:
    """Return the part of `rank` in an array that is distributed over a grid of ranks in row-major order."""
    if not 0 <= rank < size:
        raise Exception(ERR_RANK, f"rank {rank} is not below {size}")
    if prod(psizes) != size:
        raise Exception(ERR_ARG, f"a grid of {list(psizes)} has not {size} ranks")
    coordinates = np.unravel_index(rank, psizes) if psizes else ()
    dimensions = zip(gsizes, distribs, dargs, psizes, map(int, coordinates), strict=True)
    return _chosen(base, gsizes, [_share(*dimension) for dimension in dimensions], order)


def _share(size: int, distribution: int, darg: int, ranks: int, coordinate: int) -> Numbers:
    """Return the indices of one dimension that a rank has."""
    everything: Numbers = np.arange(size)
    if distribution == DISTRIBUTE_NONE:
        if ranks != 1:
            raise Exception(ERR_ARG, f"a dimension that is not distributed has {ranks} ranks")
        return everything
    if distribution == DISTRIBUTE_BLOCK:
        block = -(-size // ranks) if darg == DISTRIBUTE_DFLT_DARG else darg
        if block * ranks < size:
            raise Exception(ERR_ARG, f"{ranks} blocks of {block} do not cover a dimension of {size}")
    elif distribution == DISTRIBUTE_CYCLIC:
        block = 1 if darg == DISTRIBUTE_DFLT_DARG else darg
    else:
        raise Exception(ERR_ARG, f"there is no distribution {distribution}")
    if block <= 0:
        raise Exception(ERR_ARG, f"blocks have {block} items")
    chosen: Numbers = everything[everything // block % ranks == coordinate]
    return chosen


def _chosen(base: Layout, sizes: Sequence[int], places: Sequence[Numbers], order: int) -> Layout:
    """Return the elements of an array at these indices of each dimension."""
    if order not in (ORDER_C, ORDER_F):
        raise Exception(ERR_ARG, f"there is no order {order}")
    step = 1 if order == ORDER_F else -1
    extent, made = base.extent, base
    for size, chosen in zip(sizes[::step], places[::step], strict=True):
        made = layout.blocks(made, chosen, np.ones(len(chosen), np.int64), extent)
        extent *= size
        made = layout.resized(made, 0, extent)
    return made
