"""Total exchange: every rank has a part for every rank; alltoall and alltoallv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from math import prod
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.again import Places, key_of, learn
from ringcast.collectives.rows import check_out_rows, no_out, rows_of
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Choice, Data, Group, StagePlan, pickled, plan, run_stage
from ringcast.engine.datatypes import as_array, check_counts, check_out, dtype_name, room
from ringcast.engine.execute import Steps
from ringcast.engine.objects import Codec
from ringcast.engine.pieces import PieceSlots, cut
from ringcast.engine.program import MOST_OWN
from ringcast.engine.slots import ArraySlots, ObjectSlots
from ringcast.engine.unsendable import in_words
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.schedules.schedule import Copy
from ringcast.wire.call import COUNTS_OF


def alltoall(group: Group, value: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return the rows that all ranks have for this one; see `Communicator.alltoall`."""
    several = value.ndim > 0 if isinstance(value, np.ndarray | np.generic) else isinstance(value, Sequence)
    if not several or len(value) != group.size:
        expected = f"expected an array with {group.size} rows, or a sequence of {group.size} values"
        got = f"{len(value)} of them; alltoallv takes any number" if several else in_words(value)
        raise ArgumentError(group.endpoint.rank, "alltoall", "value", f"{expected}, got {got}")
    array = as_array(value)
    if array is None:
        no_out(group, "alltoall", out)
        return (yield from swap_objects(group, plan(group, "alltoall", choice, OBJECTS), list(value)))
    if out is not None:
        check_out(group.endpoint.rank, "alltoall", out, array.shape, array.dtype)
    stage = plan(group, "alltoall", choice, Data.of(array, times=2))
    ones = (1,) * group.size
    result = yield from _swap(group, stage, array, ones, ones, out)
    _learn(group, key_of("alltoall", choice, value, array), stage, array)
    return result


