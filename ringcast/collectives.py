"""The collectives, as generators over a `Group`: check arguments, plan, run the stages, hand over the result.

A Communicator drives one such generator; the simulated wire drives those of all ranks in one thread. Arrays travel as
raw buffers; everything else as pickles, whole. Nothing is sent before the arguments of this rank have been checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ringcast.call import Call
from ringcast.datatypes import as_array, check_counts, check_op, check_out, dtype_name, flat, like, order_of
from ringcast.errors import ArgumentError
from ringcast.execute import Exchange, Steps
from ringcast.group import AUTOMATIC, Choice, Group, Plan, plan, run
from ringcast.messages import Message
from ringcast.objects import decode, describe_dtype, encode, pack_record, parse_dtype, unpack_record
from ringcast.ops import SUM, Array, Op
from ringcast.schedule import Schedule
from ringcast.slots import ArraySlots, ObjectSlots

RIDE_ALONG = 8 << 10  # bytes of a broadcast value that travel in the descriptor itself


def bcast(group: Group, value: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return the root's value on every rank; see `Communicator.bcast`."""
    describe = plan(group, "bcast", AUTOMATIC, dtype="object", root=root)
    # A numpy scalar is no buffer: it cannot be changed, as little as other objects that ranks may pass.
    buffer = as_array(value) if group.rank != root and not isinstance(value, np.generic) else None
    if buffer is not None:
        line = flat(buffer) if order_of(buffer) else buffer
        check_out(group.rank, "bcast", line, line.shape, buffer.dtype, "value")
    data = np.empty(0, np.uint8)
    record: dict[str, Any] = {}
    if group.rank == root:
        data, record = _describe(group, value, root, choice)
    record = yield from _tell(group, describe, record)
    if group.rank == root and "data" in record:
        return value
    dtype, shape = parse_dtype(record["dtype"]), tuple(record["shape"])
    if buffer is not None and (record["kind"] == "object" or (buffer.shape, buffer.dtype) != (shape, dtype)):
        theirs = "an object" if record["kind"] == "object" else f"shape {shape}, dtype {dtype_name(dtype)}"
        mine = f"a buffer of shape {buffer.shape}, dtype {dtype_name(buffer.dtype)}"
        raise ArgumentError(group.rank, "bcast", "value", f"expected {mine} to fit what the root sends: {theirs}")
    direct = buffer is not None and order_of(buffer) == record["order"]
    if group.rank != root:
        data = flat(buffer) if direct and buffer is not None else np.empty(int(np.prod(shape)), dtype)
    if "data" in record:
        data.view(np.uint8)[...] = np.frombuffer(record["data"], np.uint8)
    else:
        exactly = Choice(record["algorithm"], record["nblocks"])
        stage = _plan_bcast(group, dtype, (data.size,), data.nbytes, root, exactly)
        yield from run(group, stage, lambda s: ArraySlots(data, s, (data.size,)))
    if group.rank == root:
        return value
    if record["kind"] == "object":
        return decode(data.data)
    if buffer is None:
        result = data.reshape(shape, order=record["order"])
        return result[()] if record["kind"] == "scalar" else result
    if not direct:
        buffer[...] = data.reshape(shape, order=record["order"])
    return value


def _describe(group: Group, value: Any, root: int, choice: Choice) -> tuple[Array, dict[str, Any]]:
    """Return what the root broadcasts as flat data, and the record that announces it."""
    array = as_array(value)
    kind, order = "array", "C"
    if array is None:
        kind, array = "object", np.frombuffer(encode(value), np.uint8)
    elif isinstance(value, np.generic):
        kind = "scalar"
    if not (order := order_of(array)):
        array, order = np.ascontiguousarray(array), "C"
    record = {"kind": kind, "dtype": describe_dtype(array.dtype), "shape": array.shape, "order": order}
    data = flat(array)
    if array.nbytes <= RIDE_ALONG and choice == AUTOMATIC:
        return data, record | {"data": data.tobytes()}
    stage = _plan_bcast(group, array.dtype, (array.size,), array.nbytes, root, choice)
    return data, record | {"algorithm": stage.algorithm, "nblocks": stage.params.nblocks}


def _plan_bcast(
    group: Group, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int, root: int, choice: Choice
) -> Plan:
    itemsize, name = dtype.itemsize, dtype_name(dtype)
    return plan(group, "bcast", choice, dtype=name, shape=shape, nbytes=nbytes, itemsize=itemsize, root=root)


