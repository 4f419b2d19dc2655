"""Scatter and scatterv: the root sends each rank its part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.announce import announce
from ringcast.collectives.rows import even, no_out, rows_of, spread_objects
from ringcast.collectives.stage import AUTOMATIC, NO_DATA, OBJECTS, Choice, Data, Group, plan, run_stage
from ringcast.engine.datatypes import (
    as_array,
    check_buffer,
    check_counts,
    check_out,
    describe_dtype,
    dtype_name,
    parse_dtype,
)
from ringcast.engine.execute import Steps
from ringcast.engine.slots import ArraySlots
from ringcast.engine.unsendable import in_words
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.wire.call import OBJECT
from ringcast.wire.collective import COLLECTIVES, Parts


def scatter(group: Group, values: Any, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return one of the root's values on each rank; see `Communicator.scatter`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root, name="scatter")
    plan(group, "scatter", choice, NO_DATA, root=root)  # a wrong algorithm is found before anything is sent
    _check_memory(group, "scatter", out)
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
        record = _described(array, (1,) * group.size)
        _check_out(group, "scatter", out, record)
    record = yield from announce(group, describe, record)
    _check_out(group, "scatter", out, record)
    if record["dtype"] == OBJECT:
        given = list(values) if group.rank == root else [None] * group.size
        slots = yield from spread_objects(group, "scatter", given, root, choice)
        return slots.value(group.rank)
    part = yield from _hand_out(group, "scatter", array, record, root, choice)
    return _result(part[0], out)


def scatterv(group: Group, value: Any, counts: Any, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return a run of the root's rows on each rank; see `Communicator.scatterv`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root, name="scatterv")
    plan(group, "scatter", choice, NO_DATA, root=root, name="scatterv")
    if counts is not None:
        counts = check_counts(group.endpoint.rank, "scatterv", counts, group.size)
    _check_memory(group, "scatterv", out)
    record: dict[str, Any] = {}
    array = None
    if group.rank == root:
        array = None if isinstance(value, list | tuple) else rows_of(group, "scatterv", value)
        rows = even(len(value), group.size) if counts is None else counts
        if sum(rows) != len(value):
            what = "values" if array is None else "rows of the array"
            expected = f"expected numbers that add up to the {len(value)} {what}, got {sum(rows)}"
            raise ArgumentError(group.endpoint.rank, "scatterv", "counts", expected)
        array = None if array is None else np.ascontiguousarray(array)  # as in `scatter`
        record = _described(array, rows)
        _check_out(group, "scatterv", out, record)
    record = yield from announce(group, describe, record)
    rows = tuple(record["rows"])
    if counts is not None and counts != rows:
        raise ArgumentError(
            group.endpoint.rank, "scatterv", "counts", f"expected the root's counts, {rows}, got {safe_text(counts)}"
        )
    _check_out(group, "scatterv", out, record)
    if record["dtype"] == OBJECT:
        given = _runs(value, rows) if group.rank == root else [None] * group.size
        slots = yield from spread_objects(group, "scatter", given, root, choice, "scatterv")
        return slots.value(group.rank)
    part = yield from _hand_out(group, "scatterv", array, record, root, choice)
    return _result(part, out)


def _runs(values: Sequence[Any], rows: tuple[int, ...]) -> list[Any]:
    """Return for each rank a list of so many values."""
    return [list(values[a:b]) for a, b in pairwise(accumulate(rows, initial=0))]


def _described(array: Array | None, rows: tuple[int, ...]) -> dict[str, Any]:
    if array is None:
        return {"dtype": OBJECT, "rows": rows}
    return {"dtype": describe_dtype(array.dtype), "rows": rows, "row": array.shape[1:]}


def _check_memory(group: Group, operation: str, out: Any) -> None:
    """Check the arguments that do not depend on the root's data."""
    if out is not None:
        check_buffer(group.endpoint.rank, operation, out)


def _check_out(group: Group, operation: str, out: Any, record: dict[str, Any]) -> None:
    """Check that the root's data for this rank fit into `out`."""
    if out is None:
        return
    if record["dtype"] == OBJECT:
        no_out(group, operation, out)
        return
    row = tuple(record["row"])
    shape = row if operation == "scatter" else (record["rows"][group.rank], *row)
    check_out(group.endpoint.rank, operation, out, shape, parse_dtype(record["dtype"]))


def _result(part: Any, out: Any) -> Any:
    """Return this rank's part in memory of its own, or in `out`."""
    if out is None:
        return part.copy()
    out[...] = part
    return out


def _hand_out(
    group: Group, operation: str, array: Array | None, record: dict[str, Any], root: int, choice: Choice
) -> Steps[Array]:
    """Scatter the rows of the root's array, as the record describes them; see `hand_out`."""
    dtype, rows, row = parse_dtype(record["dtype"]), tuple(record["rows"]), tuple(record["row"])
    return hand_out(group, operation, array, dtype, rows, row, root, choice)


def hand_out(
    group: Group,
    operation: str,
    array: Array | None,
    dtype: np.dtype[Any],
    rows: tuple[int, ...],
    row: tuple[int, ...],
    root: int,
    choice: Choice,
) -> Steps[Array]:
    """Scatter the rows of the root's array; return this rank's rows, a view of that array or of received memory.

    All ranks know shape and dtype. Inner ranks of the tree receive rows to pass on into an array of the full size; the
    system backs only its used pages.
    """
    whole = np.empty((sum(rows), *row), dtype) if array is None else array
    items = tuple(n * prod(row) for n in rows)
    counts = items if COLLECTIVES[operation].parts is Parts.COUNTS else ()
    data = Data(dtype_name(dtype), (*rows, *row), whole.nbytes, dtype.itemsize, counts)
    stage = plan(group, "scatter", choice, data, root=root, name=operation)
    yield from run_stage(group, stage, lambda s: ArraySlots(whole.reshape(-1), s, items))
    first = sum(rows[: group.rank])
    return whole[first : first + rows[group.rank]]
