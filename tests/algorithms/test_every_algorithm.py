"""Every algorithm of the registry reaches its postcondition and takes the rounds it declares.

All groups of up to 70 ranks by exhaustion, and the sizes at which known wrong variants of the circulant schedules
fail first; most of them in the long tests. A new entry of the registry is tested without a change here.
"""

from __future__ import annotations

import pytest

from ringcast.algorithms import ALGORITHMS, Algorithm, Params, build
from ringcast.algorithms.load import Call
from ringcast.analysis.lockstep import Cursor, run_in_lockstep
from ringcast.analysis.postconditions import postcondition
from ringcast.analysis.verify import verify
from ringcast.schedules import fractional
from ringcast.schedules.schedule import STORE, Copy, Schedule
from ringcast.wire.collective import COLLECTIVES
from support.cases import each

ENTRIES = [entry for named in ALGORITHMS.values() for entry in named.values()]
QUICK = (*range(1, 10), 13, 16, 17, 33)  # of these sizes every test run knows
KILLERS = (73, 81, 129, 130, 131, 257, 513, 1025)
REDUCING = {"reduce", "allreduce", "reduce_scatter", "scan", "exscan"}
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


def nothing(p: int) -> tuple[int, ...]:
    """All parts are empty."""
    return (0,) * p


def cases(entry: Algorithm, p: int) -> list[Params]:
    """Sample the calls of `entry` by `p` ranks: roots, numbers of blocks, counts; fewer where they cost more."""
    if entry.collective == "shift":
        return [Params(p, distance=s) for s in sorted({0, 1 % p, p // 3, p // 2, 5 * p // 7, p - 1})]
    rooted, cuts = COLLECTIVES[entry.collective].rooted, entry.blocks
    roots = sorted({0, p // 2, p - 1} if p <= 33 else {p // 2 + p % 3}) if rooted else [0]
    blocks = [1] if not cuts else [1, 3, 8] if p <= 33 else [1 + p % 5] if p <= 70 else [3]
    plain = [Params(p, root, n) for root in roots for n in blocks]
    if entry.collective not in V_FORMS or entry.equal_counts:
        return plain
    kinds = [ragged, lonely, giant, nothing] if p <= 33 or p in (41, 65) else [ragged]
    return plain + [Params(p, roots[-1], blocks[-1], counts(p)) for counts in kinds]


def schedules_of(entry: Algorithm, params: Params) -> list[Schedule]:
    return [build(entry.collective, entry.name, params, r) for r in range(params.size)]


def check(entry: Algorithm, params: Params) -> None:
    schedules = schedules_of(entry, params)
    collective = "allreduce" if entry.whole else entry.collective
    empty = frozenset(j for j, n in enumerate(params.counts) if n == 0) if collective in V_FORMS else frozenset()
    told = postcondition(
        collective, params.size, schedules[0].parts, root=params.root, empty=empty, distance=params.distance
    )
    rounds = verify(schedules, told, ordered=entry.collective in REDUCING and not entry.commutative)
    declared = entry.rounds(params)
    assert rounds == declared, f"{rounds} rounds, not {declared}"


def affordable(entry: Algorithm, p: int) -> bool:
    """Whether `p` ranks have few enough steps, and hold few enough slots, to be done within a few seconds.

    Where every rank has a part, 513 ranks are the most: the cost grows with p squared, and 1025 would take minutes.
    """
    if p <= 70:
        return True
    calls = cases(entry, p)
    if p * max(map(entry.rounds, calls)) >= 20_000:
        return False
    return p * max(build(entry.collective, entry.name, params, 0).nslots for params in calls) < 1_000_000


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.collective}-{entry.name}")
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.long)], ids=["some sizes", "the others"])
@pytest.mark.timeout(1200)
def test_keeps_its_promise_in_the_rounds_it_declares(entry: Algorithm, quick: bool) -> None:
    for p in (*range(1, 71), *KILLERS):
        if (p in QUICK) != quick or entry.fits(Params(p)) or not affordable(entry, p):
            continue
        each("params", cases(entry, p))(check)(entry=entry)


def side(p: int) -> int:
    return max(a for a in range(1, p + 1) if p % a == 0 and a * a <= p)


def nearest_to_a_cube(p: int) -> tuple[int, int, int]:
    """The sides of the box of that volume which has the shortest edges."""
    divisors = [u for u in range(1, p + 1) if p % u == 0]
    boxes = [(u, v, p // (u * v)) for u in divisors for v in divisors if u <= v <= p / (u * v) and p % (u * v) == 0]
    return min(boxes, key=sum)


def skips_in(e: int, p: int) -> int:
    """The summands of e, the largest first, all of them sizes of the ranges into which p ranks are halved."""
    return 0 if e == 0 else 1 + skips_in(e - p, p) if e >= p else skips_in(e, (p + 1) // 2)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.collective}-{entry.name}")
def test_takes_what_its_formulas_say(entry: Algorithm) -> None:
    for p in range(1, 71):
        for n in (1, 3, 8) if entry.blocks else (1,):
            params = Params(p, p // 2, n, distance=3 * p // 5)
            if p == 1 or entry.fits(params):
                continue
            rounds, m = entry.rounds(params), 2 * n * p
            letters: dict[str, object] = {"p": p, "q": (p - 1).bit_length(), "d": p.bit_length() - 1, "n": n, "m": m}
            letters |= {"depth": fractional.depth, "run": fractional.run_for}
            letters |= {
                "s": params.distance,
                "a": (a := side(p)),
                "b": p // a,
                **dict(zip("uvw", nearest_to_a_cube(p), strict=True)),
                "h": sum(skips_in(e, p) for e in range(p)),
            }
            assert rounds == eval(entry.rounds_formula, letters), params
            assert entry.load(Call(params, m, rounds)).volume == eval(entry.volume_formula, letters), params


class Formulas:
    """A stage on which a value is the formula that computed it, a + b being b + a: what floating point depends on."""

    def __init__(self, schedules: list[Schedule]) -> None:
        nslots = schedules[0].nslots
        self.held: list[list[object]] = [[(r, s) for s in range(nslots)] for r in range(len(schedules))]
        self.out: list[list[object]] = [[] for _ in schedules]

    def enter(self, place: Cursor) -> None:
        held = self.held[place.rank]
        for local in place.step.local:
            if isinstance(local, Copy):
                held[local.dst] = held[local.src]
            else:
                held[local.dst] = frozenset((held[local.left], held[local.right]))
        self.out[place.rank] = [held[s] for s in place.send]

    def deliver(self, sender: Cursor, receiver: Cursor) -> None:
        held = self.held[receiver.rank]
        for slot, value, accept in zip(receiver.recv, self.out[sender.rank], receiver.step.accepts(), strict=True):
            held[slot] = value if accept is STORE else frozenset((held[slot], value))

    def leave(self, place: Cursor) -> None:
        pass


@each("p", [*range(1, 18), 33])
@pytest.mark.parametrize("entry", ALGORITHMS["allreduce"].values(), ids=lambda entry: entry.name)
def test_allreduce_gives_all_ranks_the_same_bits_unless_it_asks_for_an_exact_operator(entry: Algorithm, p: int) -> None:
    schedules = schedules_of(entry, Params(p))
    stage = Formulas(schedules)
    run_in_lockstep(schedules, stage)
    buffer = range(sum(schedules[0].parts))
    distinct = {tuple(held[s] for s in buffer) for held in stage.held}
    assert entry.exact or len(distinct) == 1
