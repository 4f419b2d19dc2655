"""Reductions: reduce, allreduce, reduce_scatter, and the barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ringcast._util.safe_text import class_name, safe_text
from ringcast.collectives.again import Places, key_of, learn
from ringcast.collectives.rows import even, no_out, rows_of
from ringcast.collectives.stage import (
    AUTOMATIC,
    NO_DATA,
    OBJECTS,
    Choice,
    Data,
    Group,
    StagePlan,
    check_root,
    keep_plan,
    pickled,
    plan,
    run_stage,
)
from ringcast.engine.datatypes import as_array, check_counts, check_op, check_out, like
from ringcast.engine.execute import Steps
from ringcast.engine.objects import SNAPSHOT
from ringcast.engine.slots import ArraySlots, NoSlots, ObjectSlots
from ringcast.engine.unsendable import in_words, of_booleans
from ringcast.errors import ArgumentError
from ringcast.ops import Array, Op, built_in, counted, counts_booleans
from ringcast.schedules.schedule import Schedule


def reduce(group: Group, value: Any, op: Op, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return the combination of all values at the root; see `Communicator.reduce`."""
    array, given = operand(group, "reduce", value, op)
    if array is None:
        no_out(group, "reduce", out if group.rank == root else None)
        result = yield from combine_objects(group, "reduce", given, op, root, choice)
        return result if group.rank == root else None
    stage = plan_combine(group, "reduce", array, op, choice, root=root)
    work = working_copy(group, "reduce", array, out if group.rank == root else None)
    slots = yield from run_stage(group, stage, lambda s: array_slots(work, s, (work.size,), op), work.itemsize)
    key, places = operator_key("reduce", choice, value, array, op, root), 3 if group.rank == root else 1
    learn(group, key, stage, slots, everywhere(array.shape, places), op)
    return like(value, work) if group.rank == root else None


def allreduce(group: Group, value: Any, op: Op, out: Any, choice: Choice) -> Steps[Any]:
    """Return the combination of all values on every rank; see `Communicator.allreduce`."""
    array, given = operand(group, "allreduce", value, op)
    if array is None:
        no_out(group, "allreduce", out)
        return (yield from combine_objects(group, "allreduce", given, op, None, choice))
    stage = plan_combine(group, "allreduce", array, op, choice)
    work = working_copy(group, "allreduce", array, out)
    slots = yield from run_stage(group, stage, lambda s: array_slots(work, s, (work.size,), op), work.itemsize)
    key = operator_key("allreduce", choice, value, array, op)
    learn(group, key, stage, slots, everywhere(array.shape), op)
    return like(value, work)


def everywhere(shape: tuple[int, ...], count: int = 3) -> Callable[[Array], Places]:
    """Return a function whose first `count` places are all of the data, in this shape; it keeps no array."""
    return lambda data: Places(*[data.reshape(shape)] * count)


def operator_key(
    collective: str, choice: Choice, value: Any, array: Array, op: Op, *facts: object
) -> tuple[object, ...] | None:
    """Return the key of a call with an operator; see `key_of`."""
    return key_of(collective, choice, value, array, id(op), *facts) if built_in(op) else None


def operand(group: Group, collective: str, value: Any, op: Op) -> tuple[Array | None, Any]:
    """Return a value as it is combined, once as an array: None if it travels as an object.

    Raises:
        ArgumentError: it holds booleans that cannot be counted.
    """
    array = as_array(value)
    if (array is not None and array.dtype.kind != "b") or not counts_booleans(op):
        return array, value
    given = counted(op, value)
    if given is value and of_booleans(value):
        kind = class_name(type(value))
        expected = f"expected integers for {op}, got booleans in a {kind}; pass value.astype(int)"
        raise ArgumentError(group.endpoint.rank, collective, "value", expected)
    return as_array(given), given


def plan_combine(
    group: Group, collective: str, array: Array, op: Op, choice: Choice, *, root: int | None = None
) -> StagePlan:
    """Plan a stage that combines whole arrays of one shape."""
    if root is not None:
        check_root(group, collective, root)
    key = collective, array.dtype, array.shape, id(op), root
    often = choice.automatic and built_in(op)  # others are made anew for each call, and are not to be kept
    known = group.plans.get(key) if often else None
    if known is not None:
        return known
    check_op(group.endpoint.rank, collective, op, array.dtype)
    made = plan(group, collective, choice, Data.of(array), root=root, op=op, exact=op.exact(array.dtype))
    if often:
        keep_plan(group, key, made)
    return made


def working_copy(group: Group, operation: str, array: Array, out: Any) -> Array:
    """Return the array that is combined in place and becomes the result: `out`, or a new one."""
    if out is None:
        return array.copy()
    work = check_out(group.endpoint.rank, operation, out, array.shape, array.dtype)
    np.copyto(work, array)  # does nothing harmful when both are the same
    return work


def array_slots(work: Array, schedule: Schedule, counts: Sequence[int], op: Op) -> ArraySlots:
    """Return the slots of an array that is combined in place."""
    whole = None if op.elementwise else work.shape
    return ArraySlots(work.reshape(-1), schedule, counts, op, whole)


