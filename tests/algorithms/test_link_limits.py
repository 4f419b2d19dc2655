"""Limits of the wire: worked out by hand, and against the messages that any algorithm must send."""

from __future__ import annotations

from itertools import product

import pytest

from ringcast.algorithms import ALGORITHMS, Params, build
from ringcast.commands.bench.cases import COLLECTIVES, PARTED, Case, Measurement
from ringcast.commands.bench.distributions import DISTRIBUTIONS, parts
from ringcast.commands.bench.limits import BURST, beats_wire, busiest, payload, wire_limit
from ringcast.schedules.schedule import Schedule
from ringcast.wire.collective import COLLECTIVES as TABLE
from ringcast.wire.collective import Volume
from support.cases import each

RATE = 100_000_000


def test_payload_is_what_full_frames_carry() -> None:
    assert payload(8 * 1514) == pytest.approx(1448)
    assert payload(RATE) == pytest.approx(11_955_086, abs=1)


# With 10 MB on 8 hosts at 100 Mbit/s: the limits that are known from measurements of the bed.
BY_HAND = [
    (Case("bcast", 8, 10_000_000), 10_000_000),
    (Case("reduce", 8, 10_000_000), 10_000_000),
    (Case("bcast", 2, 1000), 1000),
    (Case("allreduce", 8, 10_000_000), 17_500_000),
    (Case("allreduce", 2, 1000), 1000),
    (Case("allreduce", 33, 33_000), 64_000),
    (Case("allgather", 8, 800, parts=(100,) * 8), 700),
    (Case("allgatherv", 3, 12, "mod3", (0, 4, 8)), 12),  # rank 0 has nothing, and receives all
    (Case("allgatherv", 3, 12, "spike", (6, 3, 3)), 9),
    (Case("allgatherv", 2, 11, "regular", (1, 10)), 10),
    (Case("allgatherv", 8, 10_000_000, "broadcast", (10_000_000, *(0,) * 7)), 10_000_000),
    (Case("reduce_scatter", 3, 48, parts=(16, 8, 24)), 40),
    (Case("reduce_scatter", 8, 8000, parts=(1000,) * 8), 7000),
    (Case("gather", 3, 12, parts=(4, 4, 4)), 8),
    (Case("scatter", 3, 12, parts=(2, 4, 6), root=2), 6),
    (Case("scan", 8, 8000), 8000),
    (Case("exscan", 2, 8000), 8000),
    (Case("alltoall", 8, 800, parts=(100,) * 8), 700),
    (Case("alltoallv", 3, 12, "mod3", (0, 4, 8)), 12),  # rank 0 keeps part 0, which is empty
    (Case("alltoallv", 2, 11, "regular", (1, 10)), 10),  # both ranks keep part 0
    (Case("alltoallv", 4, 10, "decreasing", (5, 3, 2, 0)), 8),  # ranks keep 5, 2, 5 and 2
    (Case("shift", 2, 1000), 1000),
    (Case("merge_sorted", 3, 48, parts=(16, 8, 24)), 40),
]


@pytest.mark.parametrize(("case", "nbytes"), BY_HAND)
def test_limit_by_hand(case: Case, nbytes: int) -> None:
    assert busiest(case) == nbytes
    assert wire_limit(case, RATE) == pytest.approx(nbytes / (RATE / 8 * 1448 / 1514))


def test_the_figures_that_the_bed_is_known_for() -> None:
    assert wire_limit(Case("bcast", 8, 10_000_000), RATE) == pytest.approx(0.836, abs=0.001)
    assert wire_limit(Case("allreduce", 8, 10_000_000), RATE) == pytest.approx(1.464, abs=0.001)
    assert wire_limit(Case("bcast", 36, 4_000_000), 20_000_000) == pytest.approx(1.67, abs=0.005)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_has_no_limit(collective: str) -> None:
    case = Case(collective, 1, 1000, parts=(1000,) if collective in PARTED else ())
    assert wire_limit(case, RATE) is None


@pytest.mark.parametrize("collective", ["barrier", "latency", "bandwidth"])
def test_what_moves_no_vector_has_no_limit(collective: str) -> None:
    assert wire_limit(Case(collective, 8, 1000), RATE) is None


@pytest.mark.parametrize("case", [case for case, _ in BY_HAND], ids=lambda case: case.collective)
def test_without_a_rate_there_is_no_limit(case: Case) -> None:
    assert wire_limit(case, None) is None


