"""Construction of a graph of neighbours: the ranks exchange their edges, once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.gather import exchange_counts
from ringcast.collectives.split import made
from ringcast.collectives.stage import AUTOMATIC, Data, Group, plan, run_stage
from ringcast.engine.execute import Steps
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError
from ringcast.schedules.neighborhood import Neighborhood, of_graph

_NOT_GIVEN = -1


def graph(group: Group, destinations: Any, sources: Any) -> Steps[tuple[Group, Neighborhood] | ArgumentError]:
    """Return a group of the same ranks, and this rank's neighbourhood; see `Communicator.graph`.

    All ranks find an error in their edges alike. So it is returned, not raised: else the first rank to find it would
    revoke the communicator, and the others might hear of that before they find the error.
    """
    to = _ranks(group, "destinations", destinations)
    origins = None if sources is None else _ranks(group, "sources", sources)
    mine = np.array([len(to), _NOT_GIVEN if origins is None else len(origins), *to, *(origins or ())], np.int64)
    _, lengths = yield from exchange_counts(group, "graph", mine, None)
    everyone = np.zeros(sum(lengths), np.int64)
    ends = list(accumulate(lengths, initial=0))
    everyone[ends[group.rank] : ends[group.rank + 1]] = mine
    stage = plan(group, "allgatherv", AUTOMATIC, Data("int64", lengths, everyone.nbytes, 8, lengths), name="graph")
    yield from run_stage(group, stage, lambda s: ArraySlots(everyone, s, lengths))
    told = [everyone[start:end].tolist() for start, end in pairwise(ends)]
    receivers = tuple(tuple(one[2 : 2 + one[0]]) for one in told)
    senders = [None if one[1] == _NOT_GIVEN else one[2 + one[0] :] for one in told]
    try:
        neighborhood = of_graph(group.rank, receivers, senders)
    except ValueError as error:
        return ArgumentError(
            group.endpoint.rank, "graph", "destinations or sources", f"expected the same edges at both ends: {error}"
        )
    return made(group, range(group.size), 0), neighborhood


def _ranks(group: Group, argument: str, given: Any) -> tuple[int, ...]:
    ranks = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    if not ranks or not all(isinstance(rank, int | np.integer) and 0 <= rank < group.size for rank in given):
        expected = f"expected ranks in 0..{group.size - 1}, any number of them, got {safe_text(given)}"
        raise ArgumentError(group.endpoint.rank, "graph", argument, expected)
    return tuple(map(int, given))
