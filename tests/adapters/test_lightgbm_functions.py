"""The functions that LightGBM calls, called as LightGBM calls them, without it; and the order of its sums."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int32, c_void_p, cast, pointer, string_at
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.boosting.exchanges import Reducer
from ringcast.boosting.functions import Functions
from ringcast.boosting.order import RING_FROM, merges
from ringcast.communicator import Communicator
from ringcast.engine import signal_gate
from ringcast.errors import Revoked, UsageError
from ringcast.ops import Array


def as_lightgbm_does(size: int) -> list[str]:
    """Return how each rank's block is combined when ranks send halves to each other, as LightGBM's network.cpp does."""
    parts = [[f"{rank}" for _ in range(size)] for rank in range(size)]  # of each rank, by block

    def combine(source: int, target: int, blocks: range) -> dict[tuple[int, int], str]:
        return {(target, b): f"({parts[target][b]}+{parts[source][b]})" for b in blocks}

    rounds = size.bit_length() - 1
    pairs = size - (1 << rounds)
    singles = size - 2 * pairs
    groups = [range(rank, rank + 1) for rank in range(singles)]
    groups += [range(rank, rank + 2) for rank in range(singles, size, 2)]
    for group in groups[singles:]:
        for (target, b), text in combine(group[1], group[0], range(size)).items():
            parts[target][b] = text
    for i in range(rounds):
        distance = 1 << (rounds - 1 - i)
        after = {}
        for number, group in enumerate(groups):
            half = groups[number // distance * distance :][:distance]  # with the blocks that this group goes on with
            after |= combine(groups[number ^ distance][0], group[0], range(half[0][0], half[-1][-1] + 1))
        for (target, b), text in after.items():
            parts[target][b] = text
    return [parts[group[0]][rank] for group in groups for rank in group]


def as_merged(size: int, owner: int, nbytes: int) -> str:
    parts = [f"{rank}" for rank in range(size)]
    order, last = merges(size, owner, nbytes)
    for source, target in order:
        parts[target] = f"({parts[target]}+{parts[source]})"
    return parts[last]


@pytest.mark.parametrize("size", range(1, 34))
def test_parts_are_combined_in_the_order_of_lightgbms_own_network(size: int) -> None:
    assert [as_merged(size, rank, 0) for rank in range(size)] == as_lightgbm_does(size)


def test_large_parts_go_around_a_ring_unless_the_number_of_ranks_is_a_power_of_two() -> None:
    assert as_merged(5, 2, RING_FROM) == "(2+(1+(0+(4+3))))"
    assert as_merged(4, 2, RING_FROM) == as_merged(4, 2, 0)


def add(source: int, target: int, itemsize: int, nbytes: int) -> None:
    assert itemsize == 8
    numbers(target, nbytes)[:] += numbers(source, nbytes)


def numbers(address: int, nbytes: int) -> Array:
    return np.frombuffer((c_int32 * (nbytes // 4)).from_address(address), np.float64)


ADD = Reducer(add)


def int32s(values: list[int]) -> Any:
    return (c_int32 * len(values))(*values)


class Caller:
    """Calls the functions with numpy arrays of doubles."""

    def __init__(self, comm: Communicator, give_up: Callable[[], object] = lambda: None) -> None:
        self.functions = Functions(comm, give_up)

    def reduce_scatter(self, data: Array, counts: list[int], reducer: Any = ADD) -> Array:
        out = np.full(max(counts), np.nan)
        lengths = [8 * n for n in counts]
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        address = pointer(c_void_p(cast(reducer, c_void_p).value))
        self.functions.reduce_scatter(
            data.ctypes.data, data.nbytes, 8, int32s(starts), int32s(lengths), len(counts), out.ctypes.data, out.nbytes,
            address,
        )  # fmt: skip
        return out

    def allgather(self, data: Array, counts: list[int], out: Array | None = None, shift: int = 0) -> Array:
        out = np.full(sum(counts), np.nan) if out is None else out
        lengths = [8 * n for n in counts]
        starts = [sum(lengths[:i]) + shift for i in range(len(lengths))]
        self.functions.allgather(
            data.ctypes.data, data.nbytes, int32s(starts), int32s(lengths), len(counts), out.ctypes.data, out.nbytes
        )
        return out


COUNTS = [[3, 3, 3], [8, 8, 8], [1, 0, 5], [0, 0, 2], [0, 0, 0], [100, 7, 2000]]


def test_blocks_of_any_lengths_are_summed_and_gathered() -> None:
    def work(comm: Communicator) -> None:
        call, rank = Caller(comm), comm.rank
        for turn, counts in enumerate(COUNTS * 3):
            all_data = np.random.default_rng(turn).integers(-99, 99, (comm.size, sum(counts))).astype(float)
            first = sum(counts[:rank])
            got = call.reduce_scatter(all_data[rank].copy(), counts)
            np.testing.assert_array_equal(got[: counts[rank]], all_data.sum(0)[first : first + counts[rank]])
            assert np.isnan(got[counts[rank] :]).all()
            mine = all_data[0, first : first + counts[rank]].copy()
            np.testing.assert_array_equal(call.allgather(mine, counts), all_data[0])
        assert call.functions.error is None

    ringcast.run(work, 3, backend="threads")


def test_data_at_the_begin_of_the_result_are_gathered() -> None:
    def work(comm: Communicator) -> None:
        call, counts = Caller(comm), [2] * comm.size
        for _ in range(4):
            out = np.full(sum(counts), float(comm.rank))
            np.testing.assert_array_equal(call.allgather(out, counts, out), [0, 0, 1, 1, 2, 2])

    ringcast.run(work, 3, backend="threads")


def test_large_blocks_are_summed() -> None:
    def work(comm: Communicator) -> None:
        call, n = Caller(comm), (RING_FROM // 8 + 6) // 3 * 3
        got = call.reduce_scatter(np.arange(n, dtype=float), [n // 3] * 3)
        np.testing.assert_array_equal(got, 3 * np.arange(n)[n // 3 * comm.rank :][: n // 3])

    ringcast.run(work, 3, backend="threads")


def test_the_first_error_is_kept_and_the_network_given_up_once() -> None:
    def work(comm: Communicator) -> None:
        given_up: list[int] = []
        call = Caller(comm.dup(), lambda: given_up.append(1))
        if comm.rank == 1:
            call.functions._comm.revoke()
        else:
            call.allgather(np.ones(2), [2, 2])
            assert isinstance(call.functions.error, Revoked)
            call.allgather(np.ones(2), [2, 2])
            assert given_up == [1]
        comm.agree()

    ringcast.run(work, 2, backend="threads")


def test_after_an_error_there_is_something_harmless_in_place_of_the_result() -> None:
    with ringcast.init() as comm:
        call = Caller(comm.dup())
        call.functions._comm.revoke()
        own = np.arange(4.0)
        np.testing.assert_array_equal(call.reduce_scatter(own, [4]), own)
        np.testing.assert_array_equal(call.allgather(own, [4]), own)
        comm.agree()


def test_in_place_of_descriptions_of_bins_there_are_lengths_below_zero() -> None:
    def work(comm: Communicator) -> None:
        call = Caller(comm.dup())
        call.functions._comm.revoke()
        out = call.allgather(np.ones(1 + comm.rank), [1, 2])
        assert string_at(out.ctypes.data, out.nbytes) == b"\xff" * 24
        comm.agree()

    ringcast.run(work, 2, backend="threads")


def test_blocks_that_do_not_follow_each_other_are_refused() -> None:
    with ringcast.init() as comm:
        call = Caller(comm)
        call.allgather(np.ones(2), [1], shift=8)
        assert isinstance(call.functions.error, UsageError)
        assert "blocks that do not follow each other" in str(call.functions.error)


def test_a_signal_waits_for_the_exchange_of_both_functions() -> None:
    functions = Functions._allgather, Functions._reduce_scatter
    assert {function.__code__ for function in functions} <= signal_gate._CALLED_FROM_C