def _learn(group: Group, key: tuple[object, ...] | None, stage: StagePlan, array: Array) -> None:
    """Keep a call for the next time; adjacent rows of a message are one frame then.

    The program's memory holds the rows to send, then the rows that arrive. Its first step copies this rank's own row.
    """
    p, mine, (schedule, todo) = group.size, group.rank, stage.prepared(group)
    if key is None or key in group.again or not todo or 2 * array.nbytes > MOST_OWN:
        return
    own = replace(todo[0], local=(Copy(p + mine, mine), *todo[0].local))
    slots = ArraySlots(np.empty(2 * array.size, array.dtype), schedule, (array.size // p,) * 2 * p)

    shape = array.shape

    def places(data: Array) -> Places:
        source, result = data.reshape(2, *shape)
        return Places(source, result, result)

    learn(group, key, stage, slots, places, steps=(own, *todo[1:]))


def alltoallv(group: Group, value: Any, counts: Any, recvcounts: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return the rows that all ranks have for this one, in rank order; see `Communicator.alltoallv`."""
    rank, objects, told = group.rank, isinstance(value, list | tuple), group.endpoint.rank
    array = None if objects else rows_of(group, "alltoallv", value)
    rows = check_counts(told, "alltoallv", counts, group.size)
    if sum(rows) != len(value):
        what = "values" if array is None else "rows of the array"
        expected = f"expected numbers that add up to the {len(value)} {what}, got {sum(rows)}"
        raise ArgumentError(told, "alltoallv", "counts", expected)
    if recvcounts is not None:
        recvcounts = check_counts(told, "alltoallv", recvcounts, group.size, "recvcounts")
        if recvcounts[rank] != rows[rank]:
            expected = f"expected {rows[rank]} at [{rank}], the rows of this rank for itself, got {recvcounts[rank]}"
            raise ArgumentError(told, "alltoallv", "recvcounts", expected)
    if array is None:
        no_out(group, "alltoallv", out)
        return (yield from _swap_lists(group, value, rows, recvcounts, choice))
    # No rank knows the size of all data: the algorithm is chosen as for no data.
    stage = plan(group, "alltoallv", choice, Data(dtype_name(array.dtype), array.shape[1:]))
    check_out_rows(group, "alltoallv", out, array)
    theirs = (yield from _counts(group, array, rows)) if recvcounts is None else recvcounts
    if out is not None:
        check_out(rank, "alltoallv", out, (sum(theirs), *array.shape[1:]), array.dtype)
    return (yield from _swap(group, stage, array, rows, theirs, out))


def _counts(group: Group, array: Array, rows: tuple[int, ...]) -> Steps[tuple[int, ...]]:
    """Exchange the numbers of rows: an alltoall of 8 bytes for each rank, in ceil(log2 p) rounds."""
    name, row = f"{dtype_name(array.dtype)}{COUNTS_OF}", array.shape[1:]
    stage = plan(group, "alltoall", AUTOMATIC, Data(name, row, 16 * group.size), name="alltoallv")
    ones = (1,) * group.size
    theirs = yield from _swap(group, stage, np.array(rows, np.int64), ones, ones, None)
    return tuple(theirs.tolist())


def _swap(
    group: Group, stage: StagePlan, array: Array, rows: tuple[int, ...], theirs: tuple[int, ...], out: Any
) -> Steps[Array]:
    """Exchange `rows[j]` rows for `theirs[j]` with each rank j: straight from `array` into the result."""
    row, shape = prod(array.shape[1:]), (sum(theirs), *array.shape[1:])
    given = np.ascontiguousarray(array)
    result = room(group.endpoint.rank, stage.call.collective, shape, array.dtype, "recvcounts") if out is None else out
    if np.may_share_memory(given, result):  # arriving data must not overwrite unsent data
        given = given.copy()
    yield from _swap_pieces(group, stage, cut(given, [n * row for n in rows]), cut(result, [n * row for n in theirs]))
    return result


def swap_pieces(group: Group, outgoing: list[memoryview], incoming: list[memoryview]) -> Steps[None]:
    """Exchange pieces of memory, which may lie anywhere, with all ranks; each knows the lengths that it receives."""
    yield from _swap_pieces(group, plan(group, "alltoallv", AUTOMATIC, Data("uint8")), outgoing, incoming)


def _swap_pieces(group: Group, stage: StagePlan, outgoing: list[memoryview], incoming: list[memoryview]) -> Steps[Any]:
    incoming[group.rank][:] = outgoing[group.rank]
    # Only now are the bytes of an alltoallv known, and only to this rank.
    moved = replace(stage, nbytes=sum(map(len, outgoing)) + sum(map(len, incoming)))
    return run_stage(group, moved, lambda s: PieceSlots([*outgoing, *incoming], s))


def swap_objects(group: Group, stage: StagePlan, values: list[Any], codec: Codec | None = None) -> Steps[list[Any]]:
    """Exchange one object with each rank."""
    p, rank, codec = group.size, group.rank, codec or pickled(group, stage.call.collective)
    both = [*values, *(None for _ in range(p))]
    both[p + rank] = values[rank]
    slots: ObjectSlots = yield from run_stage(group, stage, lambda s: ObjectSlots(both, s, codec))
    return slots.values(range(p, 2 * p))


def _swap_lists(
    group: Group, value: Sequence[Any], rows: tuple[int, ...], recvcounts: tuple[int, ...] | None, choice: Choice
) -> Steps[list[Any]]:
    """Exchange runs of objects; each run carries its length."""
    stage = plan(group, "alltoallv", choice, OBJECTS)
    ends = accumulate(rows, initial=0)
    theirs = yield from swap_objects(group, stage, [list(value[a:b]) for a, b in pairwise(ends)])
    lengths = tuple(map(len, theirs))
    if recvcounts not in (None, lengths):
        expected = f"expected the numbers of objects that came, {lengths}, got {safe_text(recvcounts)}"
        raise ArgumentError(group.endpoint.rank, "alltoallv", "recvcounts", expected)
    return list(chain.from_iterable(theirs))
