"""The arrays of the program that a call reads and writes, at once or also after it has begun.

A call that copies an array when it begins is done with it. Python objects travel as pickles, and are not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import getgeneratorlocals
from types import GeneratorType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ringcast.collectives.announced import RIDE_ALONG
from ringcast.engine.datatypes import as_array, order_of
from ringcast.engine.execute import Steps
from ringcast.ops import Array

# Of `np.shares_memory`: a millisecond at most; rows, columns and blocks need none of it. numpy's stubs know no number.
BOUND: dict[str, Any] = {"max_work": 1000}


class Use(NamedTuple):
    """How a call uses an array: it reads or writes it; `later`, if also after it has begun."""

    array: Array
    writes: bool
    later: bool


Arguments: TypeAlias = Mapping[str, Any]


def uses_of(steps: Steps[Any]) -> tuple[Use, ...]:
    """Return how a call uses the arrays that it was given; `steps` have not ended."""
    assert isinstance(steps, GeneratorType)
    rule = _RULES.get(steps.gi_code.co_name)
    return () if rule is None else tuple(rule(getgeneratorlocals(steps)))


def conflict(call: Use, under_way: Use) -> bool:
    """Return whether a call must wait for another one under way, as one of the two writes memory that both use."""
    return under_way.later and (call.writes or under_way.writes) and overlap(call.array, under_way.array)


def overlap(one: Array, other: Array) -> bool:
    """Return whether two arrays have items in common; False also if that is too hard to find out.

    >>> table = np.zeros((9, 9))
    >>> overlap(table[:, 1], table[:, 2]), overlap(table[:, 1], table[2])
    (False, True)
    """
    try:
        return np.shares_memory(one, other, **BOUND)
    except np.exceptions.TooHardError:
        return False


def _read(value: Any, *, later: bool) -> Iterator[Use]:
    array = _array(value)
    if array is not None:
        yield Use(array, False, later)


def _written(out: Any) -> Iterator[Use]:
    array = _array(out)
    if array is not None:
        yield Use(array, True, True)


def _array(value: Any) -> Array | None:
    """Return an array of the program that travels as it is; a numpy scalar cannot be changed, and is none."""
    return None if isinstance(value, np.generic) else as_array(value)


def _at_root(given: Arguments) -> bool:
    root = given["root"]
    return isinstance(root, int | np.integer) and bool(given["group"].rank == root)


def _bcast(given: Arguments) -> Iterator[Use]:
    value = given["value"]
    if not _at_root(given):
        yield from _written(value)
    elif (array := _array(value)) is not None:
        copied = not order_of(array) or (array.nbytes <= RIDE_ALONG and given["choice"].automatic)
        yield Use(array, False, not copied)


def _bcast_into(given: Arguments) -> Iterator[Use]:
    yield Use(given["line"], not _at_root(given), True)


def _bcast_shared(given: Arguments) -> Iterator[Use]:
    if _at_root(given):
        yield from _read(given["value"], later=True)


def _scatter(given: Arguments) -> Iterator[Use]:
    value = _array(given["values" if "values" in given else "value"])
    if _at_root(given):
        yield from _read(value, later=value is not None and value.flags.c_contiguous)
    yield from _written(given["out"])


def _gather(given: Arguments) -> Iterator[Use]:
    """Yield the uses of gather, gatherv and reduce: only the exchange of counts comes before the copy."""
    yield from _read(given["value"], later=given.get("counts", ()) is None)
    if _at_root(given):
        yield from _written(given["out"])


def _to_all(given: Arguments) -> Iterator[Use]:
    """Yield the uses of allgather, allgatherv, allreduce and scan."""
    yield from _read(given["value"], later=given.get("counts", ()) is None)
    yield from _written(given["out"])


def _exscan(given: Arguments) -> Iterator[Use]:
    yield from _read(given["value"], later=False)
    if given["group"].rank:
        yield from _written(given["out"])


def _merge_sorted(given: Arguments) -> Iterator[Use]:
    yield from _read(given["value"], later=True)
    yield from _written(given["out"])


def _reduce_scatter(given: Arguments) -> Iterator[Use]:
    value, out = _array(given["value"]), _array(given["out"])
    in_place = value is not None and out is not None and overlap(value, out)
    yield from _written(value) if in_place else _read(value, later=False)
    yield from _written(out)


def _alltoall(given: Arguments) -> Iterator[Use]:
    """Yield the uses of alltoall, alltoallv and their forms between neighbours."""
    return _straight(given, exchanged=given.get("recvcounts", ()) is None)


def _neighbor_allgather(given: Arguments) -> Iterator[Use]:
    return _straight(given, exchanged=given.get("counts", ()) is None)


def _straight(given: Arguments, *, exchanged: bool) -> Iterator[Use]:
    """Arriving rows must not overwrite unsent ones, so a value that shares memory with `out` is copied.

    If the numbers of rows are exchanged, the copy is made after that (`exchanged`).
    """
    value, out = _array(given["value"]), _array(given["out"])
    if value is not None:
        copied = not value.flags.c_contiguous or (out is not None and np.may_share_memory(value, out))
        yield Use(value, False, exchanged or not copied)
    yield from _written(out)


def _shift(given: Arguments) -> Iterator[Use]:
    return _straight(given, exchanged=False)


def _send(given: Arguments) -> Iterator[Use]:
    value = _array(given["value"])
    if given["dest"] is not None:
        yield from _read(value, later=value is not None and order_of(value) != "")


def _recv(given: Arguments) -> Iterator[Use]:
    if given["source"] is not None:
        yield from _written(given["out"])


def _sendrecv(given: Arguments) -> Iterator[Use]:
    yield from _send(given)
    yield from _recv(given)


_RULES: dict[str, Callable[[Arguments], Iterator[Use]]] = {
    "bcast": _bcast,
    "bcast_into": _bcast_into,
    "bcast_shared": _bcast_shared,
    "reduce": _gather,
    "allreduce": _to_all,
    "gather": _gather,
    "gatherv": _gather,
    "scatter": _scatter,
    "scatterv": _scatter,
    "allgather": _to_all,
    "allgatherv": _to_all,
    "merge_sorted": _merge_sorted,
    "reduce_scatter": _reduce_scatter,
    "scan": _to_all,
    "exscan": _exscan,
    "alltoall": _alltoall,
    "alltoallv": _alltoall,
    "neighbor_allgather": _neighbor_allgather,
    "neighbor_allgatherv": _neighbor_allgather,
    "neighbor_alltoall": _alltoall,
    "neighbor_alltoallv": _alltoall,
    "shift": _shift,
    "send": _send,
    "recv": _recv,
    "sendrecv": _sendrecv,
}
