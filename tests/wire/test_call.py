"""Fingerprints: equal for equal calls, in every process; different for different ones, by the aspect that differs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast import ops
from ringcast.algorithms import ALGORITHMS
from ringcast.engine.datatypes import dtype_name
from ringcast.wire.call import COUNTS_OF, Call
from ringcast.wire.collective import COLLECTIVES
from ringcast.wire.differences import differences

DTYPES = sorted({dtype_name(np.dtype(code)) for code in np.typecodes["All"] if code != "O"} | {"object"})
OPS = ["", *(str(op) for op in vars(ops).values() if isinstance(op, ops.Op))]
NAMES = sorted({name for named in ALGORITHMS.values() for name in named})
BASE = Call("bcast", "float64", (10, 3), "SUM", 0, "circulant", 4)


def choices() -> Iterator[tuple[str, list[Call]]]:
    """Yield calls that differ in one aspect only, with the word that says which."""
    yield "dtype", [replace(BASE, dtype=dtype) for dtype in DTYPES]
    yield "op", [replace(BASE, op=op) for op in OPS]
    yield "root", [replace(BASE, root=root) for root in [None, *range(100)]]
    for named in ALGORITHMS.values():  # those of one collective: others differ in its name
        yield "algorithm or nblocks", [replace(BASE, algorithm=name) for name in named]
    yield "algorithm or nblocks", [replace(BASE, nblocks=n) for n in range(1, 10)]
    yield "shape or counts", [replace(BASE, shape=(n, m)) for n in range(20) for m in range(5)]


@pytest.mark.parametrize(("aspect", "calls"), list(choices()))
def test_the_difference_names_the_aspect(aspect: str, calls: list[Call]) -> None:
    for one, other in combinations(calls, 2):
        assert one.fingerprint != other.fingerprint
        text = one.difference(other.fingerprint)
        assert text == f"bcast with another {aspect}" or "object" in (one.dtype, other.dtype)
        assert text.startswith(f"bcast with another {aspect}")


def test_the_difference_names_the_other_collective() -> None:
    for one, other in combinations(COLLECTIVES, 2):
        assert Call(one).difference(Call(other).fingerprint) == f"{other}, not {one}"
        assert Call(other).difference(Call(one).fingerprint) == f"{one}, not {other}"


def test_several_differences_are_all_named() -> None:
    other = replace(BASE, dtype="int32", root=1)
    assert BASE.difference(other.fingerprint) == "bcast with another dtype and another root"


def test_another_distance_is_told() -> None:
    one, other = Call("shift", distance=1), Call("shift", distance=2)
    assert one.difference(other.fingerprint) == "shift with another distance or shape"


def test_another_grid_or_choice_of_ranks_is_told() -> None:
    """Their arguments are numbers, which no word for data tells."""
    for name, word in ("create", "list of ranks"), ("cart", "dims or periods"):
        calls = [Call(name, shape=shape) for shape in ((2, 1), (2, 0), (1, 1), (1, 2), (2, 1, 0, 0), (1, 2, 0, 0))]
        assert len({call.fingerprint for call in calls}) == len(calls)
        for one, other in combinations(calls, 2):
            assert one.difference(other.fingerprint) == f"{name} with another {word}"


def test_another_topology_is_told() -> None:
    names = [f"graph {number:x} of 12 edges" for number in range(100)]
    calls = [Call("neighbor_alltoall", "int64", (3,), topology=name) for name in names]
    assert len({call.fingerprint for call in calls}) == len(calls)
    for one, other in combinations(calls, 2):
        text = one.difference(other.fingerprint)
        same_byte = (one.fingerprint ^ other.fingerprint) >> 24 == 0
        assert text == "neighbor_alltoall with another topology" + " or shape" * same_byte
    shaped = replace(calls[0], shape=(4,))
    assert calls[0].difference(shaped.fingerprint) == "neighbor_alltoall with another topology or shape"
    assert str(calls[0]) == "neighbor_alltoall(dtype int64, shape (3,), on graph 0 of 12 edges)"


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in "USMm"])
def test_counts_on_one_side_only_are_told(dtype: str) -> None:
    """Where they are left out, ranks first tell each other theirs, in a stage of its own."""
    kind = dtype[0] if dtype[0] in "US" else dtype
    given, left_out = Call("gatherv", dtype, (1, 2), root=0), Call("gatherv", f"{kind}{COUNTS_OF}")
    assert left_out.difference(given.fingerprint) == "gatherv with counts, which are left out here"
    assert given.difference(left_out.fingerprint) == "gatherv without counts, which are given here"
    assert differences(str(left_out), left_out.difference(given.fingerprint)) == differences(str(left_out), str(given))
    assert differences(str(given), given.difference(left_out.fingerprint)).startswith("counts differ: mine given")


def test_a_list_on_the_other_side_is_no_matter_of_counts() -> None:
    array, of_list = Call("gatherv", f"int64{COUNTS_OF}"), Call("gatherv", "object", root=0)
    assert "a Python object on one side" in array.difference(of_list.fingerprint)


def test_without_counts_on_both_sides_the_types_differ() -> None:
    one, other = (Call("allgatherv", f"{dtype}{COUNTS_OF}") for dtype in ("float64", "float32"))
    assert one.difference(other.fingerprint) == "allgatherv with another dtype"


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (replace(BASE, root=1, algorithm="ring"), "root differs"),
        (replace(BASE, root=1, dtype="int32"), "dtype differs, root differs"),
        (replace(BASE, dtype="object"), "dtype differs"),
        (replace(BASE, shape=(3,)), "shape or counts differ"),
        (replace(BASE, nblocks=1), "algorithm or nblocks differ"),
        (Call("barrier"), "the call differs: mine bcast, theirs barrier"),
    ],
)
def test_what_differs_is_told_also_where_only_a_header_is_known(theirs: Call, told: str) -> None:
    assert differences(str(BASE), BASE.difference(theirs.fingerprint)) == told


def test_a_collective_that_this_version_does_not_know_has_no_name() -> None:
    unknown = (set(range(256)) - {Call(name).fingerprint >> 56 for name in COLLECTIVES}).pop()
    assert BASE.difference(unknown << 56) == "another call, not bcast"


calls = st.builds(
    Call,
    collective=st.sampled_from(sorted(COLLECTIVES)),
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 3), max_size=4).map(tuple),
    op=st.sampled_from(OPS),
    root=st.none() | st.integers(0, 300),
    algorithm=st.sampled_from(["", *NAMES]),
    nblocks=st.integers(1, 300),
)


@given(calls, calls)
def test_fingerprints_are_equal_for_equal_calls_only(one: Call, other: Call) -> None:
    assert (one.fingerprint == other.fingerprint) == (one == other)
    assert 0 <= one.fingerprint < 1 << 64


def test_the_last_24_bits_depend_on_every_argument() -> None:
    """Of two arguments whose bytes happen to be the same, the digest still tells that they differ."""
    other = Call("reduce", "int32", (11, 3), "MAX", 1, "ring", 5, 2, "graph")
    digests = {replace(BASE, **{f.name: getattr(other, f.name)}).fingerprint & 0xFFFFFF for f in fields(Call)}
    assert BASE.fingerprint & 0xFFFFFF not in digests
    assert len(digests) == len(fields(Call))


def test_few_shapes_share_a_digest() -> None:
    shapes = [(n,) for n in range(5000)]
    assert len({replace(BASE, shape=shape).fingerprint for shape in shapes}) > len(shapes) - 10


def test_numbers_of_numpy_are_numbers() -> None:
    """One rank may have computed its counts with numpy, and another one not."""
    plain = Call("gatherv", "float64", (3, 12345), root=2, nblocks=3)
    wide = Call("gatherv", "float64", (np.int64(3), np.int32(12345)), root=np.int8(2), nblocks=np.int64(3))
    assert wide.fingerprint == plain.fingerprint
    assert replace(plain, root=True).fingerprint == replace(plain, root=1).fingerprint
    assert str(wide) == str(plain)


def test_other_processes_compute_the_same() -> None:
    code = f"from ringcast.wire.call import Call; print(({BASE!r}).fingerprint)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == BASE.fingerprint


@pytest.mark.parametrize(
    ("call", "fingerprint"),
    [
        (BASE, 0xDA36C701501C1B14),
        (Call("merge_sorted", "int64", (3, 1, 2), algorithm="circulant"), 0x715D0000DF415FFD),
        (Call("shift", "object", distance=3), 0x45EC0000A8A223F6),
        (Call("sendrecv"), 0x4E000000A8C21063),
        (Call("neighbor_allgather", "int64", (3,), topology="grid (2,), periods (True,)"), 0x0E5D000013881360),
    ],
)
def test_fingerprints_stay_as_they_are(call: Call, fingerprint: int) -> None:
    assert call.fingerprint == fingerprint


def test_calls_are_printed_as_their_arguments() -> None:
    assert str(BASE) == "bcast(dtype float64, shape (10, 3), op SUM, root 0, algorithm circulant, nblocks 4)"
    assert str(Call("barrier")) == "barrier()"
    assert str(Call("shift", "object", distance=3)) == "shift(dtype object, shape (), distance 3)"
    assert str(Call("create", shape=(np.int64(0), 1), algorithm="dissemination")) == (
        "create(ranks (0, 1), algorithm dissemination, nblocks 1)"
    )
    assert str(Call("create", shape=tuple(range(1000)))) == "create(ranks (0, 1, 2, 3, 4, 5, 6, 7, …))"
    assert str(Call("cart", shape=(2, 3, 1, 0))) == "cart(dims (2, 3), periods (True, False))"
    assert str(Call("free")) == "free()"
    assert "(0, 1, 2, 3, 4, 5, 6, 7, …)" in str(replace(BASE, shape=tuple(range(1000))))


@pytest.mark.parametrize(
    ("collective", "shapes", "advice"),
    [
        ("allgather", [(1,), (2,)], "allgatherv takes any number of rows"),
        ("gather", [(0,), (2, 3)], "gatherv takes any number of rows"),
        ("alltoall", [(2,), (2, 1)], "alltoallv takes any number of rows"),
        ("allreduce", [(1,), (2,)], ""),
    ],
)
def test_data_of_different_length_are_sent_to_the_call_that_takes_them(
    collective: str, shapes: list[tuple[int, ...]], advice: str
) -> None:
    mine, theirs = (Call(collective, dtype="int64", shape=shape) for shape in shapes)
    brackets = f" ({advice})" if advice else ""
    assert differences(str(mine), str(theirs)) == f"shape differs: mine {shapes[0]}, theirs {shapes[1]}{brackets}"
    assert differences(str(mine), mine.difference(theirs.fingerprint)) == f"shape or counts differ{brackets}"


@pytest.mark.parametrize(
    ("dtype", "shape", "advice"),
    [
        ("int64", (), "int(value) or np.int64(value)"),
        ("uint8", (), "int(value) or np.uint8(value)"),
        ("float32", (), "float(value) or np.float32(value)"),
        ("bool", (), "bool(value) or np.bool_(value)"),
        ("datetime64[s]", (), "np.asarray(value, 'datetime64[s]')"),
        ("int64", (2,), "np.asarray(value, 'int64')"),
    ],
)
def test_an_object_and_a_numpy_value_are_told_how_to_be_alike(dtype: str, shape: tuple[int, ...], advice: str) -> None:
    ours, of_numpy = Call("allreduce", dtype="object"), Call("allreduce", dtype=dtype, shape=shape)
    for mine, theirs in (ours, of_numpy), (of_numpy, ours):
        assert f"a numpy value on the other: pass {advice} on all ranks" in differences(str(mine), str(theirs))
