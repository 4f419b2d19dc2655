"""The circulant schedules against the paper's conditions, the golden vectors and the theorems on rounds and volume."""

import json
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.analysis import postconditions
from ringcast.analysis.simulate import Report, simulate
from ringcast.analysis.verify import verify
from ringcast.schedules import circulant
from ringcast.schedules.circulant import baseblock, recv_schedule, schedule_tables, send_schedule, skips
from ringcast.schedules.schedule import COMBINE_RIGHT, Combine, Copy, Schedule
from support.cases import each, long_but
from support.places import GOLDEN

KILLERS = [33, 65, 66, 67, 68, 69, 73, 81, 129, 130, 131, 257, 513, 1025]  # where known wrong constructions fail
SIZES = [*range(1, 18), 20, 31, 32, 33, 36, 65]
COLLECTIVES = json.loads((GOLDEN / "collectives.json").read_text())


def log(p: int) -> int:
    return (p - 1).bit_length()


def roots(p: int) -> set[int]:
    return {0, 1 % p, p // 2, p - 1}


def check(collective: str, schedules: list[Schedule], root: int = 0, empty: frozenset[int] = frozenset()) -> Report:
    """Verify that the schedules reach the collective's postcondition, and return what they cost."""
    parts = schedules[0].parts
    verify(schedules, postconditions.postcondition(collective, len(schedules), parts, root=root, empty=empty))
    return simulate(schedules)


@each("p", [*range(1, 301), *KILLERS[-3:]])
def test_four_conditions(p: int) -> None:
    recv, send = (table.astype(int) for table in schedule_tables(p))
    s, q = skips(p), log(p)
    own = np.array([baseblock(p, r) for r in range(p)])
    ranks = np.arange(p)
    for k in range(q):
        assert (send[k] == recv[k][(ranks + s[k]) % p]).all(), f"both ends, {p=} {k=}"
        fresh = (s[k] <= ranks) & (ranks < s[k + 1])
        assert ((recv[k] >= 0) == fresh).all(), f"when the new block comes, {p=} {k=}"
        known = (send[k] == own - q) | (recv[:k] == send[k]).any(axis=0)
        assert known[1:].all(), f"sends only what it has, {p=} {k=}"
    as_old = np.sort(np.where(recv >= 0, recv - q, recv), axis=0)
    assert (as_old == np.arange(-q, 0)[:, None]).all(), f"each block once, {p=}"
    new = np.where(recv >= 0, recv, -1).max(axis=0, initial=-1)
    assert (new[1:] == own[1:]).all(), f"the new block is the baseblock, {p=}"
    assert send[:, 0].tolist() == list(range(q))


@each("p", [*range(1, 120), *KILLERS])
def test_one_rank_and_all_ranks_agree(p: int) -> None:
    recv, send = schedule_tables(p)
    step = max(1, p // 150)
    for r in range(0, p, step):
        assert recv_schedule(p, r) == tuple(recv[:, r].tolist())
        assert send_schedule(p, r) == tuple(send[:, r].tolist())


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("schedule_p*.json")), ids=lambda path: path.stem)
def test_golden_tables(path: Path) -> None:
    golden = json.loads(path.read_text())
    p = golden["p"]
    recv, send = schedule_tables(p)
    assert golden["skips"] == list(skips(p))
    assert golden["baseblock"] == [baseblock(p, r) for r in range(p)]
    assert golden["recv"] == recv.T.tolist()
    assert golden["send"] == send.T.tolist()


