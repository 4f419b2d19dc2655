"""Collectives between the neighbours in a topology; the graph gives the schedule, so no algorithm is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from math import prod
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import safe_text
from ringcast.algorithms.params import Params
from ringcast.collectives.rows import check_out_rows, no_out, rows_of
from ringcast.collectives.stage import Group, StagePlan, pickled, run_schedule
from ringcast.engine.datatypes import as_array, check_counts, check_out, check_stackable, dtype_name, room
from ringcast.engine.execute import Steps
from ringcast.engine.objects import AS_IT_IS, Codec
from ringcast.engine.pieces import PieceSlots, cut
from ringcast.engine.recorder import encoded
from ringcast.engine.slots import ObjectSlots
from ringcast.engine.unsendable import in_words
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.schedules.neighborhood import Neighborhood
from ringcast.schedules.schedule import Step, relabel
from ringcast.wire.call import COUNTS_OF, OBJECT, Call
from ringcast.wire.header import EAGER_LIMIT

_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The neighbours of this rank in a group, as the calls use them; made once for a topology."""

    group: Group
    schedule: Neighborhood
    steps: tuple[Step, ...]  # of the schedule, among the ranks of the job


def neighbors_of(group: Group, schedule: Neighborhood) -> Neighbors:
    """Return the neighbours of this rank as the calls of a topology use them."""
    members = group.members
    return Neighbors(group, schedule, tuple(relabel(schedule, members, group.endpoint.size) if members else schedule))


def neighbor_allgather(near: Neighbors, value: Any, out: Any) -> Steps[Any]:
    """Return the values of all sources, stacked or as a list; see `Topology.neighbor_allgather`."""
    name, group, places = "neighbor_allgather", near.group, len(near.schedule.sources)
    array = as_array(value)
    if array is None:
        no_out(group, name, out)
        return (yield from spread_object(near, name, value))
    check_stackable(group.endpoint.rank, name, array)
    if out is not None:
        check_out(group.endpoint.rank, name, out, (places, *array.shape), array.dtype)
    stage = _plan(near, name, dtype_name(array.dtype), array.shape, array.nbytes)
    return (yield from _spread(near, stage, array[None], (1,) * places, out))


def neighbor_allgatherv(near: Neighbors, value: Any, counts: Any, out: Any) -> Steps[Any]:
    """Return the concatenation of the rows of all sources; see `Topology.neighbor_allgatherv`."""
    name, group = "neighbor_allgatherv", near.group
    objects = isinstance(value, list | tuple)
    array = None if objects else rows_of(group, name, value)
    mine = (len(value),) * len(near.schedule.destinations)
    theirs = None if counts is None else _told(near, name, "counts", counts, mine)
    if array is None:
        no_out(group, name, out)
        lists = yield from spread_object(near, name, list(value))
        return _joined(near, name, "counts", lists, theirs)
    check_out_rows(group, name, out, array)
    if theirs is None:
        theirs = yield from _exchange_counts(near, name, array, mine)
    if out is not None:
        check_out(group.endpoint.rank, name, out, (sum(theirs), *array.shape[1:]), array.dtype)
    stage = _plan(near, name, dtype_name(array.dtype), array.shape[1:])
    return (yield from _spread(near, stage, array, theirs, out))


def neighbor_alltoall(near: Neighbors, value: Any, out: Any) -> Steps[Any]:
    """Return the values that all sources have for this rank; see `Topology.neighbor_alltoall`."""
    name, group, schedule = "neighbor_alltoall", near.group, near.schedule
    places = len(schedule.destinations)
    several = value.ndim > 0 if isinstance(value, np.ndarray | np.generic) else isinstance(value, Sequence)
    if not several or len(value) != places:
        expected = f"expected an array with {places} rows, or a sequence of {places} values, one for each destination"
        got = f"{len(value)} of them; neighbor_alltoallv takes any number" if several else in_words(value)
        raise ArgumentError(group.endpoint.rank, name, "value", f"{expected}, got {got}")
    array = as_array(value)
    if array is None:
        no_out(group, name, out)
        return (yield from swap_objects(near, name, list(value)))
    row, theirs = array.shape[1:], (1,) * len(schedule.sources)
    if out is not None:
        check_out(group.endpoint.rank, name, out, (len(theirs), *row), array.dtype)
    stage = _plan(near, name, dtype_name(array.dtype), row, prod(row) * array.itemsize)
    return (yield from _swap(near, stage, array, (1,) * places, theirs, out))


