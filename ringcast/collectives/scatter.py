"""Parts are handed out: scatter and scatterv."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ringcast.collectives.announce import announce
from ringcast.collectives.rows import even, rows_of, spread_objects
from ringcast.collectives.stage import AUTOMATIC, NO_DATA, OBJECTS, Choice, Data, Group, plan, run_stage
from ringcast.engine.datatypes import as_array, check_counts, describe_dtype, dtype_name, parse_dtype
from ringcast.engine.execute import Steps
from ringcast.engine.slots import ArraySlots
from ringcast.engine.unsendable import in_words
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.wire.collective import COLLECTIVES, Parts


def scatter(group: Group, values: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return one of the root's values on each rank; see `Communicator.scatter`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root, name="scatter")
    plan(group, "scatter", choice, NO_DATA, root=root)  # a wrong algorithm is found before anything is sent
    record: dict[str, Any] = {}
    array = None
    if group.rank == root:
        array = as_array(values)
        several = isinstance(values, Sequence) or (isinstance(values, np.ndarray) and values.ndim)
        if not several or len(values) != group.size:
            expected = f"expected an array with {group.size} rows, or a sequence of {group.size} values"
            got = f"{len(values)} of them; scatterv divides any number" if several else in_words(values)
            raise ArgumentError(group.endpoint.rank, "scatter", "values", f"{expected}, got {got}")
        array = None if array is None else np.ascontiguousarray(array)  # a copy, if any, is made when the call begins
        record = _describe_rows(array, (1,) * group.size)
    record = (yield from announce(group, describe, record)).values[0]
    if record["dtype"] == "object":
        given = list(values) if group.rank == root else [None] * group.size
        slots = yield from spread_objects(group, "scatter", given, root, choice)
        return slots.values[group.rank]
    part = yield from _hand_out(group, "scatter", array, record, root, choice)
    return part[0]


def scatterv(group: Group, value: Any, counts: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return a run of the root's rows on each rank; see `Communicator.scatterv`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root, name="scatterv")
    plan(group, "scatter", choice, NO_DATA, root=root, name="scatterv")
    if counts is not None:
        counts = check_counts(group.endpoint.rank, "scatterv", counts, group.size)
    record: dict[str, Any] = {}
    array = None
    if group.rank == root:
        array = rows_of(group, "scatterv", value)
        rows = even(len(array), group.size) if counts is None else counts
        if sum(rows) != len(array):
            expected = f"expected numbers that add up to the {len(array)} rows of the array, got {sum(rows)}"
            raise ArgumentError(group.endpoint.rank, "scatterv", "counts", expected)
        array = np.ascontiguousarray(array)  # as in `scatter`
        record = _describe_rows(array, rows)
    record = (yield from announce(group, describe, record)).values[0]
    rows = tuple(record["rows"])
    if counts is not None and counts != rows:
        raise ArgumentError(
            group.endpoint.rank, "scatterv", "counts", f"expected those of the root, {rows}, got {counts!r}"
        )
    return (yield from _hand_out(group, "scatterv", array, record, root, choice))


def _describe_rows(array: Array | None, rows: tuple[int, ...]) -> dict[str, Any]:
    if array is None:
        return {"dtype": "object"}
    return {"dtype": describe_dtype(array.dtype), "rows": rows, "row": array.shape[1:]}


def _hand_out(
    group: Group, operation: str, array: Array | None, record: dict[str, Any], root: int, choice: Choice
) -> Steps[Array]:
    """Scatter the rows of the root's array; returns those of this rank in memory of their own.

    Inner ranks of the tree receive what they pass on into an array of the full size, of which the system backs only
    the pages that are used.
    """
    dtype, rows, row = parse_dtype(record["dtype"]), tuple(record["rows"]), tuple(record["row"])
    whole = np.empty((sum(rows), *row), dtype) if array is None else array
    items = tuple(n * prod(row) for n in rows)
    counts = items if COLLECTIVES[operation].parts is Parts.COUNTS else ()
    data = Data(dtype_name(dtype), (*rows, *row), whole.nbytes, dtype.itemsize, counts)
    stage = plan(group, "scatter", choice, data, root=root, name=operation)
    yield from run_stage(group, stage, lambda s: ArraySlots(whole.reshape(-1), s, items))
    first = sum(rows[: group.rank])
    return whole[first : first + rows[group.rank]].copy()
