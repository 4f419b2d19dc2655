"""Sizes and places of datatypes that are no numbers of 64 bits are refused; all others are exact.

The oracle is Python's own numbers, which have no largest one: they say where the elements of a datatype begin. MPICH
5.0.2 is none here: it wraps around, or ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast import MPI

LARGEST = 2**63 - 1
STEPS = [s * (2**k + d) for k in (0, 3, 30, 31, 59, 60, 61, 62, 63) for s in (1, -1) for d in (-8, -1, 0, 1)]
NUMBERS = st.sampled_from([n for n in STEPS if -(2**63) <= n <= LARGEST])
FEW = st.integers(0, 3)
MANY = st.one_of(FEW, st.sampled_from([2**k + d for k in (31, 32, 60, 61, 62) for d in (-1, 0, 1)]))


class Shape(NamedTuple):
    """A datatype as Python's numbers have it."""

    size: int
    lb: int
    ub: int
    true_lb: int
    true_ub: int

    @property
    def fits(self) -> bool:
        numbers = *self, self.ub - self.lb, self.true_ub - self.true_lb
        return all(-(2**63) <= number <= LARGEST for number in numbers)


ITEM = Shape(8, 0, 8, 0, 8)


def of_blocks(base: Shape, blocks: Sequence[tuple[int, int]]) -> Shape:
    """Return what blocks are: of each its place in bytes, and the number of its elements."""
    extent = base.ub - base.lb
    ends = [at for place, length in blocks if length for at in (place, place + (length - 1) * extent)]
    size = base.size * sum(length for _, length in blocks)
    if not ends:
        return Shape(size, 0, 0, 0, 0)
    first, last = min(ends), max(ends)
    return Shape(size, first + base.lb, last + base.ub, first + base.true_lb, last + base.true_ub)


def check(make: Callable[[], MPI.Datatype], shape: Shape) -> MPI.Datatype | None:
    """Make a datatype, which has this shape, or is refused if that does not fit."""
    if not shape.fits:
        with pytest.raises(MPI.Exception) as refused:
            make()
        assert refused.value.Get_error_class() == MPI.ERR_ARG
        return None
    made = make()
    assert (made.size, made.lb, made.ub, made.true_lb, made.true_ub) == shape
    assert made.Get_extent() == (shape.lb, shape.ub - shape.lb)
    return made


@given(FEW, MANY, NUMBERS, st.booleans())
def test_vectors(count: int, length: int, stride: int, in_bytes: bool) -> None:
    unit = 1 if in_bytes else 8
    shape = of_blocks(ITEM, [(i * stride * unit, length) for i in range(count)])
    make = MPI.DOUBLE.Create_hvector if in_bytes else MPI.DOUBLE.Create_vector
    check(partial(make, count, length, stride), shape)


@given(MANY)
def test_contiguous(count: int) -> None:
    check(partial(MPI.DOUBLE.Create_contiguous, count), of_blocks(ITEM, [(0, count)]))


@given(st.lists(st.tuples(MANY, NUMBERS), max_size=3), st.booleans())
def test_indexed(blocks: list[tuple[int, int]], in_bytes: bool) -> None:
    unit = 1 if in_bytes else 8
    shape = of_blocks(ITEM, [(place * unit, length) for length, place in blocks])
    make = MPI.DOUBLE.Create_hindexed if in_bytes else MPI.DOUBLE.Create_indexed
    check(partial(make, [length for length, _ in blocks], [place for _, place in blocks]), shape)


@given(MANY, st.lists(NUMBERS, max_size=3), st.booleans())
def test_indexed_blocks(length: int, places: list[int], in_bytes: bool) -> None:
    unit = 1 if in_bytes else 8
    make = MPI.DOUBLE.Create_hindexed_block if in_bytes else MPI.DOUBLE.Create_indexed_block
    check(partial(make, length, places), of_blocks(ITEM, [(place * unit, length) for place in places]))