def neighbor_alltoallv(near: Neighbors, value: Any, counts: Any, recvcounts: Any, out: Any) -> Steps[Any]:
    """Return the rows that all sources have for this rank; see `Topology.neighbor_alltoallv`."""
    name, group, schedule = "neighbor_alltoallv", near.group, near.schedule
    objects = isinstance(value, list | tuple)
    array = None if objects else rows_of(group, name, value)
    rows = check_counts(group.endpoint.rank, name, counts, len(schedule.destinations))
    if sum(rows) != len(value):
        what = "values" if array is None else "rows of the array"
        expected = f"expected numbers that add up to the {len(value)} {what}, got {sum(rows)}"
        raise ArgumentError(group.endpoint.rank, name, "counts", expected)
    theirs = None if recvcounts is None else _told(near, name, "recvcounts", recvcounts, rows)
    if array is None:
        no_out(group, name, out)
        ends = accumulate(rows, initial=0)
        lists = yield from swap_objects(near, name, [list(value[a:b]) for a, b in pairwise(ends)])
        return _joined(near, name, "recvcounts", lists, theirs)
    check_out_rows(group, name, out, array)
    if theirs is None:
        theirs = yield from _exchange_counts(near, name, array, rows)
    if out is not None:
        check_out(group.endpoint.rank, name, out, (sum(theirs), *array.shape[1:]), array.dtype)
    stage = _plan(near, name, dtype_name(array.dtype), array.shape[1:])
    return (yield from _swap(near, stage, array, rows, theirs, out))


