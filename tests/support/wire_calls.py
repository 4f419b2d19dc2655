"""The calls that the law of the wire looks at: each algorithm of the table, by any number of ranks, with small data.

Of numbers of items there are none, one, a few that the ranks cannot divide evenly, and 2 kB; counts are irregular, the
root is not 0 where another one is there, and operators are commutative or not. All values are whole numbers, so that
their bytes are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcast import SUM, Op, collectives
from ringcast.algorithms import ALGORITHMS, Algorithm, Params
from ringcast.collectives.stage import Choice, Group
from ringcast.engine.execute import Steps
from ringcast.ops import Array
from ringcast.schedules.placement import Hosts

RANKS = range(1, 18)
BIG_RANKS = (2, 3, 5)  # numbers of ranks that also send messages above the limit of eager ones
TWO_KB = 257  # items
BIG = 9_001  # items of each part, 72 kB
FIRST = Op(lambda a, b: np.where(a != 0, a, b), elementwise=True, exact_always=True, name="first")  # not commutative
ENTRIES = {f"{entry.collective}-{entry.name}": entry for named in ALGORITHMS.values() for entry in named.values()}

Begin = Callable[[Group], Steps[Any]]


class WireCall(NamedTuple):
    """One call: its arguments in words, and how a rank begins it."""

    words: str
    begin: Begin


def hosts(entry: Algorithm, p: int) -> Hosts:
    """Return the hosts of ranks: two ranks share one, where the algorithm is for that."""
    return tuple(rank // 2 for rank in range(p)) if entry.shared and p > 2 and p % 2 == 0 else ()


def fits(entry: Algorithm, p: int) -> bool:
    return not entry.fits(Params(p, hosts=hosts(entry, p)))


def small(entry: Algorithm, p: int) -> Iterator[WireCall]:
    """Yield the calls whose messages are all eager."""
    for nblocks in (None, 3) if entry.blocks else (None,):
        for items in (0, 1, 3 * p + 1, TWO_KB):
            yield from _calls(entry, p, items, Choice(entry.name, nblocks))


def big(entry: Algorithm, p: int) -> Iterator[WireCall]:
    """Yield calls whose messages are too large to be eager."""
    yield from _calls(entry, p, BIG * p, Choice(entry.name, None))


def values(rank: int, items: int) -> Array:
    """Return the items of a rank; a quarter of them is 0."""
    return (np.arange(items) * (2 * rank + 1) + rank) % 4 * (np.arange(items) + rank + 1)


def ragged(p: int, items: int) -> tuple[int, ...]:
    """Return irregular counts, some of them 0; all of them if there are no items."""
    return tuple(7 * rank % 5 * (rank % 3) * items // (4 * p) for rank in range(p))


def _calls(entry: Algorithm, p: int, items: int, choice: Choice) -> Iterator[WireCall]:
    for words, begin in _MAKERS[entry.collective](entry, p, items, choice):
        yield WireCall(f"{items} items, nblocks {choice.nblocks}, {words}", begin)


_Made = Iterator[tuple[str, Begin]]


def _operators(entry: Algorithm) -> Sequence[Op]:
    return (SUM,) if entry.commutative else (SUM, FIRST)


def _bcast(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    root = p // 2

    def begin(group: Group) -> Steps[Any]:
        value = values(root, items) if group.rank == root else None
        return collectives.broadcast.bcast(group, value, root, choice)

    yield f"root {root}", begin


def _reduce(entry: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    root = p // 2
    for op in _operators(entry):
        yield (
            f"{op}, root {root}",
            lambda g, op=op: collectives.reduce.reduce(g, values(g.rank, items), op, root, None, choice),
        )


def _combining(call: Callable[..., Steps[Any]]) -> Callable[[Algorithm, int, int, Choice], _Made]:
    def make(entry: Algorithm, _: int, items: int, choice: Choice) -> _Made:
        for op in _operators(entry):
            yield str(op), lambda g, op=op: call(g, values(g.rank, items), op, None, choice)

    return make


def _reduce_scatter(entry: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    counts = ragged(p, items)
    for op in _operators(entry):
        for words, size, given in (("even", items, None), ("ragged", sum(counts), counts)):
            yield (
                f"{op}, {words} counts",
                lambda g, op=op, size=size, given=given: collectives.reduce.reduce_scatter(
                    g, values(g.rank, size), op, given, None, choice
                ),
            )


def _gather(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    root, counts, part = p // 2, ragged(p, items), -(-items // p)
    yield f"root {root}", lambda g: collectives.gather.gather(g, values(g.rank, part), root, None, choice)
    for given in counts, None:
        yield (
            f"root {root}, counts {given}",
            lambda g, given=given: collectives.gather.gatherv(
                g, values(g.rank, counts[g.rank]), given, root, None, choice
            ),
        )


def _scatter(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    root, counts, part = p // 2, ragged(p, items), -(-items // p)

    def equal(group: Group) -> Steps[Any]:
        rows = values(root, p * part).reshape(p, part) if group.rank == root else None
        return collectives.scatter.scatter(group, rows, root, None, choice)

    def irregular(group: Group) -> Steps[Any]:
        given = (values(root, sum(counts)), counts) if group.rank == root else (None, None)
        return collectives.scatter.scatterv(group, *given, root, None, choice)

    yield f"root {root}", equal
    yield f"root {root}, counts {counts}", irregular


def _allgather(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    part = -(-items // p)
    yield "equal parts", lambda g: collectives.gather.allgather(g, values(g.rank, part), None, choice)


def _allgatherv(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    counts = ragged(p, items)
    for given in counts, None:
        yield (
            f"counts {given}",
            lambda g, given=given: collectives.gather.allgatherv(
                g, values(g.rank, counts[g.rank]), given, None, choice
            ),
        )


def _merge_sorted(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    counts = ragged(p, items)
    yield (
        "ragged runs",
        lambda g: collectives.merge.merge_sorted(g, np.sort(values(g.rank, counts[g.rank])), None, choice),
    )


def _alltoall(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    part = -(-items // p)
    yield (
        "equal parts",
        lambda g: collectives.alltoall.alltoall(g, values(g.rank, p * part).reshape(p, part), None, choice),
    )


def _alltoallv(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    counts = ragged(p, items)
    rows = [counts[rank:] + counts[:rank] for rank in range(p)]  # of each rank for each
    for told in True, False:

        def begin(group: Group, told: bool = told) -> Steps[Any]:
            mine = rows[group.rank]
            theirs = [row[group.rank] for row in rows] if told else None
            return collectives.alltoall.alltoallv(group, values(group.rank, sum(mine)), mine, theirs, None, choice)

        yield f"recvcounts {'given' if told else 'left out'}", begin


def _shift(_: Algorithm, p: int, items: int, choice: Choice) -> _Made:
    for distance in sorted({1 % p, p // 3, p - 1}):
        yield (
            f"distance {distance}",
            lambda g, distance=distance: collectives.shift.shift(g, values(g.rank, items), distance, None, choice),
        )


def _barrier(_entry: Algorithm, _p: int, items: int, _choice: Choice) -> _Made:
    if items == 0:
        yield "no data", collectives.reduce.barrier


_MAKERS: dict[str, Callable[[Algorithm, int, int, Choice], _Made]] = {
    "bcast": _bcast,
    "reduce": _reduce,
    "allreduce": _combining(collectives.reduce.allreduce),
    "scan": _combining(collectives.scan.scan),
    "exscan": _combining(collectives.scan.exscan),
    "reduce_scatter": _reduce_scatter,
    "gather": _gather,
    "scatter": _scatter,
    "allgather": _allgather,
    "allgatherv": _allgatherv,
    "merge_sorted": _merge_sorted,
    "alltoall": _alltoall,
    "alltoallv": _alltoallv,
    "shift": _shift,
    "barrier": _barrier,
}
