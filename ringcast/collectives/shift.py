"""Circular shift: every value moves on by the same number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.rows import no_out
from ringcast.collectives.stage import OBJECTS, Choice, Data, Group, pickled, plan, run_stage
from ringcast.engine.datatypes import as_array, check_out, like
from ringcast.engine.execute import Steps
from ringcast.engine.pieces import PieceSlots, cut
from ringcast.engine.slots import ObjectSlots
from ringcast.errors import ArgumentError


def shift(group: Group, value: Any, distance: int, out: Any, choice: Choice) -> Steps[Any]:
    """Return the value of the rank that is `distance` behind; see `Communicator.shift`."""
    around = whole_distance(group, distance)
    array = as_array(value)
    if array is None:
        no_out(group, "shift", out)
        codec = pickled(group, "shift")
        stage = plan(group, "shift", choice, OBJECTS, distance=around)
        slots = yield from run_stage(group, stage, lambda s: ObjectSlots([value, value], s, codec))
        return slots.value(1)
    stage = plan(group, "shift", choice, Data.of(array, times=2), distance=around)
    mine = np.asarray(array, order="C")
    if out is None:
        result = np.empty(array.shape, array.dtype)
    else:
        result = check_out(group.endpoint.rank, "shift", out, array.shape, array.dtype)
        if np.may_share_memory(mine, result):  # arriving data must not overwrite unsent data
            mine = mine.copy()
    if not around:
        result[...] = mine
    pieces = [*cut(mine, (mine.size,)), *cut(result, (result.size,))]
    yield from run_stage(group, stage, lambda s: PieceSlots(pieces, s))
    return like(value, result)


def whole_distance(group: Group, distance: Any) -> int:
    """Return the same distance as a number of ranks forwards, less than all."""
    if not isinstance(distance, int | np.integer):
        raise ArgumentError(
            group.endpoint.rank, "shift", "distance", f"expected a whole number, got {safe_text(distance)}"
        )
    return int(distance) % group.size
