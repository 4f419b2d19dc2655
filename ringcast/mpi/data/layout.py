"""Type maps: where the bytes of one element of a datatype are, in the order in which they are sent.

Sizes and places are numbers of 64 bits with a sign, as MPI's are. A layout for which these do not suffice is refused
when it is made (ERR_ARG), so that numpy's later sums do not wrap around.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcast.mpi.base.exceptions import ERR_ARG, Exception

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
UNITS = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}  # bytes of a unit that is moved at once → dtype
_AT_ONCE = 1 << 15  # units that are moved by one call of numpy
LARGEST = (1 << 63) - 1


class Runs(NamedTuple):
    """Bytes that follow each other in memory and in the message: where each run begins, and its length."""

    offsets: Numbers
    lengths: Numbers


_NONE = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Layout:
    """Size, bounds and runs of one element; runs are made when they are needed, as they can be many.

    Attributes:
        size: bytes of data.
        lb: lower bound; `ub` the upper one. The next element begins `extent` bytes later.
        true_lb: first byte of data; `true_ub` the one after the last.
        alignment: the largest one of the predefined types in it.
    """

    def __init__(self, size: int, bounds: tuple[int, int], true_bounds: tuple[int, int], alignment: int) -> None:
        self.size, self.alignment = size, alignment
        self.lb, self.ub = bounds
        self.true_lb, self.true_ub = true_bounds
        check_fits(size, *bounds, *true_bounds, self.extent, self.true_ub - self.true_lb)

    @property
    def extent(self) -> int:
        """Bytes from one element to the next."""
        return self.ub - self.lb

    @cached_property
    def runs(self) -> Runs:
        """Runs of the type map; runs that touch are joined."""
        return merged(*self._runs())

    def _runs(self) -> Runs:
        return Runs(np.array([self.true_lb]), np.array([self.size]))

    @cached_property
    def dense(self) -> bool:
        """Whether any number of elements are bytes without gaps."""
        return self.size == self.extent and self.solid

    @cached_property
    def solid(self) -> bool:
        """Whether the data of one element are bytes without gaps, in order."""
        return self.size == self.true_ub - self.true_lb and len(self.runs.offsets) <= 1

    @cached_property
    def unit(self) -> int:
        """Bytes that can be moved at once: a power of two that divides all offsets and lengths."""
        return int(np.gcd.reduce(np.concatenate([*self.runs, [self.extent, max(UNITS)]])))

    @cached_property
    def stride(self) -> int | None:
        """Bytes between runs of the same length; None if they are irregular."""
        offsets, lengths = self.runs
        steps = np.unique(np.diff(offsets))
        regular = len(steps) == 1 and len(np.unique(lengths)) == 1
        return int(steps[0]) if regular else None

    @cached_property
    def _positions(self) -> Numbers:
        return self.positions(self.unit)

    def positions(self, unit: int) -> Numbers:
        """Return the position of each unit of data, in units."""
        offsets, lengths = (numbers // unit for numbers in self.runs)
        return within(offsets, lengths)

    def gather(self, memory: Bytes, origin: int, count: int) -> Bytes:
        """Return the data of `count` elements without gaps; the first one is at `origin` in memory."""
        strided = self._strided(memory, origin, count)
        if strided is not None:
            return np.ascontiguousarray(strided).reshape(-1).view(np.uint8)
        items = memory.view(UNITS[self.unit])
        chunks = [items[places].reshape(-1) for _, places in self._places(origin, count)]
        return (chunks[0] if len(chunks) == 1 else np.concatenate(chunks)).view(np.uint8)

    def scatter(self, data: Bytes, memory: Bytes, origin: int, count: int) -> None:
        """Put data without gaps, of `count` elements or less, into memory."""
        strided = self._strided(memory, origin, count) if data.nbytes == count * self.size else None
        if strided is not None:
            strided[...] = data.view(strided.dtype).reshape(strided.shape)
            return
        whole, rest = divmod(data.nbytes, self.size)
        if rest:
            places = origin + whole * self.extent + self.positions(1)[:rest]
            memory[places] = data[whole * self.size :]
        items = memory.view(UNITS[self.unit])
        elements = data[: whole * self.size].view(items.dtype).reshape(whole, len(self._positions))
        for rows, places in self._places(origin, whole):
            items[places] = elements[rows]

    def _places(self, origin: int, count: int) -> Iterator[tuple[slice, Numbers]]:
        """Yield some elements at a time, and the places of their units; all at once would take much memory."""
        step = max(1, _AT_ONCE // len(self._positions))
        for first in range(0, count, step):
            elements = np.arange(first, min(first + step, count), dtype=np.int64)
            starts = (origin + elements * self.extent) // self.unit
            yield slice(first, first + step), starts[:, None] + self._positions

    def _strided(self, memory: Bytes, origin: int, count: int) -> NDArray[Any] | None:
        """Return the data in place, of dimensions (elements, runs, units), if the runs are regular."""
        if self.stride is None and not self.solid:
            return None
        offsets, lengths = self.runs
        items = memory[origin + int(offsets[0]) :]
        items = items[: items.nbytes // self.unit * self.unit].view(UNITS[self.unit])
        shape = (count, len(offsets), int(lengths[0]) // self.unit)
        return np.lib.stride_tricks.as_strided(items, shape, (self.extent, self.stride or 0, self.unit))


class _Blocks(Layout):
    """Blocks of elements of another layout."""

    def __init__(self, base: Layout, displacements: Numbers, lengths: Numbers, unit: int) -> None:
        used = lengths > 0
        self._base, self._displacements, self._lengths = base, _scaled(displacements[used], unit), lengths[used]
        size = _total(self._lengths) * base.size
        super().__init__(size, self._bounds(base.lb, base.ub), self._bounds(base.true_lb, base.true_ub), base.alignment)

    def _bounds(self, lower: int, upper: int) -> tuple[int, int]:
        if not self._lengths.size:
            return 0, 0
        displacements, further = self._displacements, self._lengths - 1
        if not _small(displacements, further, self._base.extent):
            displacements, further = displacements.astype(object), further.astype(object)
        last = displacements + further * self._base.extent
        first, end = int(np.minimum(displacements, last).min()), int(np.maximum(displacements, last).max())
        check_fits(first, end)
        return first + lower, end + upper

    def _runs(self) -> Runs:
        base, displacements, lengths = self._base, self._displacements, self._lengths
        if not self.size:
            return _NONE
        if base.dense:
            return Runs(displacements + base.true_lb, lengths * base.size)
        starts = np.repeat(displacements, lengths) + within(np.zeros_like(lengths), lengths) * base.extent
        return Runs((starts[:, None] + base.runs.offsets).reshape(-1), np.tile(base.runs.lengths, len(starts)))


class _Struct(Layout):
    """Blocks of elements of several layouts; gaps at the end align the next element."""

    def __init__(self, parts: Sequence[tuple[Layout, int, int]]) -> None:
        self._parts = [part for part in parts if part[2]]
        data = [part for part in self._parts if part[0].size]
        lower, upper = _around([_span(*part, part[0].lb, part[0].ub) for part in self._parts])
        alignment = max((base.alignment for base, _, _ in data), default=1)
        upper += -(upper - lower) % alignment
        true = _around([_span(*part, part[0].true_lb, part[0].true_ub) for part in data])
        super().__init__(sum(base.size * length for base, _, length in data), (lower, upper), true, alignment)

    def _runs(self) -> Runs:
        runs = [blocks(base, [displacement], [length]).runs for base, displacement, length in self._parts] or [_NONE]
        return Runs(np.concatenate([run.offsets for run in runs]), np.concatenate([run.lengths for run in runs]))


class _Resized(Layout):
    """Another layout with other bounds."""

    def __init__(self, base: Layout, lb: int, extent: int) -> None:
        self._base = base
        super().__init__(base.size, (lb, lb + extent), (base.true_lb, base.true_ub), base.alignment)

    def _runs(self) -> Runs:
        return self._base.runs


def item(size: int, alignment: int) -> Layout:
    """Return the layout of an item of `size` bytes."""
    return Layout(size, (0, size), (0, size), alignment)


def blocks(base: Layout, displacements: Any, lengths: Any, unit: int = 1) -> Layout:
    """Return `lengths[i]` elements of `base` at byte `unit * displacements[i]`, for all i."""
    return _Blocks(base, np.asarray(displacements, np.int64), np.asarray(lengths, np.int64), unit)


def struct(bases: Sequence[Layout], displacements: Sequence[int], lengths: Sequence[int]) -> Layout:
    """Return `lengths[i]` elements of `bases[i]` at byte `displacements[i]`, for all i."""
    return _Struct(list(zip(bases, displacements, lengths, strict=True)))


def resized(base: Layout, lb: int, extent: int) -> Layout:
    """Return `base` with another lower bound and extent."""
    return _Resized(base, lb, extent)


def check_fits(*numbers: int) -> None:
    """Check that sizes or places are numbers of 64 bits.

    Raises:
        Exception: ERR_ARG: one is not.
    """
    for number in numbers:
        if not -LARGEST - 1 <= number <= LARGEST:
            raise Exception(ERR_ARG, f"a size or place of the datatype would be {number}, no number of 64 bits")


def _scaled(numbers: Numbers, unit: int) -> Numbers:
    """Return numbers times `unit`."""
    if not numbers.any():
        return numbers
    check_fits(int(numbers.min()) * unit, int(numbers.max()) * unit)
    return numbers * unit


def _total(lengths: Numbers) -> int:
    """Return the sum of lengths, which may not be a number of 64 bits."""
    most = int(lengths.max(initial=0)) * len(lengths)
    return int(lengths.sum()) if most <= LARGEST else sum(lengths.tolist())


def _small(displacements: Numbers, further: Numbers, extent: int) -> bool:
    """Return whether sums of these displacements and of multiples of the extent are numbers of 64 bits."""
    farthest = max(-int(displacements.min()), int(displacements.max()))
    return farthest + int(further.max()) * abs(extent) <= LARGEST


def _span(base: Layout, displacement: int, length: int, lower: int, upper: int) -> tuple[int, int]:
    """Return where a block of elements with these bounds begins and ends."""
    last = displacement + (length - 1) * base.extent
    return min(displacement, last) + lower, max(displacement, last) + upper


def _around(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min((first for first, _ in spans), default=0), max((end for _, end in spans), default=0)


def within(starts: Numbers, lengths: Numbers) -> Numbers:
    """Return start, start + 1, ... start + length - 1 for all starts, in one array."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if ends.size else 0
    result: Numbers = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return result


def merged(offsets: Numbers, lengths: Numbers) -> Runs:
    """Return the same bytes as runs that are not empty and do not touch the run before."""
    filled = lengths > 0
    offsets, lengths = offsets[filled], lengths[filled]
    begins = np.ones(len(offsets), bool)
    begins[1:] = offsets[1:] != offsets[:-1] + lengths[:-1]
    firsts = np.flatnonzero(begins)
    return Runs(offsets[firsts], np.add.reduceat(lengths, firsts) if firsts.size else lengths)
