"""Ranks in a Cartesian grid: their coordinates and their neighbours. The last coordinate changes fastest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.errors import ArgumentError
from ringcast.schedules.neighborhood import of_grid
from ringcast.topology.graph import Topology
from ringcast.topology.neighbor_calls import Comm
from ringcast.wire.votes import FLAG_LIMIT


class Grid(Topology[Comm]):
    """A topology in which ranks side by side in a Cartesian grid are neighbours, as `Communicator.cart` makes it.

    Along each axis a rank has the rank before it and the rank behind it as its neighbours, in this order, both as
    sources and as destinations; None beyond an end.

    Attributes:
        comm: the communicator of the ranks in the grid, in row-major order of their coordinates.
        dims: number of ranks along each axis.
        periods: of each axis, whether its last rank is next to the first one.

    >>> grid = comm.cart([1, 1], periods=[False, True])
    >>> grid.coords, grid.shift(0), grid.shift(1)
    ((0, 0), (None, None), (0, 0))
    """

    def __init__(self, comm: Comm, dims: Sequence[int], periods: Sequence[bool]) -> None:
        self.dims, self.periods = tuple(dims), tuple(periods)
        super().__init__(comm, of_grid(comm.rank, self.dims, self.periods))

    def __repr__(self) -> str:
        return f"<Grid: rank {self.comm.rank} of {' x '.join(map(str, self.dims))}, at {self.coords}>"

    @property
    def coords(self) -> tuple[int, ...]:
        """Coordinates of this rank.

        >>> comm.cart([1, 1]).coords
        (0, 0)
        """
        return self.coords_of(self.comm.rank)

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank of `comm`.

        Args:
            rank: 0 <= rank < comm.size.

        >>> comm.cart([1, 1]).coords_of(0)
        (0, 0)
        """
        if not (isinstance(rank, int | np.integer) and 0 <= rank < self.comm.size):
            expected = f"expected a rank in 0..{self.comm.size - 1}, got {safe_text(rank)}"
            raise ArgumentError(self.comm._group.endpoint.rank, "coords_of", "rank", expected)
        return tuple(map(int, np.unravel_index(rank, self.dims)))

    def rank_at(self, coords: Sequence[int]) -> int | None:
        """Return the rank of `comm` at some coordinates.

        Args:
            coords: a whole number for each axis; beyond the ends of a periodic axis it is counted on around.

        Returns:
            The rank; None beyond the ends of an axis that is not periodic.

        >>> comm.cart([1, 1], periods=[True, False]).rank_at((-1, 0))
        0
        """
        at = _whole_numbers(self.comm._group.endpoint.rank, "rank_at", "coords", coords, len(self.dims))
        around = [n % dim if period else n for n, dim, period in zip(at, self.dims, self.periods, strict=True)]
        if any(not 0 <= n < dim for n, dim in zip(around, self.dims, strict=True)):
            return None
        return int(np.ravel_multi_index(around, self.dims))

    def shift(self, axis: int, distance: int = 1) -> tuple[int | None, int | None]:
        """Return the source and the destination of this rank when all values move along an axis.

        Args:
            axis: its number, 0 <= axis < len(dims).
            distance: how far they move; below 0 the other way.

        Returns:
            Source and destination, ranks of `comm`, as `recv`, `send` and `sendrecv` take them; None beyond the ends.

        >>> comm.cart([1]).shift(0)
        (None, None)
        """
        if not (isinstance(axis, int | np.integer) and 0 <= axis < len(self.dims)):
            expected = f"expected the number of an axis in 0..{len(self.dims) - 1}, got {safe_text(axis)}"
            raise ArgumentError(self.comm._group.endpoint.rank, "shift", "axis", expected)
        (step,) = _whole_numbers(self.comm._group.endpoint.rank, "shift", "distance", [distance], 1)
        source, dest = ([n + sign * step * (i == axis) for i, n in enumerate(self.coords)] for sign in (-1, 1))
        return self.rank_at(source), self.rank_at(dest)

    def sub(self, axes: Sequence[int]) -> Grid[Comm]:
        """Return the grid of the ranks that differ from this one along some axes only.

        Collective: all ranks of the grid call it. Cost: as `Communicator.split`.

        Args:
            axes: numbers of the axes that are kept, in the order of the new grid; equal on all ranks.

        Raises:
            ArgumentError: also if ranks of the new grid give other axes: found when all have called it.

        >>> comm.cart([1, 1]).sub([1]).dims
        (1,)
        """
        kept = _whole_numbers(self.comm._group.endpoint.rank, "sub", "axes", axes, None)
        if len(set(kept)) < len(kept) or any(not 0 <= axis < len(self.dims) for axis in kept):
            expected = f"expected different numbers of axes in 0..{len(self.dims) - 1}, got {safe_text(axes)}"
            raise ArgumentError(self.comm._group.endpoint.rank, "sub", "axes", expected)
        place = self.coords
        fixed = [0 if axis in kept else n for axis, n in enumerate(place)]
        dims = [self.dims[axis] for axis in kept]
        key = int(np.ravel_multi_index([place[axis] for axis in kept], dims)) if kept else 0
        color = crc32(repr(kept).encode()) * self.comm.size + int(np.ravel_multi_index(fixed, self.dims))
        part = self.comm.split(color % FLAG_LIMIT, key)
        assert part is not None, "every rank has a colour"
        if part.size != prod(dims):
            expected = (
                f"expected the same axes on all ranks, got {safe_text(axes)}, as on {part.size} of {prod(dims)} ranks"
            )
            raise ArgumentError(self.comm._group.endpoint.rank, "sub", "axes", expected)
        return Grid(part, dims, [self.periods[axis] for axis in kept])