def test_table_1_of_the_paper() -> None:
    recv, send = schedule_tables(20)
    assert skips(20) == (1, 2, 3, 5, 10, 20)
    assert recv.tolist() == [
        [-5, 0, -5, -4, -3, -5, -2, -5, -4, -3, -5, -1, -5, -4, -3, -5, -2, -5, -4, -3],
        [-3, -3, 1, -5, -4, -3, -3, -2, -5, -4, -3, -3, -1, -5, -4, -3, -3, -2, -5, -4],
        [-4, -4, -3, 2, 0, -4, -4, -3, -2, -2, -4, -4, -3, -1, -1, -4, -4, -3, -2, -2],
        [-2, -2, -2, -2, -2, 3, 0, 1, 2, 0, -2, -2, -2, -2, -2, -1, -1, -1, -1, -1],
        [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 4, 0, 1, 2, 0, 3, 0, 1, 2, 0],
    ]
    assert send.tolist() == [
        [0, -5, -4, -3, -5, -2, -5, -4, -3, -5, -1, -5, -4, -3, -5, -2, -5, -4, -3, -5],
        [1, -5, -4, -3, -3, -2, -5, -4, -3, -3, -1, -5, -4, -3, -3, -2, -5, -4, -3, -3],
        [2, 0, -4, -4, -3, -2, -2, -4, -4, -3, -1, -1, -4, -4, -3, -2, -2, -4, -4, -3],
        [3, 0, 1, 2, 0, -2, -2, -2, -2, -2, -1, -1, -1, -1, -1, -2, -2, -2, -2, -2],
        [4, 0, 1, 2, 0, 3, 0, 1, 2, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1],
    ]


def test_a_rank_of_a_million() -> None:
    p, r = 10**6, 123456
    recv = (-20, -19, -18, -15, -16, -13, -14, -12, -9, -11, -10, -8, -7, -6, -5, -4, 3, -3, -2, -1)
    send = (-17, -17, -17, -17, -15, -15, -13, -13, -12, -9, -9, -9, -8, -7, -6, -5, -4, 3, 3, 3)
    assert (recv_schedule(p, r), send_schedule(p, r)) == (recv, send)


@given(p=st.integers(2, 1 << 20), data=st.data())
def test_both_ends_agree_for_any_p(p: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(0, p - 1))
    send = send_schedule(p, r)
    assert send == tuple(recv_schedule(p, (r + s) % p)[k] for k, s in enumerate(skips(p)[:-1]))


def test_tables_are_shared_and_read_only() -> None:
    recv, send = schedule_tables(9)
    assert recv is schedule_tables(9)[0]
    for table in recv, send:
        assert table.dtype == np.int8
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 1


def test_no_ranks_no_skips() -> None:
    with pytest.raises(ValueError, match="group of 0 ranks"):
        skips(0)


@pytest.mark.parametrize("p", SIZES)
def test_bcast_and_reduce_take_n_minus_1_plus_q_rounds(p: int) -> None:
    for root, n in product(roots(p), (1, 2, 3, 4, 7)):
        down = [circulant.bcast(p, r, nblocks=n, root=root) for r in range(p)]
        up = [circulant.reduce(p, r, nblocks=n, root=root) for r in range(p)]
        spread, reduced = check("bcast", down, root), check("reduce", up, root)
        rounds = n - 1 + log(p) if p > 1 else 0
        assert spread.rounds == reduced.rounds == len(down[0]) == len(up[0]) == rounds
        assert spread.received == reduced.sent == tuple(n * (r != root) for r in range(p))


@pytest.mark.parametrize("p", KILLERS)
def test_bcast_where_wrong_tables_fail(p: int) -> None:
    n = 3 if p < 200 else 1
    report = check("bcast", [circulant.bcast(p, r, nblocks=n) for r in range(p)])
    assert report.rounds == n - 1 + log(p)


@pytest.mark.parametrize("case", COLLECTIVES["bcast_trace_root0"])
def test_bcast_golden_trace(case: str) -> None:
    p, n = map(int, case.split(","))
    trace = [
        [i, r, step.send_to, *step.send]
        for r in range(p)
        for i, step in enumerate(circulant.bcast(p, r, nblocks=n))
        if step.send_to is not None
    ]
    assert sorted(trace) == COLLECTIVES["bcast_trace_root0"][case]


@pytest.mark.parametrize("p", SIZES)
def test_regular_forms_take_q_rounds_and_the_least_volume(p: int) -> None:
    spread = check("allgather", [circulant.allgather(p, r) for r in range(p)])
    reduced = check("reduce_scatter", [circulant.reduce_scatter(p, r) for r in range(p)])
    both = check("allreduce", [circulant.allreduce(p, r) for r in range(p)])
    assert (spread.rounds, reduced.rounds, both.rounds) == (log(p), log(p), 2 * log(p))
    assert spread.sent == spread.received == reduced.sent == reduced.received == (p - 1,) * p
    assert both.sent == both.received == (2 * p - 2,) * p