def combine_objects(group: Group, collective: str, value: Any, op: Op, root: int | None, choice: Choice) -> Steps[Any]:
    """Run a stage that combines Python objects; return this rank's result."""
    pickled(group, collective)
    stage = plan(group, collective, choice, OBJECTS, root=root, op=op, exact=op.exact())
    explained = _explained(group, collective, op)
    slots = yield from run_stage(group, stage, lambda s: ObjectSlots([value], s, SNAPSHOT, explained))
    return slots.value(0)


def _explained(group: Group, collective: str, op: Op) -> Op:
    """Return an operator whose errors say what to pass; a user's own operator as it is."""
    if not built_in(op):
        return op

    def combine(left: Any, right: Any) -> Any:
        try:
            return op.combine_objects(left, right)
        except (TypeError, ValueError) as error:
            kind = in_words(left)
            if type(left).__module__ == "builtins" or "; pass " not in kind:
                raise
            expected = f"expected values that {op} combines, got {kind}"
            raise ArgumentError(group.endpoint.rank, collective, "value", expected) from error

    return Op(combine, name=str(op))


def reduce_scatter(group: Group, value: Any, op: Op, counts: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return this rank's rows of the combination of all arrays; see `Communicator.reduce_scatter`."""
    array, given = operand(group, "reduce_scatter", value, op)
    if array is None:
        no_out(group, "reduce_scatter", out)
        if (
            counts is not None
            and check_counts(group.endpoint.rank, "reduce_scatter", counts, group.size) != (1,) * group.size
        ):
            expected = f"expected None, or 1 for each rank, as the values are Python objects; got {safe_text(counts)}"
            raise ArgumentError(group.endpoint.rank, "reduce_scatter", "counts", expected)
        return (yield from _reduce_scatter_objects(group, value, op, choice))
    array = rows_of(group, "reduce_scatter", given)
    check_op(group.endpoint.rank, "reduce_scatter", op, array.dtype)
    rows = even(len(array), group.size)
    if counts is not None:
        rows = check_counts(group.endpoint.rank, "reduce_scatter", counts, group.size)
        if sum(rows) != len(array):
            expected = f"expected numbers that add up to the {len(array)} rows of the array, got {sum(rows)}"
            raise ArgumentError(group.endpoint.rank, "reduce_scatter", "counts", expected)
    shape = (rows[group.rank], *array.shape[1:])
    if out is not None:
        check_out(group.endpoint.rank, "reduce_scatter", out, shape, array.dtype)
    row = prod(array.shape[1:])
    items = tuple(n * row for n in rows)
    data = Data.of(array, (*rows, *array.shape[1:]))._replace(counts=items)
    stage = plan(group, "reduce_scatter", choice, data, op=op, exact=op.exact(array.dtype))
    first = sum(rows[: group.rank])
    in_place = out is not None and _same_memory(out, array[first : first + rows[group.rank]], array)
    work = array if in_place else np.array(array, order="C")
    counts_of = (work.size,) if stage.whole else items
    slots = yield from run_stage(group, stage, lambda s: array_slots(work, s, counts_of, op), work.itemsize)

    whole, mine = array.shape, slice(first, first + rows[group.rank])

    def places(data: Array) -> Places:
        source = data.reshape(whole)
        part = source[mine]
        return Places(source, part, part)

    key = operator_key("reduce_scatter", choice, value, array, op, None if counts is None else rows)
    learn(group, key, stage, slots, places, op)
    part = work[first : first + rows[group.rank]]
    if out is None:
        return part.copy()
    out[...] = part
    return out


def _same_memory(out: Array, part: Array, array: Array) -> bool:
    """Whether `out` is the part of `array` that it is to receive, which can be worked on where it is."""
    return array.flags.c_contiguous and array.flags.writeable and bool(out.ctypes.data == part.ctypes.data)


def _reduce_scatter_objects(group: Group, values: Any, op: Op, choice: Choice) -> Steps[Any]:
    """Reduce and scatter a sequence of one object per rank: whole sequences are combined element by element."""
    if not isinstance(values, Sequence) or len(values) != group.size:
        expected = f"expected an array, or a sequence of {group.size} values"
        raise ArgumentError(group.endpoint.rank, "reduce_scatter", "value", f"{expected}, got {in_words(values)}")

    pickled(group, "reduce_scatter")
    given = [operand(group, "reduce_scatter", value, op)[1] for value in values]
    explained = _explained(group, "reduce_scatter", op)

    def each(left: list[Any], right: list[Any]) -> list[Any]:
        return [explained.combine_objects(a, b) for a, b in zip(left, right, strict=True)]

    plan(group, "reduce_scatter", choice, OBJECTS, op=op)  # a wrong op is found before anything is sent
    elements = Op(each, name=str(op))
    stage = plan(group, "reduce_scatter", choice, OBJECTS, op=elements)
    slots = yield from run_stage(group, stage, lambda s: ObjectSlots([given], s, SNAPSHOT, elements))
    return slots.value(0)[group.rank]


def barrier(group: Group) -> Steps[None]:
    """Return when all ranks have called; see `Communicator.barrier`."""
    stage = plan(group, "barrier", AUTOMATIC, NO_DATA)
    slots = yield from run_stage(group, stage, lambda _: NoSlots())
    learn(group, ("barrier",), stage, slots, lambda _: Places())