def _tell(group: Group, stage: Plan, record: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Broadcast a small record from the root of `stage`."""
    codec = pack_record, unpack_record
    slots = yield from run(group, stage, lambda s: ObjectSlots([record], s, codec=codec))
    told: dict[str, Any] = slots.values[0]
    return told


def reduce(group: Group, value: Any, op: Op, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return the combination of all values at the root; see `Communicator.reduce`."""
    array = as_array(value)
    if array is None:
        _no_out(group, "reduce", out if group.rank == root else None)
        result = yield from _combine_objects(group, "reduce", value, op, root, choice)
        return result if group.rank == root else None
    stage = _plan_combine(group, "reduce", array, op, choice, root=root)
    work = _working_copy(group, "reduce", array, out if group.rank == root else None)
    yield from run(group, stage, lambda s: _array_slots(work, s, (work.size,), op), work.itemsize)
    return like(value, work) if group.rank == root else None


def allreduce(group: Group, value: Any, op: Op, out: Any, choice: Choice) -> Steps[Any]:
    """Return the combination of all values on every rank; see `Communicator.allreduce`."""
    array = as_array(value)
    if array is None:
        _no_out(group, "allreduce", out)
        return (yield from _combine_objects(group, "allreduce", value, op, None, choice))
    stage = _plan_combine(group, "allreduce", array, op, choice)
    work = _working_copy(group, "allreduce", array, out)
    yield from run(group, stage, lambda s: _array_slots(work, s, (work.size,), op), work.itemsize)
    return like(value, work)


def _plan_combine(
    group: Group, collective: str, array: Array, op: Op, choice: Choice, *, root: int | None = None
) -> Plan:
    check_op(group.rank, collective, op, array.dtype)
    return plan(
        group,
        collective,
        choice,
        dtype=dtype_name(array.dtype),
        shape=array.shape,
        nbytes=array.nbytes,
        itemsize=array.itemsize,
        root=root,
        op=op,
        exact=op.exact(array.dtype),
    )


def _working_copy(group: Group, operation: str, array: Array, out: Any) -> Array:
    """Return the array that is combined in place and becomes the result: `out`, or a new one."""
    if out is None:
        return np.array(array, order="C")
    work = check_out(group.rank, operation, out, array.shape, array.dtype)
    np.copyto(work, array)  # does nothing harmful when both are the same
    return work


def _array_slots(work: Array, schedule: Schedule, counts: Sequence[int], op: Op) -> ArraySlots:
    whole = None if op.elementwise else work.shape
    return ArraySlots(work.reshape(-1), schedule, counts, op, whole)


def _combine_objects(group: Group, collective: str, value: Any, op: Op, root: int | None, choice: Choice) -> Steps[Any]:
    stage = plan(group, collective, choice, dtype="object", root=root, op=op)
    slots = yield from run(group, stage, lambda s: ObjectSlots([value], s, op))
    return slots.values[0]


def gather(group: Group, value: Any, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return all values at the root, stacked or as a list; see `Communicator.gather`."""
    array = as_array(value)
    if array is None:
        _no_out(group, "gather", out if group.rank == root else None)
        slots = yield from _spread_objects(group, "gather", [value], root, choice)
        return slots.values if group.rank == root else None
    stage = _plan_parts(group, "gather", "gather", array, (1,) * group.size, choice, root)
    mine = out if group.rank == root else None
    whole = yield from _place(group, "gather", stage, array[None], (1,) * group.size, mine)
    return whole if group.rank == root else None


def gatherv(group: Group, value: Any, counts: Any, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return the concatenation of all arrays at the root; see `Communicator.gatherv`."""
    array = _rows(group, "gatherv", value)
    plan(group, "gather", choice, dtype="", root=root, name="gatherv")  # a wrong root is found before anything is sent
    _check_out_rows(group, "gatherv", out if group.rank == root else None, array)
    rows = yield from _counts(group, "gatherv", array, counts)
    stage = _plan_parts(group, "gather", "gatherv", array, rows, choice, root)
    whole = yield from _place(group, "gatherv", stage, array, rows, out if group.rank == root else None)
    return whole if group.rank == root else None


def allgather(group: Group, value: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return all values on every rank, stacked or as a list; see `Communicator.allgather`."""
    array = as_array(value)
    if array is None:
        _no_out(group, "allgather", out)
        slots = yield from _spread_objects(group, "allgather", [value], None, choice)
        return slots.values
    ones = (1,) * group.size
    stage = _plan_parts(group, "allgather", "allgather", array, ones, choice)
    return (yield from _place(group, "allgather", stage, array[None], ones, out))


def allgatherv(group: Group, value: Any, counts: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return the concatenation of all arrays on every rank; see `Communicator.allgatherv`."""
    if isinstance(value, list | tuple):
        _no_out(group, "allgatherv", out)
        if counts is not None:
            _check_rows(group, "allgatherv", len(value), counts)
        slots = yield from _spread_objects(group, "allgather", [list(value)], None, choice, "allgatherv")
        return list(chain.from_iterable(slots.values))
    array = _rows(group, "allgatherv", value)
    plan(group, "allgatherv", choice, dtype="")  # a wrong algorithm or `out` is found before anything is sent
    _check_out_rows(group, "allgatherv", out, array)
    rows = yield from _counts(group, "allgatherv", array, counts)
    stage = _plan_parts(group, "allgatherv", "allgatherv", array, rows, choice)
    return (yield from _place(group, "allgatherv", stage, array, rows, out))


def _rows(group: Group, operation: str, value: Any) -> Array:
    """Return an array that can be concatenated with those of other ranks."""
    array = as_array(value)
    if array is None or array.ndim == 0:
        kind = type(value).__name__ if array is None else "one of 0 dimensions"
        raise ArgumentError(group.rank, operation, "value", f"expected an array of 1 dimension or more, got {kind}")
    return array


def _counts(group: Group, operation: str, array: Array, counts: Any) -> Steps[tuple[int, ...]]:
    """Return the rows of every rank: as given, or after an exchange (ceil(log2 p) rounds of 8 bytes a rank)."""
    if counts is not None:
        return _check_rows(group, operation, len(array), counts)
    name = f"{dtype_name(array.dtype)} (counts of)"
    stage = plan(
        group, "allgather", AUTOMATIC, dtype=name, shape=array.shape[1:], nbytes=8 * group.size, name=operation
    )
    numbers = np.zeros(group.size, np.int64)
    numbers[group.rank] = len(array)
    yield from run(group, stage, lambda s: ArraySlots(numbers, s, (1,) * group.size))
    return tuple(numbers.tolist())


def _check_rows(group: Group, operation: str, mine: int, counts: Any) -> tuple[int, ...]:
    rows = check_counts(group.rank, operation, counts, group.size)
    if rows[group.rank] != mine:
        expected = f"expected {mine} at [{group.rank}], the rows of this rank's value, got {rows[group.rank]}"
        raise ArgumentError(group.rank, operation, "counts", expected)
    return rows


def _check_out_rows(group: Group, operation: str, out: Any, array: Array) -> None:
    """Check all of `out` but its number of rows, which is not known yet."""
    if out is not None:
        rows = out.shape[:1] if isinstance(out, np.ndarray) and out.ndim else (group.size,)
        check_out(group.rank, operation, out, (*rows, *array.shape[1:]), array.dtype)


def _no_out(group: Group, operation: str, out: Any) -> None:
    if out is not None:
        expected = "expected None, as the value is a Python object: the result is returned"
        raise ArgumentError(group.rank, operation, "out", expected)


def _plan_parts(
    group: Group,
    collective: str,
    name: str,
    array: Array,
    rows: tuple[int, ...],
    choice: Choice,
    root: int | None = None,
) -> Plan:
    """Plan a stage that moves one part per rank; regular forms stack whole arrays, so that a row is an array."""
    regular = collective == name
    row = array.size if regular and collective != "allgatherv" else int(np.prod(array.shape[1:]))
    return plan(
        group,
        collective,
        choice,
        dtype=dtype_name(array.dtype),
        shape=array.shape if name in ("gather", "allgather") else (*rows, *array.shape[1:]),
        nbytes=sum(rows) * row * array.itemsize,
        itemsize=array.itemsize,
        counts=() if name in ("gather", "allgather") else tuple(n * row for n in rows),
        root=root,
        name=name,
    )


def _place(group: Group, operation: str, stage: Plan, array: Array, rows: tuple[int, ...], out: Any) -> Steps[Array]:
    """Put this rank's rows into their place in the whole, and run the stage that brings the others."""
    shape = (sum(rows), *array.shape[1:])
    whole = np.empty(shape, array.dtype) if out is None else check_out(group.rank, operation, out, shape, array.dtype)
    first = sum(rows[: group.rank])
    whole[first : first + len(array)] = array
    row = int(np.prod(shape[1:]))
    items = tuple(n * row for n in rows)
    yield from run(group, stage, lambda s: ArraySlots(whole.reshape(-1), s, items))
    return whole


def _spread_objects(
    group: Group, collective: str, values: list[Any], root: int | None, choice: Choice, name: str = ""
) -> Steps[ObjectSlots]:
    """Run a stage with one object per rank: this rank's own (allgather, gather), or all of them (scatter)."""
    stage = plan(group, collective, choice, dtype="object", root=root, name=name)
    everybody = values if len(values) == group.size else [None] * group.size
    if everybody is not values:
        everybody[group.rank] = values[0]
    slots: ObjectSlots = yield from run(group, stage, lambda s: ObjectSlots(everybody, s))
    return slots


def scatter(group: Group, values: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return one of the root's values on each rank; see `Communicator.scatter`."""
    describe = plan(group, "bcast", AUTOMATIC, dtype="object", root=root, name="scatter")
    plan(group, "scatter", choice, dtype="", root=root)  # a wrong algorithm is found before anything is sent
    record: dict[str, Any] = {}
    array = None
    if group.rank == root:
        array = as_array(values)
        several = isinstance(values, Sequence) or (isinstance(values, np.ndarray) and values.ndim)
        if not several or len(values) != group.size:
            expected = f"expected an array with {group.size} rows, or a sequence of {group.size} values"
            got = f"{len(values)} of them" if several else type(values).__name__
            raise ArgumentError(group.rank, "scatter", "values", f"{expected}, got {got}")
        record = _describe_rows(array, (1,) * group.size)
    record = yield from _tell(group, describe, record)
    if record["dtype"] == "object":
        given = list(values) if group.rank == root else [None] * group.size
        slots = yield from _spread_objects(group, "scatter", given, root, choice)
        return slots.values[group.rank]
    part = yield from _hand_out(group, "scatter", array, record, root, choice)
    return part[0]


def scatterv(group: Group, value: Any, counts: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return a run of the root's rows on each rank; see `Communicator.scatterv`."""
    describe = plan(group, "bcast", AUTOMATIC, dtype="object", root=root, name="scatterv")
    plan(group, "scatter", choice, dtype="", root=root, name="scatterv")
    if counts is not None:
        counts = check_counts(group.rank, "scatterv", counts, group.size)
    record: dict[str, Any] = {}
    array = None
    if group.rank == root:
        array = _rows(group, "scatterv", value)
        rows = even(len(array), group.size) if counts is None else counts
        if sum(rows) != len(array):
            expected = f"expected numbers that add up to the {len(array)} rows of the array, got {sum(rows)}"
            raise ArgumentError(group.rank, "scatterv", "counts", expected)
        record = _describe_rows(array, rows)
    record = yield from _tell(group, describe, record)
    rows = tuple(record["rows"])
    if counts is not None and counts != rows:
        raise ArgumentError(group.rank, "scatterv", "counts", f"expected those of the root, {rows}, got {counts!r}")
    return (yield from _hand_out(group, "scatterv", array, record, root, choice))


def even(rows: int, size: int) -> tuple[int, ...]:
    """Divide rows among ranks as evenly as possible; the first ranks get one more.

    >>> even(8, 3)
    (3, 3, 2)
    """
    return tuple(rows // size + (rank < rows % size) for rank in range(size))


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
    whole = np.empty((sum(rows), *row), dtype) if array is None else np.ascontiguousarray(array)
    name = dtype_name(dtype)
    items = tuple(n * int(np.prod(row)) for n in rows)
    stage = plan(
        group,
        "scatter",
        choice,
        dtype=name,
        shape=(*rows, *row),
        nbytes=whole.nbytes,
        itemsize=dtype.itemsize,
        counts=() if operation == "scatter" else items,
        root=root,
        name=operation,
    )
    yield from run(group, stage, lambda s: ArraySlots(whole.reshape(-1), s, items))
    first = sum(rows[: group.rank])
    return whole[first : first + rows[group.rank]].copy()


def reduce_scatter(group: Group, value: Any, op: Op, counts: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return this rank's rows of the combination of all arrays; see `Communicator.reduce_scatter`."""
    if as_array(value) is None:
        _no_out(group, "reduce_scatter", out)
        if counts is not None and check_counts(group.rank, "reduce_scatter", counts, group.size) != (1,) * group.size:
            expected = f"expected one object for each rank, got {counts!r}"
            raise ArgumentError(group.rank, "reduce_scatter", "counts", expected)
        return (yield from _reduce_scatter_objects(group, value, op, choice))
    array = _rows(group, "reduce_scatter", value)
    check_op(group.rank, "reduce_scatter", op, array.dtype)
    rows = even(len(array), group.size)
    if counts is not None:
        rows = check_counts(group.rank, "reduce_scatter", counts, group.size)
        if sum(rows) != len(array):
            expected = f"expected numbers that add up to the {len(array)} rows of the array, got {sum(rows)}"
            raise ArgumentError(group.rank, "reduce_scatter", "counts", expected)
    shape = (rows[group.rank], *array.shape[1:])
    if out is not None:
        check_out(group.rank, "reduce_scatter", out, shape, array.dtype)
    row = int(np.prod(array.shape[1:]))
    items = tuple(n * row for n in rows)
    stage = plan(
        group,
        "reduce_scatter",
        choice,
        dtype=dtype_name(array.dtype),
        shape=(*rows, *array.shape[1:]),
        nbytes=array.nbytes,
        itemsize=array.itemsize,
        counts=items,
        op=op,
        exact=op.exact(array.dtype),
    )
    work = np.array(array, order="C")
    counts_of = (work.size,) if stage.whole else items
    yield from run(group, stage, lambda s: _array_slots(work, s, counts_of, op), work.itemsize)
    first = sum(rows[: group.rank])
    part = work[first : first + rows[group.rank]]
    if out is None:
        return part.copy()
    out[...] = part
    return out


def _reduce_scatter_objects(group: Group, values: Any, op: Op, choice: Choice) -> Steps[Any]:
    """The same for a sequence of one object per rank: combined as whole sequences, element by element."""
    if not isinstance(values, Sequence) or len(values) != group.size:
        expected = f"expected an array, or a sequence of {group.size} values"
        raise ArgumentError(group.rank, "reduce_scatter", "value", f"{expected}, got {type(values).__name__}")

    def each(left: list[Any], right: list[Any]) -> list[Any]:
        return [op.combine_objects(a, b) for a, b in zip(left, right, strict=True)]

    plan(group, "reduce_scatter", choice, dtype="object", op=op)  # a wrong op is found before anything is sent
    elements = Op(each, name=str(op))
    stage = plan(group, "reduce_scatter", choice, dtype="object", op=elements)
    slots = yield from run(group, stage, lambda s: ObjectSlots([list(values)], s, elements))
    return slots.values[0][group.rank]


def barrier(group: Group) -> Steps[None]:
    """Return when all ranks have called; see `Communicator.barrier`."""
    stage = plan(group, "barrier", AUTOMATIC, dtype="")
    nothing = np.empty(0, np.uint8)
    yield from run(group, stage, lambda s: ArraySlots(nothing, s, (0,), SUM))


def sendrecv(group: Group, value: Any, dest: int | None, source: int | None, tag: int) -> Steps[Any]:
    """Send a value and receive one at the same time; see `Communicator.sendrecv`."""
    for name, peer in ("dest", dest), ("source", source):
        if peer is not None and not (isinstance(peer, int | np.integer) and 0 <= peer < group.size):
            expected = f"expected a rank in 0..{group.size - 1} or None, got {peer!r}"
            raise ArgumentError(group.rank, "sendrecv", name, expected)
    if not (isinstance(tag, int | np.integer) and 0 <= tag < 1 << 32):
        raise ArgumentError(group.rank, "sendrecv", "tag", f"expected a number from 0 to 2**32 - 1, got {tag!r}")
    frames = Message.frames(value) if dest is not None else []
    message = Message()
    if dest == source == group.rank:
        message.take(frames)
        return message.value()
    if group.rank in (dest, source):
        raise ArgumentError(group.rank, "sendrecv", "dest", "expected both ends or none to be this rank itself")
    op = group.endpoint.protocol.begin(group.context, Call("sendrecv"), p2p=True)
    yield Exchange(op, dest, frames, False, source, message if source is not None else None, tag)
    group.endpoint.protocol.end(op)
    return message.value() if source is not None else None