@given(st.lists(st.tuples(MANY, NUMBERS), max_size=3))
def test_structs(blocks: list[tuple[int, int]]) -> None:
    shape = of_blocks(ITEM, [(place, length) for length, place in blocks])
    aligned = shape._replace(ub=shape.ub + -(shape.ub - shape.lb) % 8 if shape.size else shape.ub)
    lengths, places = [length for length, _ in blocks], [place for _, place in blocks]
    check(lambda: MPI.Datatype.Create_struct(lengths, places, [MPI.DOUBLE] * len(blocks)), aligned)


@given(NUMBERS, NUMBERS, FEW, NUMBERS)
def test_resized_and_what_is_made_of_it(lb: int, extent: int, count: int, stride: int) -> None:
    shape = ITEM._replace(lb=lb, ub=lb + extent)
    resized = check(partial(MPI.DOUBLE.Create_resized, lb, extent), shape)
    if resized is not None:
        places = [(i * stride * extent, 1) for i in range(count)]
        check(partial(resized.Create_vector, count, 1, stride), of_blocks(shape, places))
        check(partial(resized.Create_contiguous, count), of_blocks(shape, [(0, count)]))


@pytest.mark.parametrize("order", [MPI.ORDER_C, MPI.ORDER_FORTRAN])
def test_parts_of_arrays(order: int) -> None:
    for sizes in product((2, 2**30, 2**31), repeat=3):
        bytes_ = 8 * sizes[0] * sizes[1] * sizes[2]
        make = partial(MPI.DOUBLE.Create_subarray, sizes, [1, 1, 1], [n - 1 for n in sizes], order)
        check(make, Shape(8, 0, bytes_, bytes_ - 8, bytes_))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 2**70])
def test_arguments_that_are_no_numbers_of_64_bits(number: int) -> None:
    for make in (
        lambda: MPI.DOUBLE.Create_contiguous(abs(number) + 1),
        lambda: MPI.DOUBLE.Create_vector(1, 1, number),
        lambda: MPI.DOUBLE.Create_hindexed([1], [number]),
        lambda: MPI.DOUBLE.Create_resized(0, number),
        lambda: MPI.Datatype.Create_struct([1], [number], [MPI.DOUBLE]),
    ):
        with pytest.raises(OverflowError):
            make()
    for address in -1, 2**64 - 7, 2**70:
        with pytest.raises(OverflowError):
            MPI.buffer.fromaddress(address, 8)


def sent(spec: Any) -> None:
    MPI.COMM_SELF.Sendrecv(spec, 0, recvbuf=np.zeros(2), source=0)


def test_what_reaches_beyond_the_memory_is_refused_when_it_is_used() -> None:
    memory = np.zeros(4)
    far = MPI.BYTE.Create_resized(0, 2**62).Commit()
    apart = MPI.DOUBLE.Create_vector(2, 1, 2**59).Commit()
    before = MPI.DOUBLE.Create_hindexed([1], [-8]).Commit()
    behind = MPI.BYTE.Create_hindexed([1], [2**62]).Create_resized(0, 2**62).Commit()
    for spec in [memory, 4, far], [memory, 1, apart], [memory, 1, before], [memory, 3, behind], [memory, 1, 1, far]:
        with pytest.raises(ValueError, match=r"buffer too small|cannot infer"):
            sent(spec)
    for spec, error_class in (
        ([memory, 2**62, MPI.DOUBLE], MPI.ERR_COUNT),
        ([MPI.BOTTOM, 1, before], MPI.ERR_ARG),
        ([MPI.BOTTOM, 3, behind], MPI.ERR_ARG),
    ):
        with pytest.raises(MPI.Exception) as refused:
            sent(spec)
        assert refused.value.Get_error_class() == error_class
    for place in 2**61, -(2**61), 2**60, 2**64:
        with pytest.raises((ValueError, OverflowError)):
            MPI.COMM_SELF.Allgatherv([memory, 1], [np.zeros(2), [1], [place], MPI.DOUBLE])
