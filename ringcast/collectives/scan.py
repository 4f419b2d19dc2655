"""Prefix sums: scan and exscan."""

from __future__ import annotations

from typing import Any

from ringcast.collectives.again import Places, learn
from ringcast.collectives.reduce import (
    array_slots,
    combine_objects,
    operand,
    operator_key,
    plan_combine,
    working_copy,
)
from ringcast.collectives.rows import no_out
from ringcast.collectives.stage import Choice, Group, run_stage
from ringcast.engine.datatypes import check_out, like
from ringcast.engine.execute import Steps
from ringcast.ops import Array, Op


def scan(group: Group, value: Any, op: Op, out: Any, choice: Choice) -> Steps[Any]:
    """Return the combination of the values of ranks 0 to this one; see `Communicator.scan`."""
    return (yield from _prefix(group, "scan", value, op, out, choice))


def exscan(group: Group, value: Any, op: Op, out: Any, choice: Choice) -> Steps[Any]:
    """Return the combination of the values of all ranks before this one; see `Communicator.exscan`."""
    if group.rank:
        return (yield from _prefix(group, "exscan", value, op, out, choice))
    array, _ = operand(group, "exscan", value, op)
    if array is None:
        no_out(group, "exscan", out)
    elif out is not None:
        check_out(group.endpoint.rank, "exscan", out, array.shape, array.dtype)
    yield from _prefix(group, "exscan", value, op, None, choice)
    return out


def _prefix(group: Group, collective: str, value: Any, op: Op, out: Any, choice: Choice) -> Steps[Any]:
    """Return the prefix that the schedule leaves in the slot of this rank's value."""
    array, given = operand(group, collective, value, op)
    if array is None:
        no_out(group, collective, out)
        return (yield from combine_objects(group, collective, given, op, None, choice))
    stage = plan_combine(group, collective, array, op, choice)
    work = working_copy(group, collective, array, out)
    slots = yield from run_stage(group, stage, lambda s: array_slots(work, s, (work.size,), op), work.itemsize)

    shape, empty = array.shape, collective == "exscan" and not group.rank

    def places(data: Array) -> Places:
        prefix = data.reshape(shape)
        return Places(prefix, None if empty else prefix, prefix)

    learn(group, operator_key(collective, choice, value, array, op), stage, slots, places, op)
    return like(value, work)
