"""The sizes of the slots of a buffer, from its size alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ringcast.algorithms.load import Call
from ringcast.algorithms.params import Params
from ringcast.engine.slots import bounds
from ringcast.schedules.schedule import Schedule


def slot_sizes(schedule: Schedule, counts: Sequence[int], nbytes: int) -> list[int]:
    """Return the bytes of each slot of a buffer of `nbytes`: parts in proportion to `counts`, else equal parts.

    Where ranks exchange parts, all parts have the same size, so some bytes may be left over.

    >>> from ringcast.schedules.circulant import bcast
    >>> slot_sizes(bcast(3, 0, nblocks=4), (), 10)
    [2, 3, 2, 3]
    """
    p, parts = schedule.size, len(schedule.parts)
    sizes = Call(Params(p, counts=tuple(counts)), nbytes, 0).parts if parts == p else (nbytes // parts,) * parts
    return [b - a for a, b in pairwise(bounds(schedule, sizes).tolist())]
