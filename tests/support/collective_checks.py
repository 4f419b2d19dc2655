"""Collectives on all transports against numpy: inputs, calls and checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from support.jobs import Job

SIZES = (1, 2, 3, 5, 8)


STRUCT = np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3", (2,))])


PADDED = np.dtype([("a", "i1"), ("b", "f8")], align=True)


NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "F", "D", "G", ">i4", ">f8")


DTYPES = ("?", *NUMBERS, "M8[s]", "m8[ms]", "S5", "U3", ">U2", "V6", STRUCT, PADDED)


EXAMPLES = {"threads": 40, "shm": 12, "sockets": 12, "tcp": 12}


Array = np.ndarray[Any, Any]


@lru_cache(maxsize=256)
def small_numbers(shape: tuple[int, ...], seed: int, below: int) -> Array:
    """Return random whole numbers; to make them takes longer than to send them."""
    numbers = np.asarray(np.random.default_rng(seed).integers(0, below, shape))
    numbers.flags.writeable = False
    return numbers


def make(dtype: Any, shape: tuple[int, ...], seed: int, below: int = 100) -> Array:
    """Return an array of small whole numbers, as far as the dtype can tell them."""
    dtype = np.dtype(dtype)
    numbers = small_numbers(shape, seed, below)
    if dtype.names:
        array = np.zeros(shape, dtype)
        for i, name in enumerate(dtype.names):
            field = dtype[name]
            array[name] = make(field.base, (*shape, *field.shape), seed + i)
        return array
    if dtype.kind == "b":
        return np.asarray(numbers % 2 == 1)
    if dtype.kind == "V":
        return make(f"S{dtype.itemsize}", shape, seed).view(dtype)
    if dtype.kind == "c":
        return np.asarray(numbers + 1j * numbers[::-1] if numbers.ndim else numbers + 1j).astype(dtype)
    return numbers.astype(dtype)


def fortran(array: Array) -> Array:
    return np.asfortranarray(array) if array.ndim else array


def strided(array: Array) -> Array:
    if not array.ndim:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def backwards(array: Array) -> Array:
    return array[::-1].copy()[::-1] if array.ndim else array


def transposed(array: Array) -> Array:
    return np.moveaxis(np.moveaxis(array, 0, -1).copy(), -1, 0) if array.ndim > 1 else array


def readonly(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: Array) -> Array:
    raw = bytearray(array.nbytes + 1)
    copy = np.frombuffer(raw, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


LAYOUTS = (np.copy, fortran, strided, backwards, transposed, readonly, unaligned)


shapes = st.one_of(
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 60).map(lambda n: (n,)),
    st.sampled_from([(2047,), (2048,), (2049,), (5000,), (40, 100), (3, 30, 20)]),
)


dtypes = st.sampled_from(DTYPES)


groups = st.sampled_from(SIZES)


seeds = st.integers(0, 1 << 20)


@st.composite
def inputs(draw: st.DrawFn, p: int, shape: tuple[int, ...], dtype: Any) -> list[Array]:
    """One array for each rank, of one shape and dtype, each in a layout of its own."""
    seed = draw(seeds)
    return [draw(st.sampled_from(LAYOUTS))(make(dtype, shape, seed + r)) for r in range(p)]


@contextmanager
def untouched(arrays: Sequence[Array]) -> Iterator[None]:
    before = [array.copy() for array in arrays]
    yield
    assert all(map(np.array_equal, arrays, before)), "an input was changed"


def expect(got: Any, want: Array) -> None:
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert np.array_equal(got, want)


def concatenate(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays).astype(arrays[0].dtype)


def parts(whole: Array, counts: Sequence[int]) -> list[Array]:
    ends = list(accumulate(counts, initial=0))
    return [whole[a:b] for a, b in pairwise(ends)]


def check_alltoall(job: Job, tables: list[Array], **how: Any) -> None:
    with untouched(tables):
        results = job.ask(lambda c: c.alltoall(tables[c.rank], **how))
    for rank, result in enumerate(results):
        expect(result, concatenate([table[rank : rank + 1] for table in tables]))
        assert not np.shares_memory(result, tables[rank])


def check_alltoallv(job: Job, arrays: list[Array], counts: Array, told: bool = False, **how: Any) -> None:
    """Row r of `counts` has the rows that rank r sends to each."""
    with untouched(arrays):
        results = job.ask(
            lambda c: c.alltoallv(arrays[c.rank], counts[c.rank], counts[:, c.rank] if told else None, **how)
        )
    cut = [parts(array, row) for array, row in zip(arrays, counts.tolist(), strict=True)]
    for rank, result in enumerate(results):
        expect(result, concatenate([pieces[rank] for pieces in cut]))


def check_shift(job: Job, arrays: list[Array], distance: int, **how: Any) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.shift(arrays[c.rank], distance, **how))
    for rank, result in enumerate(results):
        expect(result, arrays[(rank - distance) % job.size])
        assert not np.shares_memory(result, arrays[(rank - distance) % job.size])


def examples(kind: str) -> settings:
    return settings(max_examples=EXAMPLES[kind], database=None)