def _told(near: Neighbors, name: str, argument: str, counts: Any, mine: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of rows from each source, as the program gives them; this rank's own are known."""
    rank = near.group.endpoint.rank
    theirs = check_counts(rank, name, counts, len(near.schedule.sources), argument)
    for place, into in near.schedule.own:
        if theirs[into] != mine[place]:
            expected = f"expected {mine[place]} at [{into}], the rows of this rank for itself, got {theirs[into]}"
            raise ArgumentError(rank, name, argument, expected)
    return theirs


def _exchange_counts(near: Neighbors, name: str, array: Array, mine: tuple[int, ...]) -> Steps[tuple[int, ...]]:
    """Send every destination the number of its rows: 8 bytes in the same rounds as the rows."""
    stage = _plan(near, name, f"{dtype_name(array.dtype)}{COUNTS_OF}", array.shape[1:])
    ones, places = (1,) * len(mine), len(near.schedule.sources)
    theirs = yield from _swap(near, stage, np.array(mine, np.int64), ones, (1,) * places, None)
    return tuple(theirs.tolist())


def _plan(near: Neighbors, name: str, dtype: str, shape: tuple[int, ...] = (), longest: int = 0) -> StagePlan:
    """Plan a stage in which messages have at most so many bytes, if all ranks know that; `shape` is equal on them."""
    return _planned(near.schedule.size, near.schedule.name, name, dtype, shape, longest)


@lru_cache(maxsize=1024)  # programs repeat their calls
def _planned(size: int, topology: str, name: str, dtype: str, shape: tuple[int, ...], longest: int) -> StagePlan:
    call = Call(name, dtype, shape, topology=topology)
    return StagePlan(name, "", Params(size), call, 0, longest > EAGER_LIMIT, encoded(call))


def _spread(near: Neighbors, stage: StagePlan, array: Array, theirs: tuple[int, ...], out: Any) -> Steps[Array]:
    """Send the same rows to every destination."""
    given = np.ascontiguousarray(array)
    result = _result(near, stage, array, theirs, out)
    if np.may_share_memory(given, result):  # arriving data must not overwrite unsent data
        given = given.copy()
    pieces = cut(given, [given.size]) * len(near.schedule.destinations)
    return (yield from _move(near, stage, pieces, result, theirs))


def _swap(
    near: Neighbors, stage: StagePlan, array: Array, rows: tuple[int, ...], theirs: tuple[int, ...], out: Any
) -> Steps[Array]:
    """Send `rows[i]` rows to destination i: straight from the array."""
    given = np.ascontiguousarray(array)
    result = _result(near, stage, array, theirs, out)
    if np.may_share_memory(given, result):
        given = given.copy()
    row = prod(array.shape[1:])
    return (yield from _move(near, stage, cut(given, [n * row for n in rows]), result, theirs))


def _result(near: Neighbors, stage: StagePlan, array: Array, theirs: tuple[int, ...], out: Any) -> Array:
    """Return the memory of the result; new memory is zero where nothing comes."""
    if out is not None:
        return out  # type: ignore[no-any-return]  # it was checked
    name, shape = stage.call.collective, (sum(theirs), *array.shape[1:])
    argument = "recvcounts" if name == "neighbor_alltoallv" else "counts"
    result = room(near.group.rank, name, shape, array.dtype, argument)
    if None in near.schedule.sources:
        result.reshape(-1).view(np.uint8)[:] = 0
    return result


def _move(
    near: Neighbors, stage: StagePlan, outgoing: list[memoryview], result: Array, theirs: tuple[int, ...]
) -> Steps[Array]:
    """Send a piece to each destination, and receive `theirs[i]` rows of the result from source i."""
    row = prod(result.shape[1:])
    yield from _move_pieces(near, stage, outgoing, cut(result, [n * row for n in theirs]))
    return result


def move_pieces(
    near: Neighbors, name: str, outgoing: list[memoryview], incoming: list[memoryview], longest: int = 0
) -> Steps[Any]:
    """Send a piece of memory to each destination, and receive one from each source; see `_plan` for `longest`."""
    return _move_pieces(near, _plan(near, name, "uint8", longest=longest), outgoing, incoming)


def _move_pieces(
    near: Neighbors, stage: StagePlan, outgoing: list[memoryview], incoming: list[memoryview]
) -> Steps[Any]:
    schedule = near.schedule
    for place, into in schedule.own:
        incoming[into][:] = outgoing[place]
    pieces = _padded(outgoing, schedule.degree, _NOTHING) + _padded(incoming, schedule.degree, _NOTHING)
    if near.group.on_stage is not None:  # each rank knows of its own bytes only, and nothing else asks for them
        stage = replace(stage, nbytes=sum(map(len, outgoing)) + sum(map(len, incoming)))
    return run_schedule(near.group, stage, schedule, near.steps, lambda s: PieceSlots(pieces, s))


def spread_object(near: Neighbors, name: str, value: Any) -> Steps[list[Any]]:
    """Send the same object to every destination; it is encoded once."""
    encode, decode = pickled(near.group, name)
    away = any(out is not None for out, _ in near.schedule.rounds)
    whole = [encode(value) if away else []] * len(near.schedule.destinations)
    return (yield from _move_objects(near, name, whole, [value] * len(whole), (AS_IT_IS[0], decode)))


def swap_objects(near: Neighbors, name: str, values: list[Any], codec: Codec | None = None) -> Steps[list[Any]]:
    """Send an object to each destination."""
    return (yield from _move_objects(near, name, values, values, codec or pickled(near.group, name)))


def _move_objects(near: Neighbors, name: str, outgoing: list[Any], own: list[Any], codec: Codec) -> Steps[list[Any]]:
    """Send a value to each destination; a rank gets its `own` from itself."""
    schedule, degree = near.schedule, near.schedule.degree
    incoming: list[Any] = [None] * len(schedule.sources)
    for place, into in schedule.own:
        incoming[into] = own[place]
    values = _padded(outgoing, degree, None) + _padded(incoming, degree, None)
    stage = _plan(near, name, OBJECT)
    slots: ObjectSlots = yield from run_schedule(
        near.group, stage, schedule, near.steps, lambda s: ObjectSlots(values, s, codec)
    )
    return slots.values(range(degree, degree + len(incoming)))


def _joined(near: Neighbors, name: str, argument: str, lists: list[Any], counts: tuple[int, ...] | None) -> list[Any]:
    """Return the objects of all sources; their numbers must equal the program's `counts`, if given."""
    came = [one or [] for one in lists]
    lengths = tuple(map(len, came))
    if counts is not None and any(
        length != count
        for source, length, count in zip(near.schedule.sources, lengths, counts, strict=True)
        if source is not None
    ):
        expected = f"expected the numbers of objects that came, {lengths}, got {safe_text(counts)}"
        raise ArgumentError(near.group.rank, name, argument, expected)
    return list(chain.from_iterable(came))


def _padded(pieces: Sequence[Any], length: int, nothing: Any) -> list[Any]:
    """Return the pieces, padded so that all ranks number their slots alike."""
    return [*pieces, *[nothing] * (length - len(pieces))]
