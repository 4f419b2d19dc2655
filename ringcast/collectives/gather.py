"""Gather and allgather, regular and irregular: the parts of all ranks come together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ringcast.collectives.again import Counted, Places, key_of, learn
from ringcast.collectives.rows import check_out_rows, check_rows, no_out, rows_of, spread_objects
from ringcast.collectives.stage import AUTOMATIC, NO_DATA, Choice, Data, Group, StagePlan, keep_plan, plan, run_stage
from ringcast.engine.datatypes import as_array, check_out, check_stackable, dtype_name, has_width, room
from ringcast.engine.execute import Steps
from ringcast.engine.slots import ArraySlots, Memory
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.wire.call import COUNTS_OF
from ringcast.wire.collective import COLLECTIVES, Parts


def gather(group: Group, value: Any, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return all values at the root, stacked or as a list; see `Communicator.gather`."""
    array = as_array(value)
    if array is None:
        no_out(group, "gather", out if group.rank == root else None)
        slots = yield from spread_objects(group, "gather", [value], root, choice)
        return slots.values(range(group.size)) if group.rank == root else None
    check_stackable(group.endpoint.rank, "gather", array)
    stage = _plan_parts(group, "gather", array, (1,) * group.size, choice, root)
    key = key_of("gather", choice, value, array, root)
    return (yield from _place(group, "gather", stage, array, (1,) * group.size, out, key, root))


