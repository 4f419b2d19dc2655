"""Common parts of several collectives: rows of arrays, and one object per rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcast.collectives.stage import OBJECTS, Choice, Group, pickled, plan, run_stage
from ringcast.engine.datatypes import as_array, check_counts, check_out, has_width
from ringcast.engine.execute import Steps
from ringcast.engine.objects import Codec
from ringcast.engine.slots import ObjectSlots
from ringcast.engine.unsendable import in_words
from ringcast.errors import ArgumentError
from ringcast.ops import Array


def rows_of(group: Group, operation: str, value: Any) -> Array:
    """Return an array that can be concatenated with the arrays of other ranks."""
    array = as_array(value)
    if array is None or array.ndim == 0:
        expected = f"expected an array of 1 dimension or more, got {in_words(value, texts='value.tolist()')}"
        raise ArgumentError(group.endpoint.rank, operation, "value", expected)
    return array


def check_rows(group: Group, operation: str, mine: int, counts: Any) -> tuple[int, ...]:
    """Return `counts`, which must give this rank the `mine` rows that it has."""
    rows = check_counts(group.endpoint.rank, operation, counts, group.size)
    if rows[group.rank] != mine:
        expected = f"expected {mine} at [{group.rank}], the rows of this rank's value, got {rows[group.rank]}"
        expected += "; if all ranks leave out counts, they are exchanged"
        raise ArgumentError(group.endpoint.rank, operation, "counts", expected)
    return rows


def check_out_rows(group: Group, operation: str, out: Any, array: Array) -> None:
    """Check `out`, except for its number of rows and the width of its texts: these are not known yet."""
    if out is not None:
        wider = isinstance(out, np.ndarray) and has_width(array.dtype) and out.dtype.kind == array.dtype.kind
        dtype = out.dtype if wider else array.dtype
        rows = out.shape[:1] if isinstance(out, np.ndarray) and out.ndim else (group.size,)
        check_out(group.endpoint.rank, operation, out, (*rows, *array.shape[1:]), dtype)


def even(rows: int, size: int) -> tuple[int, ...]:
    """Divide rows among ranks as evenly as possible; the first ranks get one more.

    >>> even(8, 3)
    (3, 3, 2)
    """
    return tuple(rows // size + (rank < rows % size) for rank in range(size))


def no_out(group: Group, operation: str, out: Any) -> None:
    """Refuse an `out` for a result that is a Python object."""
    if out is not None:
        expected = "expected None, as the value is a Python object: the result is returned"
        raise ArgumentError(group.endpoint.rank, operation, "out", expected)


def spread_objects(
    group: Group,
    collective: str,
    values: list[Any],
    root: int | None,
    choice: Choice,
    name: str = "",
    codec: Codec | None = None,
) -> Steps[ObjectSlots]:
    """Run a stage with one object per rank: this rank's own (allgather, gather), or all of them (scatter)."""
    codec = codec or pickled(group, name or collective)
    stage = plan(group, collective, choice, OBJECTS, root=root, name=name)
    everybody = values if len(values) == group.size else [None] * group.size
    if everybody is not values:
        everybody[group.rank] = values[0]
    slots: ObjectSlots = yield from run_stage(group, stage, lambda s: ObjectSlots(everybody, s, codec))
    return slots
