"""Make the cases that a command line asks for, and refuse impossible ones before anything is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ringcast._util.dataclass import dataclass
from ringcast.algorithms import ALGORITHMS, CallFacts
from ringcast.algorithms.cost import choose
from ringcast.algorithms.network import NETWORKS
from ringcast.commands.bench import distributions
from ringcast.commands.bench.bed import TRANSPORT
from ringcast.commands.bench.cases import EMPTY, IRREGULAR, PARTED, REGULAR, Case, Measurement, messages
from ringcast.commands.bench.limits import wire_limit
from ringcast.commands.bench.systems.workload import COMBINING, POINT_TO_POINT

ITEM = 8  # bytes of a float64, which the combining collectives add or merge

# Seconds for the repetitions of one case and system on the way to a result; at least LEAST of them, at most MOST.
BUDGET = 1.0
LEAST, MOST = 5, 50
OVERHEAD = 0.002  # seconds of a repetition beside the movement of data
LOCAL_RATE = 8_000_000_000  # bit/s, where the rate is not known: the order of magnitude of sockets on one machine

# --tune tries these multiples of an algorithm's automatic block count, unless the algorithm with this count takes more
# than HOPELESS times as long as the best algorithm: then another block count will not help.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
HOPELESS = 2.0


@dataclass(frozen=True, slots=True)
class Wish:
    """The user's request, independent of the number of ranks."""

    collectives: Sequence[str]
    sizes: Sequence[int]
    distributions: Sequence[str]
    algorithm: str | None = None
    nblocks: int | None = None
    check: bool = False
    warmup: int | None = None  # None: the number from `repetitions`
    repeat: int | None = None


def cases(wish: Wish, size: int, rate: int | None) -> list[Case]:
    """Return the cases for `size` ranks on links of `rate` bit/s (None: not known), in the order of the report.

    Raises:
        ValueError: a collective cannot be done as wished; the text says why, and what is possible.
    """
    made = [
        _repeated(case, wish, rate)
        for collective in dict.fromkeys(wish.collectives)
        for distribution in (wish.distributions if collective in IRREGULAR else ("",))
        for case in _over_sizes(wish, collective, distribution, size)
    ]
    for case in made:
        _check(case)
    return made


def _over_sizes(wish: Wish, collective: str, distribution: str, size: int) -> Iterator[Case]:
    for m in (0,) if collective in EMPTY else dict.fromkeys(_rounded(collective, m, size) for m in wish.sizes):
        case = Case(collective, size, m, distribution, _parts(collective, distribution, m, size))
        yield replace(case, algorithm=wish.algorithm, nblocks=wish.nblocks, check=wish.check)


def _rounded(collective: str, m: int, p: int) -> int:
    """Return `m` rounded down to whole items, or to equal parts where parts must be equal; at least one of them."""
    unit = ITEM if collective in COMBINING else p if collective in REGULAR else 1
    return max(m // unit, 1) * unit


def _parts(collective: str, distribution: str, m: int, p: int) -> tuple[int, ...]:
    if collective not in PARTED:
        return ()
    if collective in COMBINING:  # as even as whole items allow, one more for the first ranks: MPI's block form
        each, more = divmod(m // ITEM, p)
        return tuple(ITEM * (each + (r < more)) for r in range(p))
    return distributions.parts(distribution or "regular", m, p)


def _repeated(case: Case, wish: Wish, rate: int | None) -> Case:
    warmup, repeat = repetitions(case, rate)
    return replace(
        case,
        warmup=warmup if wish.warmup is None else wish.warmup,
        repeat=repeat if wish.repeat is None else wish.repeat,
    )


def repetitions(case: Case, rate: int | None) -> tuple[int, int]:
    """Return the numbers of untimed and timed repetitions of a case; they fit into BUDGET seconds if all goes well.

    >>> repetitions(Case("bcast", 8, 10_000_000), 100_000_000), repetitions(Case("bcast", 8, 1000), 100_000_000)
    ((1, 5), (5, 50))
    """
    least = wire_limit(case, rate or LOCAL_RATE) or 0.0
    if case.collective in POINT_TO_POINT:
        least = messages(case) * case.nbytes * 8 / (rate or LOCAL_RATE)
    repeat = max(LEAST, min(MOST, int(BUDGET / (OVERHEAD + least))))
    return max(1, repeat // 10), repeat


def _check(case: Case) -> None:
    """Refuse a case that no algorithm can do.

    Raises:
        ValueError: see `cases`.
    """
    if case.collective in POINT_TO_POINT and case.size < 2:
        raise ValueError(f"{case.collective} needs two ranks")
    if case.algorithm is None and case.nblocks is None:
        return
    if case.collective in (*EMPTY, *POINT_TO_POINT):
        raise ValueError(f"{case.collective} takes neither --algorithm nor --nblocks: there is nothing to choose")
    _choice(case)


def _choice(case: Case) -> tuple[str, int]:
    """Return an algorithm and block count that fit the case's wishes; legality does not depend on the network."""
    item = ITEM if case.collective in COMBINING else 1
    facts = CallFacts(
        size=case.size,
        nbytes=case.nbytes,
        itemsize=item,
        root=case.root,
        counts=tuple(part // item for part in case.parts),
        exact=case.collective not in COMBINING,  # a sum of floats is not exact
    )
    return choose(case.collective, facts, NETWORKS[TRANSPORT], algorithm=case.algorithm, nblocks=case.nblocks)


def by_hand(case: Case) -> list[Case]:
    """Return the case with each algorithm that can do it; barrier, latency and bandwidth have no choice."""
    if case.collective in (*EMPTY, *POINT_TO_POINT):
        return []
    named = [replace(case, algorithm=name, nblocks=None) for name in ALGORITHMS[case.collective]]
    return [one for one in named if _legal(one)]


def _legal(case: Case) -> bool:
    try:
        _choice(case)
    except ValueError:
        return False
    return True


def around(case: Case, measured: Sequence[Measurement]) -> list[Case]:
    """Return the ways to do `case` that may be the best; `measured` has the measurements of `by_hand`.

    These are all algorithms that are not hopeless, with their measured number of blocks, and with more and fewer.
    """
    good = [one for one in measured if one.seconds]
    best = min((min(one.seconds) for one in good), default=0.0)
    found: dict[Case, None] = {}
    for one in good:
        if min(one.seconds) <= HOPELESS * best:
            named = replace(case, algorithm=one.case.algorithm)
            found |= dict.fromkeys(way for way in _with_blocks(named, one.nblocks) if _legal(way))
    return list(found)


def _with_blocks(case: Case, nblocks: int | None) -> list[Case]:
    entry = ALGORITHMS[case.collective][case.algorithm or ""]
    if not entry.blocks or nblocks is None:
        return [case]
    return [replace(case, nblocks=max(1, round(nblocks * factor))) for factor in MULTIPLES]
