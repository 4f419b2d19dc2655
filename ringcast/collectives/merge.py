"""Merge of the ranks' sorted sequences into one: merge_sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ringcast.collectives.gather import exchange_counts
from ringcast.collectives.rows import check_out_rows
from ringcast.collectives.stage import NO_DATA, Choice, Data, Group, plan, run_stage
from ringcast.engine.datatypes import as_array, check_out, dtype_name
from ringcast.engine.execute import Steps
from ringcast.engine.slots import ArraySlots, ReceiveBuffer
from ringcast.engine.unsendable import in_words
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.schedules.schedule import Copy, Local, Merge, Nothing, Schedule, Slots, Step


def merge_sorted(group: Group, value: Any, out: Any, choice: Choice) -> Steps[Array]:
    """Return the sorted sequence of all items of all ranks; see `Communicator.merge_sorted`."""
    mine = _checked(group, value)
    plan(group, "merge_sorted", choice, NO_DATA)  # a wrong algorithm is found before anything is sent
    check_out_rows(group, "merge_sorted", out, mine)
    mine, counts = yield from exchange_counts(group, "merge_sorted", mine, None)
    if out is not None:
        check_out(group.endpoint.rank, "merge_sorted", out, (sum(counts),), mine.dtype)
    data = Data(dtype_name(mine.dtype), counts, sum(counts) * mine.itemsize, mine.itemsize, counts)
    stage = plan(group, "merge_sorted", choice, data)
    slots: RunSlots = yield from run_stage(group, stage, lambda s: RunSlots(mine, s, counts))
    return slots.result(out)


class RunSlots:
    """Slots of sorted runs, one behind the other from this rank's own on: ranks in a row have theirs in a row.

    Scratch slots follow in the same order. So runs are merged where they are, and arrive where they will be merged.
    """

    def __init__(self, mine: Array, schedule: Schedule, counts: tuple[int, ...]) -> None:
        p, r = schedule.size, schedule.rank
        rows = schedule.nslots // p  # one, or a second one of scratch slots
        self._total = sum(counts)
        self._data = np.empty(rows * self._total, mine.dtype)
        self._data[: len(mine)] = mine
        layout = Nothing(p, r, (1,) * schedule.nslots)
        self._slots = ArraySlots(self._data, layout, (*counts[r:], *counts[:r]) * rows)
        self._places = [row * p + (j - r) % p for row in range(rows) for j in range(p)]

    def result(self, out: Array | None) -> Array:
        """Return all items, when all are merged: in `out`, if that is given."""
        merged = self._data[: self._total]
        if out is None:
            return self._data if len(self._data) == self._total else merged.copy()
        out[...] = merged
        return out

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        return self._slots.pack(self._at(slots))

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        return self._slots.receive_buffer(replace(step, recv=self._at(step.recv)))

    def apply(self, local: Local) -> None:
        if isinstance(local, Merge):
            self._slots.apply(Merge(self._at(local.slots)))
        elif isinstance(local, Copy):
            self._slots.apply(Copy(self._places[local.dst], self._places[local.src]))
        else:
            raise TypeError(f"{local}: runs are merged, not combined")

    def _at(self, slots: Slots) -> tuple[int, ...]:
        return tuple(self._places[slot] for slot in slots)


def _checked(group: Group, value: Any) -> Array:
    """Return `value` if it is a sorted array."""
    array = as_array(value)
    if array is None or array.ndim != 1:
        texts = "np.array(value.tolist())"
        kind = in_words(value, texts) if array is None or not array.ndim else f"one of {array.ndim} dimensions"
        problem = f"expected an array of 1 dimension, without Python objects in it, got {kind}"
    elif array.dtype.kind == "V":
        problem = f"expected items with an order, got dtype {dtype_name(array.dtype)}"
    elif index := _first_fall(array):
        problem = f"expected it sorted, as by np.sort, but the item at [{index}] belongs before that at [{index - 1}]"
    else:
        return array
    raise ArgumentError(group.endpoint.rank, "merge_sorted", "array", problem)


def _first_fall(array: Array) -> int:
    """Return the index of the first item that numpy sorts before the one on its left; 0 if there is none.

    >>> _first_fall(np.array([1.0, 3.0, 2.0, np.nan])), _first_fall(np.array([1.0, np.nan]))
    (2, 0)
    """
    with np.errstate(invalid="ignore"):  # numpy warns of complex NaNs
        if np.all(array[:-1] <= array[1:]):
            return 0
    # Not sorted, or NaNs: where does each item belong?
    place = np.empty(len(array), np.intp)
    place[np.argsort(array, kind="stable")] = np.arange(len(array))
    falls = np.flatnonzero(place[1:] < place[:-1])
    return int(falls[0]) + 1 if len(falls) else 0
