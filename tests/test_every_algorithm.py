"""Every algorithm of the registry keeps its promise and takes the rounds it declares.

All groups of up to 70 ranks by exhaustion, and the sizes at which known wrong variants of the circulant schedules
fail first. A new entry of the registry is tested without a change here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from ringcast.schedule import Combine, Copy, Schedule
from ringcast.schedules import ALGORITHMS, Algorithm, Params, build
from ringcast.simulate import simulate
from ringcast.spec import promise
from ringcast.verify import Place, enact, verify

ENTRIES = [entry for named in ALGORITHMS.values() for entry in named.values()]
KILLERS = (73, 81, 129, 130, 131, 257)
ROOTED = {"bcast", "reduce", "scatter", "gather"}
REDUCING = {"reduce", "allreduce", "reduce_scatter"}
V_FORMS = {"allgatherv", "reduce_scatter", "scatter", "gather"}


def ragged(p: int) -> tuple[int, ...]:
    """Counts of all sorts, some of them 0."""
    return tuple(7 * j % 5 * (j % 3) for j in range(p))


def giant(p: int) -> tuple[int, ...]:
    """One part holds nearly everything."""
    return tuple(1000 if j == p // 3 else 1 for j in range(p))


def lonely(p: int) -> tuple[int, ...]:
    """One part holds everything."""
    return tuple(1000 if j == p // 2 else 0 for j in range(p))


def cases(entry: Algorithm, p: int) -> Iterator[Params]:
    """Sample the calls of `entry` by `p` ranks: roots, numbers of blocks, counts; fewer where they cost more."""
    roots = (0, p // 2, p - 1) if entry.collective in ROOTED else (0,)
    blocks = ((1, 2, 5, 12) if p <= 33 else (4, 9) if p <= 70 else (3,)) if entry.blocks else (1,)
    if p > 33:
        roots = roots[-1:]
    yield from (Params(p, root, n) for root in sorted(set(roots)) for n in blocks)
    if entry.collective in V_FORMS and not entry.equal_counts:
        yield Params(p, roots[-1], blocks[0], ragged(p))
        yield Params(p, roots[-1], blocks[-1], lonely(p))
        if p <= 33 or p % 8 in (0, 1):
            yield Params(p, roots[-1], blocks[-1], giant(p))
            yield Params(p, roots[-1], blocks[-1], (0,) * p)


def schedules_of(entry: Algorithm, params: Params) -> list[Schedule]:
    return [build(entry.collective, entry.name, params, r) for r in range(params.size)]


def check(entry: Algorithm, params: Params) -> None:
    schedules = schedules_of(entry, params)
    collective = "allreduce" if entry.whole else entry.collective
    empty = frozenset(j for j, count in enumerate(params.counts) if count == 0)
    told = promise(
        collective,
        params.size,
        schedules[0].parts,
        root=params.root,
        empty=empty if collective in V_FORMS else frozenset(),
    )
    verify(schedules, told, ordered=entry.collective in REDUCING and not entry.commutative)
    rounds, declared = simulate(schedules).rounds, entry.rounds(params)
    assert rounds == declared or (empty and rounds <= declared), f"{rounds} rounds, not {declared}"


@pytest.mark.parametrize("p", [*range(1, 71), *KILLERS])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.collective}-{entry.name}")
def test_keeps_its_promise_in_the_rounds_it_declares(entry: Algorithm, p: int) -> None:
    for params in cases(entry, p):
        try:
            check(entry, params)
        except Exception as error:
            error.add_note(f"{entry.collective} by {entry.name}: {params}")
            raise