def grid_of(rank: int, size: int, dims: Any, periods: Any) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return checked arguments of `Communicator.cart`, with a number for every axis.

    Raises:
        ArgumentError: they make no grid.
    """
    wanted = _whole_numbers(rank, "cart", "dims", [dims] if isinstance(dims, int | np.integer) else dims, None)
    if not wanted or min(wanted) < 0 or prod(wanted) > size:
        expected = (
            f"expected numbers of ranks along each axis, {size} in all at most, 0 for any number, got {safe_text(dims)}"
        )
        raise ArgumentError(rank, "cart", "dims", expected)
    given = [periods] * len(wanted) if isinstance(periods, bool | np.bool_) else periods
    if not (isinstance(given, Sequence) and len(given) == len(wanted)):
        expected = (
            f"expected True or False, or one of these for each of the {len(wanted)} axes, got {safe_text(periods)}"
        )
        raise ArgumentError(rank, "cart", "periods", expected)
    try:
        full = dims_create(size, wanted)
    except ValueError as error:
        raise ArgumentError(rank, "cart", "dims", str(error)) from None
    return full, tuple(map(bool, given))


def dims_create(size: int, dims: int | Sequence[int]) -> tuple[int, ...]:
    """Return how many ranks to put along each axis of a grid, as even as possible.

    Args:
        size: number of ranks.
        dims: number of axes; or a number of ranks for each axis, where 0 stands for a number to be found.

    Returns:
        The numbers, whose product is `size`, if one of them was to be found; the numbers found do not increase.

    Raises:
        ValueError: the numbers that are given do not divide `size`.

    >>> ringcast.dims_create(12, 2), ringcast.dims_create(12, [0, 2, 0])
    ((4, 3), (3, 2, 2))
    """
    wanted = (0,) * dims if isinstance(dims, int) else tuple(dims)
    missing = wanted.count(0)
    if not missing:
        return wanted
    given = prod(n for n in wanted if n)
    if size % given:
        raise ValueError(f"expected numbers that divide the {size} ranks, got {list(wanted)}")
    found = iter(_even(size // given, missing))
    return tuple(n or next(found) for n in wanted)


def _even(size: int, axes: int) -> tuple[int, ...]:
    """Return factors of a number with the smallest possible largest factor, then the smallest second one, and so on."""
    if axes == 1:
        return (size,)
    for first in (n for n in range(1, size + 1) if size % n == 0 and n**axes >= size):
        rest = _even(size // first, axes - 1)
        if rest[0] <= first:
            return (first, *rest)
    raise AssertionError("the number itself and ones will do")


def _whole_numbers(rank: int, operation: str, argument: str, given: Any, length: int | None) -> tuple[int, ...]:
    """Return `length` whole numbers; any number of them if it is None.

    Raises:
        ArgumentError: `given` is something else.
    """
    right = isinstance(given, Sequence | np.ndarray) and all(isinstance(n, int | np.integer) for n in given)
    if not right or length not in (None, len(given)):
        count = "whole numbers" if length is None else f"{length} whole numbers"
        raise ArgumentError(rank, operation, argument, f"expected {count}, got {safe_text(given)}")
    return tuple(map(int, given))