@pytest.mark.parametrize("p", [int(p) for p in COLLECTIVES["rs_rounds"]])
def test_golden_rounds_of_reduce_scatter(p: int) -> None:
    rounds = [[step.send_to, len(step.send)] for step in circulant.reduce_scatter(p, 0)]
    assert rounds == COLLECTIVES["rs_rounds"][str(p)]


@pytest.mark.parametrize("p", [int(p) for p in COLLECTIVES["census_rounds"]])
def test_golden_rounds_of_census(p: int) -> None:
    rounds = [step for step in circulant.census(p, 0) if step.recv_from is not None]
    # Golden: the distance, and whether the message holds the sender's own value.
    told = [[step.recv_from, int(not any(isinstance(x, Copy) for x in step.local))] for step in rounds]
    assert told == COLLECTIVES["census_rounds"][str(p)]


@pytest.mark.parametrize("p", [*SIZES, 100, 129])
def test_census_takes_q_rounds(p: int) -> None:
    report = check("allreduce", [circulant.census(p, r) for r in range(p)])
    assert report.rounds == log(p)
    assert report.sent == (log(p),) * p
    steps = list(circulant.census(p, 0))
    operations = sum(isinstance(local, Combine) for step in steps for local in step.local)
    operations += sum(step.accept is COMBINE_RIGHT for step in steps)
    assert operations == (log(p) + (p - 1).bit_count() - 1 if p > 1 else 0)


@pytest.mark.parametrize("p", SIZES)
def test_barrier_sends_messages_without_bytes(p: int) -> None:
    report = simulate([circulant.barrier(p, r) for r in range(p)], [0])
    assert (report.rounds, report.messages, report.volume) == (log(p), p * log(p), 0)


@pytest.mark.parametrize("p", SIZES)
def test_scatter_and_gather_take_q_rounds(p: int) -> None:
    for root in range(p) if p < 18 else roots(p):
        down = check("scatter", [circulant.scatter(p, r, root=root) for r in range(p)], root)
        up = check("gather", [circulant.gather(p, r, root=root) for r in range(p)], root)
        assert down.rounds == up.rounds == log(p)
        assert down.sent[root] == up.received[root] == p - 1
        assert down.messages == up.messages == p - 1


@pytest.mark.parametrize("p", long_but((1, 2, 3, 4, 7, 8, 17, 33), [*range(1, 13), 17, 33, 65]))
def test_allgatherv_moves_exactly_what_is_missing(p: int) -> None:
    random = np.random.default_rng(p)
    for n, nempty in product((1, 2, 5), {0, 1, p // 2, p - 1, p}):
        counts = random.integers(1, 9, p)
        counts[random.permutation(p)[:nempty]] = 0
        empty = frozenset(np.flatnonzero(counts == 0).tolist())
        known = tuple(counts.tolist())
        spread = [circulant.allgatherv(p, r, nblocks=n, counts=known) for r in range(p)]
        gathered = [circulant.reduce_scatter_v(p, r, nblocks=n, counts=known) for r in range(p)]
        reports = check("allgatherv", spread, empty=empty), check("reduce_scatter", gathered, empty=empty)
        missing = tuple(n * (p - len(empty) - (r not in empty)) for r in range(p))
        assert (reports[0].received, reports[1].sent) == (missing, missing)
        assert len(spread[0]) == len(gathered[0]) == (n - 1 + log(p) if p > 1 else 0)
        assert max(report.rounds for report in reports) <= len(spread[0])
        if not empty:
            assert reports[0].rounds == reports[1].rounds == len(spread[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda p, r: circulant.bcast(p, r, nblocks=3, root=1),
        lambda p, r: circulant.allgatherv(p, r, nblocks=2, counts=(1,) * p),
        circulant.allreduce,
        circulant.census,
        lambda p, r: circulant.gather(p, r, root=1),
    ],
)
def test_schedules_are_plain_data(make) -> None:
    schedule, same = make(9, 4), make(9, 4)
    steps = repr(list(schedule))  # also fills what is computed once
    assert schedule == same == pickle.loads(pickle.dumps(schedule))
    assert hash(schedule) == hash(same)
    assert repr(schedule) == repr(same)
    assert make(9, 5) != schedule
    assert repr([schedule[i - len(schedule)] for i in range(len(schedule))]) == steps