@pytest.mark.parametrize(("name", "p"), list(product(DISTRIBUTIONS, (2, 3, 8, 33))))
def test_allgatherv_is_bound_by_the_rank_that_has_to_receive_or_send_most(name: str, p: int) -> None:
    each = parts(name, 1_000_000, p)
    received = [sum(each) - mine for mine in each]
    assert busiest(Case("allgatherv", p, 1_000_000, name, each)) == max(*received, *each)


BLOCKS = 16
BOUND = [name for name in ALGORITHMS if TABLE[name].wire_volume is not Volume.NONE]
USES = [(name, "regular") for name in BOUND]
EVEN = ("allgather", "alltoall", "merge_sorted")  # in which the benchmark has no uneven parts
USES += [(name, "mod3") for name in BOUND if name in PARTED and name not in EVEN]
UNREACHED = ("scan", "exscan")  # by a pipeline of blocks, which no algorithm is


def sizes(schedule: Schedule, case: Case) -> list[int]:
    """Return the bytes of each slot of a rank."""
    mine = case.parts or (case.nbytes,)
    if case.collective == "alltoallv":
        mine = tuple(case.parts[(schedule.rank + j) % case.size] for j in range(case.size))
    if TABLE[case.collective].exchanges:
        mine *= 2
    if len(mine) != len(schedule.parts):
        mine = (case.nbytes,) if len(schedule.parts) == 1 else (case.nbytes // case.size,) * case.size
    size = [part // n for n, part in zip(schedule.parts, mine, strict=True) for _ in range(n)]
    assert sum(size) == sum(mine), "nothing is rounded"
    return size + [size[slot] for slot in schedule.scratch]


def moved(schedules: list[Schedule], case: Case) -> int:
    """Return the bytes that the busiest rank sends or receives when a case is done by these schedules."""
    size = [sizes(mine, case) for mine in schedules]
    sent = (sum(size[mine.rank][slot] for step in mine for slot in step.send) for mine in schedules)
    received = (sum(size[mine.rank][slot] for step in mine for slot in step.recv) for mine in schedules)
    return max(*sent, *received)


@each("p", [2, 3, 5, 8, 9, 33])
@pytest.mark.parametrize(("collective", "distribution"), USES)
def test_no_schedule_moves_less_than_the_limit_and_one_moves_no_more(
    collective: str, p: int, distribution: str
) -> None:
    m = p * BLOCKS * p * BLOCKS  # parts and blocks are equal
    case = Case(collective, p, m, parts=parts(distribution, m, p) if collective in PARTED else ())
    volumes = []
    for name, algorithm in ALGORITHMS[collective].items():
        n, distance = BLOCKS if algorithm.blocks else 1, int(collective == "shift")
        params = Params(p, nblocks=n, counts=case.parts, distance=distance)
        if not algorithm.fits(params):
            volumes.append(moved([build(collective, name, params, rank) for rank in range(p)], case))
    limit = busiest(case)
    assert limit is not None
    assert min(volumes) == limit or (collective in UNREACHED and p > 2 and min(volumes) > limit)


def after(case: Case, *seconds: float) -> Measurement:
    return Measurement(case, "peer", seconds)


BIG = Case("bcast", 8, 10_000_000)


def test_at_the_limit_nobody_is_refused() -> None:
    limit = wire_limit(BIG, RATE)
    assert limit is not None
    assert not beats_wire(after(BIG, limit), RATE)


def test_whoever_is_ten_times_faster_once_is_refused() -> None:
    assert beats_wire(after(BIG, 0.9, 0.08, 0.9), RATE)


@pytest.mark.parametrize("m", [1, 1000, BURST])
def test_what_a_token_bucket_lets_through_is_not_refused(m: int) -> None:
    assert not beats_wire(after(Case("bcast", 8, m), 1e-6), RATE)


def test_from_a_megabyte_on_a_fifth_is_too_much() -> None:
    case = Case("bcast", 8, 1_000_000)
    limit = wire_limit(case, RATE)
    assert limit is not None
    assert beats_wire(after(case, 0.8 * limit), RATE)
    assert not beats_wire(after(case, limit * (1 - BURST / 1_000_000)), RATE)  # the whole bucket was used


@pytest.mark.parametrize("rate", [None, RATE])
def test_nothing_measured_or_known_is_nothing_to_refuse(rate: int | None) -> None:
    assert not beats_wire(after(BIG), rate)
    assert not beats_wire(after(Case("barrier", 8, 0), 1e-9), rate)
    assert not beats_wire(after(BIG, 1e-9), None)