def gatherv(group: Group, value: Any, counts: Any, root: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return the concatenation of all arrays at the root; see `Communicator.gatherv`."""
    if isinstance(value, list | tuple):
        no_out(group, "gatherv", out if group.rank == root else None)
        lists = yield from _gather_lists(group, "gatherv", value, counts, root, choice)
        return lists if group.rank == root else None
    array = rows_of(group, "gatherv", value)
    plan(group, "gather", choice, NO_DATA, root=root, name="gatherv")  # a wrong root is found before anything is sent
    check_out_rows(group, "gatherv", out if group.rank == root else None, array)
    key = key_of("gatherv", choice, value, array, root)
    general = lambda value, rows: gatherv(group, value, rows, root, None, AUTOMATIC)  # noqa: E731
    array, rows = yield from exchange_counts(group, "gatherv", array, counts, _counted(group, key, general))
    stage = _plan_parts(group, "gatherv", array, rows, choice, root)
    return (yield from _place(group, "gatherv", stage, array, rows, out, key and (*key, rows), root))


def allgather(group: Group, value: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return all values on every rank, stacked or as a list; see `Communicator.allgather`."""
    array = as_array(value)
    if array is None:
        no_out(group, "allgather", out)
        slots = yield from spread_objects(group, "allgather", [value], None, choice)
        return slots.values(range(group.size))
    check_stackable(group.endpoint.rank, "allgather", array)
    ones = (1,) * group.size
    stage = _plan_parts(group, "allgather", array, ones, choice)
    key = key_of("allgather", choice, value, array)
    return (yield from _place(group, "allgather", stage, array, ones, out, key))


def allgatherv(group: Group, value: Any, counts: Any, out: Any, choice: Choice) -> Steps[Any]:
    """Return the concatenation of all arrays on every rank; see `Communicator.allgatherv`."""
    if isinstance(value, list | tuple):
        no_out(group, "allgatherv", out)
        return (yield from _gather_lists(group, "allgatherv", value, counts, None, choice))
    array = rows_of(group, "allgatherv", value)
    if counts is None:
        plan(group, "allgatherv", choice, NO_DATA)  # a wrong algorithm is found before anything is sent
    check_out_rows(group, "allgatherv", out, array)
    key = key_of("allgatherv", choice, value, array)
    general = lambda value, rows: allgatherv(group, value, rows, None, AUTOMATIC)  # noqa: E731
    array, rows = yield from exchange_counts(group, "allgatherv", array, counts, _counted(group, key, general))
    stage = _plan_parts(group, "allgatherv", array, rows, choice)
    return (yield from _place(group, "allgatherv", stage, array, rows, out, key and (*key, rows)))


def _gather_lists(
    group: Group, operation: str, value: Sequence[Any], counts: Any, root: int | None, choice: Choice
) -> Steps[list[Any]]:
    """Return the objects of all ranks in one list, at the root or everywhere."""
    if counts is not None:
        check_rows(group, operation, len(value), counts)
    regular = operation.removesuffix("v")  # to its schedule, a list is one value
    slots = yield from spread_objects(group, regular, [list(value)], root, choice, operation)
    return list(chain.from_iterable(slots.values(range(group.size)) if root in (None, group.rank) else ()))


def exchange_counts(
    group: Group,
    operation: str,
    array: Array,
    counts: Any,
    learn_counts: Callable[[StagePlan, Memory], None] | None = None,
) -> Steps[tuple[Array, tuple[int, ...]]]:
    """Return the array, and the rows of every rank: as given, or after an exchange (ceil(log2 p) rounds).

    Each rank sends 8 bytes; for texts and times 32, as these get the width or unit that all ranks have in common.
    `learn_counts` gets the stage of 8 bytes, and its slots.
    """
    if counts is not None:
        return array, check_rows(group, operation, len(array), counts)
    if has_width(array.dtype):
        return (yield from _exchange_dtypes(group, operation, array))
    numbers = np.zeros(group.size, np.int64)
    numbers[group.rank] = len(array)
    stage, slots = yield from _tell_all(group, operation, array, dtype_name(array.dtype), numbers)
    if learn_counts is not None:
        learn_counts(stage, slots)
    return array, tuple(numbers.tolist())


def _counted(
    group: Group, key: tuple[object, ...] | None, general: Callable[[Any, Any], Steps[Any]]
) -> Callable[[StagePlan, Memory], None]:
    """Return a function that keeps the exchange of counts of a call; `general` makes that with counts."""

    def places(data: Array) -> Places:
        return Places(data[group.rank : group.rank + 1], data, data)

    def learn_counts(stage: StagePlan, slots: Memory) -> None:
        if key is not None:
            learn(group, (*key, None), stage, slots, places, kind=partial(Counted, key=key, general=general))

    return learn_counts


def _exchange_dtypes(group: Group, operation: str, array: Array) -> Steps[tuple[Array, tuple[int, ...]]]:
    facts = np.zeros(group.size, [("rows", np.int64), ("dtype", "S24")])
    facts[group.rank] = len(array), array.dtype.str.encode()
    yield from _tell_all(group, operation, array, array.dtype.kind, facts)
    dtypes = [np.dtype(text.decode()) for text in np.unique(facts["dtype"])]
    try:
        common = dtypes[0] if len(dtypes) == 1 else np.result_type(*dtypes)
    except TypeError:  # months and seconds
        expected = f"expected dtypes that numpy converts to a common one, got {', '.join(map(dtype_name, dtypes))}"
        raise ArgumentError(group.endpoint.rank, operation, "value", expected) from None
    return array.astype(common, copy=False), tuple(facts["rows"].tolist())


def _tell_all(
    group: Group, operation: str, array: Array, dtype: str, facts: Array
) -> Steps[tuple[StagePlan, ArraySlots]]:
    """Send this rank's item of `facts` to all ranks; `dtype` must be equal on all. Returns the stage, and its slots."""
    data = Data(f"{dtype}{COUNTS_OF}", array.shape[1:], facts.nbytes)
    stage = plan(group, "allgather", AUTOMATIC, data, name=operation)
    return stage, (yield from run_stage(group, stage, lambda s: ArraySlots(facts, s, (1,) * group.size)))


def _plan_parts(
    group: Group, name: str, array: Array, rows: tuple[int, ...], choice: Choice, root: int | None = None
) -> StagePlan:
    """Plan a stage that moves one part per rank; regular forms stack whole arrays, so that a row is an array."""
    key = name, array.dtype, array.shape, rows
    known = group.plans.get(key) if root is None and choice.automatic else None
    if known is not None:
        return known
    facts = COLLECTIVES[name]
    equal = facts.parts is Parts.EQUAL
    row = array.size if equal else prod(array.shape[1:])
    data = Data(
        dtype_name(array.dtype),
        array.shape if equal else (*rows, *array.shape[1:]),
        sum(rows) * row * array.itemsize,
        array.itemsize,
        () if equal else tuple(n * row for n in rows),
    )
    made = plan(group, facts.algorithms, choice, data, root=root, name=name)
    if root is None and choice.automatic:
        keep_plan(group, key, made)
    return made


def _place(
    group: Group,
    operation: str,
    stage: StagePlan,
    array: Array,
    rows: tuple[int, ...],
    out: Any,
    key: tuple[object, ...] | None,
    root: int | None = None,
) -> Steps[Array | None]:
    """Put this rank's rows into their place in the whole, and run the stage that brings the others.

    Regular forms stack whole arrays, so that a row is an array. Returns the whole; None if another rank is the root.
    """
    here, told = root in (None, group.rank), group.endpoint.rank
    row = array.shape if COLLECTIVES[operation].parts is Parts.EQUAL else array.shape[1:]
    shape = (sum(rows), *row)
    whole = (
        room(told, operation, shape, array.dtype)
        if out is None or not here
        else check_out(told, operation, out, shape, array.dtype)
    )
    first, items = sum(rows[: group.rank]), prod(row)
    mine = slice(first * items, first * items + array.size)
    whole.reshape(-1)[mine].reshape(array.shape)[...] = array
    slots = yield from run_stage(
        group, stage, lambda s: ArraySlots(whole.reshape(-1), s, tuple(n * items for n in rows))
    )

    part = array.shape

    def places(data: Array) -> Places:
        source, result = data[mine].reshape(part), data.reshape(shape)
        return Places(source, result, result) if here else Places(source)

    learn(group, key, stage, slots, places)
    return whole if here else None
