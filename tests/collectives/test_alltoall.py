"""Total exchange and circular shift, live on every transport against numpy; and the schedules by their laws."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast import ArgumentError, CollectiveMismatch, Communicator
from ringcast.algorithms import ALGORITHMS, Params, build
from ringcast.analysis.postconditions import postcondition
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.errors import ScheduleError
from ringcast.protocol.operations import SEGMENT
from ringcast.schedules import shift
from ringcast.schedules.circulant import skips
from ringcast.schedules.grid import mesh_shape
from ringcast.schedules.schedule import relabel
from ringcast.wire.header import EAGER_LIMIT
from support.cases import each
from support.collective_checks import (
    check_alltoall,
    check_alltoallv,
    check_shift,
    dtypes,
    examples,
    expect,
    groups,
    inputs,
    make,
    shapes,
)
from support.jobs import KINDS, Jobs
from support.places import golden_collectives

GOLDEN = golden_collectives()
MANY = [
    ("threads", 33),
    *(pytest.param(*job, marks=pytest.mark.long) for job in [("shm", 33), ("sockets", 33), ("threads", 65)]),
]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def legal(collective: str, p: int) -> list[str]:
    return [name for name, entry in ALGORITHMS[collective].items() if not entry.fits(Params(p))]


def everything(p: int, collective: str, name: str, distance: int = 0) -> list[Any]:
    return [build(collective, name, Params(p, distance=distance), r) for r in range(p)]


# Schedules


@pytest.mark.parametrize("p", [int(p) for p in GOLDEN["alltoall_blocks_per_round"]])
def test_circulant_rounds_move_the_known_numbers_of_blocks(p: int) -> None:
    for schedule in everything(p, "alltoall", "circulant"):
        assert [len(step.send) for step in schedule] == GOLDEN["alltoall_blocks_per_round"][str(p)]


@pytest.mark.parametrize("p", [int(p) for p in GOLDEN["alltoall_source_offsets"]])
def test_circulant_blocks_arrive_in_the_rounds_of_the_concatenation(p: int) -> None:
    """Within a round we keep the order of offsets, not the order of the concatenated lists."""
    known = GOLDEN["alltoall_source_offsets"][str(p)][1:]
    for step in build("alltoall", "circulant", Params(p), 0):
        arrived = [-(int(slot) - p) % p for slot in step.recv if p <= slot < 2 * p]
        assert sorted(known[: len(arrived)]) == arrived
        known = known[len(arrived) :]
    assert not known


def links(p: int, collective: str, name: str, distance: int = 0) -> set[tuple[int, int]]:
    """Return who sends to whom."""
    told = everything(p, collective, name, distance)
    return {(s.rank, step.send_to) for s in told for step in s if step.send_to is not None}


def on_mesh(p: int, a: int, b: int) -> bool:
    """Whether two ranks are neighbours on the mesh of p ranks, with links around."""
    rows, columns = mesh_shape(p)
    (i, j), (k, m) = divmod(a, columns), divmod(b, columns)
    along_row = i == k and (j - m) % columns in (1, columns - 1)
    return along_row or (j == m and (i - k) % rows in (1, rows - 1))


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 8, 12, 16, 20, 33])
def test_messages_travel_along_the_links_of_their_graph(p: int) -> None:
    ways = [("alltoall", 0), *(("shift", s) for s in range(p))]
    for collective, s in ways:
        assert all((b - a) % p in (1, p - 1) for a, b in links(p, collective, "ring", s))
        assert all(on_mesh(p, a, b) for a, b in links(p, collective, "mesh", s))
    assert all((b - a) % p == 1 for a, b in links(p, "alltoall", "ring"))
    assert all((b - a) % p in (1, p - 1) for a, b in links(p, "alltoall", "ring_two_way"))
    assert {(b - a) % p for a, b in links(p, "alltoall", "circulant")} == set(skips(p)[:-1])
    if "hypercube" in legal("alltoall", p):
        assert all((a ^ b).bit_count() == 1 for a, b in links(p, "alltoall", "hypercube"))
        for s in range(p):
            nodes = [(shift.gray(a), shift.gray(b)) for a, b in links(p, "shift", "hypercube", s)]
            assert all((a ^ b).bit_count() == 1 for a, b in nodes)


@each("p", [*range(1, 18), 33, 64])
@pytest.mark.parametrize("name", ALGORITHMS["shift"])
def test_every_distance(p: int, name: str) -> None:
    if name not in legal("shift", p):
        return
    for s in range(p) if p < 33 else (0, 1, 21, p // 2, p - 1):
        schedules = everything(p, "shift", name, s)
        verify(schedules, postcondition("shift", p, (1, 1), distance=s))
        assert simulate(schedules).rounds == ALGORITHMS["shift"][name].rounds(Params(p, distance=s))


@pytest.mark.parametrize("p", [*range(1, 18), 33, 65])
def test_scattered_is_linear_with_rounds_that_overlap(p: int) -> None:
    straight, scattered = (everything(p, "alltoallv", name) for name in ("linear", "scattered"))
    assert [list(s) for s in scattered] == [list(s) for s in straight]
    assert all(s.concurrent for s in scattered)
    assert not any(s.concurrent for s in straight)
    members = range(1, 2 * p, 2)
    assert all(relabel(s, members, 2 * p).concurrent for s in scattered)


def test_what_the_papers_say_of_rounds_and_volume() -> None:
    """Messages in blocks. Two ways have half the volume of one; the mesh needs a round less than the paper."""
    for p in 4, 16, 64:
        root, d = round(p**0.5), p.bit_length() - 1
        most = dict.fromkeys(ALGORITHMS["shift"], 0)
        for s in range(p):
            for name in most:
                most[name] = max(most[name], ALGORITHMS["shift"][name].rounds(Params(p, distance=s)))
        assert most == {"direct": 1, "ring": p // 2, "mesh": root, "hypercube": 2 * d - 1}
        volumes = {name: simulate(everything(p, "alltoall", name)).sent[0] for name in legal("alltoall", p)}
        assert volumes == {
            "circulant": p // 2 * d,
            "linear": p - 1,
            "ring": (p - 1) * p // 2,
            "ring_two_way": p * p // 4,
            "mesh": p * (root - 1),
            "hypercube": p // 2 * d,
            "xor": p - 1,
        }


def test_promises_refuse_what_is_not_theirs() -> None:
    with pytest.raises(ValueError, match="shift of 3 ranks has 2 parts"):
        postcondition("shift", 3, (1,))
    schedules = everything(5, "shift", "direct", 2)
    with pytest.raises(ScheduleError, match="slot 1 has piece 0 of rank 3, not piece 0 of rank 4"):
        verify(schedules, postcondition("shift", 5, (1, 1), distance=1))


# Live


@pytest.mark.parametrize("kind", KINDS)
def test_alltoall_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes)
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any) -> None:
        tables = data.draw(inputs(p, (p, *shape), dtype))
        check_alltoall(jobs(kind, p), tables, algorithm=data.draw(st.sampled_from([None, *legal("alltoall", p)])))

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_alltoallv_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes, st.booleans())
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any, told: bool) -> None:
        rows = st.lists(st.integers(0, 4), min_size=p, max_size=p)
        counts = np.array(data.draw(st.lists(rows, min_size=p, max_size=p)))
        arrays = [data.draw(inputs(1, (n, *shape[1:]), dtype))[0] for n in counts.sum(axis=1).tolist()]
        algorithm = data.draw(st.sampled_from([None, *legal("alltoallv", p)]))
        check_alltoallv(jobs(kind, p), arrays, counts, told, algorithm=algorithm)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_shift_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes, st.integers(-20, 20))
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any, distance: int) -> None:
        algorithm = data.draw(st.sampled_from([None, *legal("shift", p)]))
        check_shift(jobs(kind, p), data.draw(inputs(p, shape, dtype)), distance, algorithm=algorithm)

    check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [0, 1, 16_319, 16_385, 65_537, 300_000])
def test_sizes_at_which_the_protocol_changes(jobs: Jobs, kind: str, row: int) -> None:
    p = 4
    job = jobs(kind, p)
    for name in legal("alltoall", p) if kind == "threads" else [None]:
        check_alltoall(job, [make("u1", (p, row), r) for r in range(p)], algorithm=name)
    counts = np.array([[row if (i + j) % 3 else 0 for j in range(p)] for i in range(p)])
    check_alltoallv(job, [make("u1", (n,), n) for n in counts.sum(axis=1).tolist()], counts)
    for name in legal("shift", p) if kind == "threads" else [None]:
        check_shift(job, [make("u1", (row,), r) for r in range(p)], 3, algorithm=name)


@pytest.mark.parametrize(("kind", "p"), [*product(("threads", "shm", "sockets"), (1, 2, 3, 7)), *MANY])
def test_parts_of_all_sizes_at_the_same_time(jobs: Jobs, kind: str, p: int) -> None:
    """Nothing, one byte, and what has to be asked for, in every round."""
    sizes = np.array([0, 1, 0, EAGER_LIMIT, 1, EAGER_LIMIT + 1, 3 * SEGMENT])
    ranks = np.arange(p)
    counts = sizes[(3 * ranks[:, None] + ranks[None, :] ** 2) % (7 if p < 33 else 6)]
    arrays = [make("u1", (n,), r) for r, n in enumerate(counts.sum(axis=1).tolist())]
    for told in False, True:
        check_alltoallv(jobs(kind, p), arrays, counts, told, algorithm="scattered")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_objects(jobs: Jobs, kind: str, p: int) -> None:
    def work(c: Communicator) -> None:
        for name in None, *legal("alltoall", p):
            got = c.alltoall([f"{c.rank} to {j}" * j for j in range(p)], algorithm=name)
            assert got == [f"{j} to {c.rank}" * c.rank for j in range(p)]
        counts = [(c.rank + j) % 3 for j in range(p)]  # symmetric
        mine = [(c.rank, j, i) for j in range(p) for i in range(counts[j])]
        for given_ in None, counts:
            got = c.alltoallv(mine, counts, given_)
            assert got == [(j, c.rank, i) for j in range(p) for i in range(counts[j])]
        for name in None, *legal("shift", p):
            assert c.shift({"from": c.rank}, p + 2, algorithm=name) == {"from": (c.rank - 2) % p}
        mixed = np.array([None, c.rank] * p, dtype=object)[:p]
        assert c.alltoall(mixed) == [None if c.rank % 2 == 0 else j for j in range(p)]

    jobs(kind, p).ask(work)


def test_numpy_scalars_are_shifted_as_such(jobs: Jobs) -> None:
    def work(c: Communicator) -> Any:
        return c.shift(np.float32(c.rank), 1)

    got = jobs("threads", 3).ask(work)
    assert [(type(value), value) for value in got] == [(np.float32, r) for r in (2, 0, 1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [0, 1, 5000])
def test_results_in_place(jobs: Jobs, kind: str, row: int) -> None:
    def work(c: Communicator) -> None:
        p = c.size
        tables = np.arange(p * p * row).reshape(p, p, row)
        mine, out = tables[c.rank].copy(), np.full((p, row), -1)
        for name in None, *legal("alltoall", p):
            assert c.alltoall(mine, out=out, algorithm=name) is out
            expect(out, tables[:, c.rank])
            both = mine.copy()
            assert c.alltoall(both, out=both, algorithm=name) is both
            expect(both, tables[:, c.rank])
        counts = [1] * p
        for given_ in None, counts:
            out[:] = -1
            assert c.alltoallv(mine, counts, given_, out=out) is out
            expect(out, tables[:, c.rank])
        both = mine.copy()
        assert c.alltoallv(both, counts, out=both) is both
        expect(both, tables[:, c.rank])

    for p in 3, 4:
        jobs(kind, p).ask(work)


# Bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.alltoall(np.ones(4)), "value: expected an array with 3 rows, or a sequence of 3 values, got 4 of"),
        (lambda c: c.alltoall(np.float64(1)), "a sequence of 3 values, got float64"),
        (lambda c: c.alltoall(np.str_("abc")), "a sequence of 3 values, got str_"),
        (lambda c: c.alltoall(7), "a sequence of 3 values, got int"),
        (lambda c: c.alltoall([1, 2, 3], out=np.ones(3)), "out: expected None"),
        (
            lambda c: c.alltoall(np.ones(3), out=np.ones(3, int)),
            "out: expected shape .* and dtype float64, got .* int64",
        ),
        (lambda c: c.alltoall(np.ones(3), algorithm="hypercube"), "'hypercube': it needs a power of two ranks, not 3"),
        (lambda c: c.alltoall(np.ones(3), algorithm="fast"), "there is no such algorithm; known are circulant"),
        (lambda c: c.alltoallv(np.ones(4), [1, 1, 1]), "counts: expected numbers that add up to the 4 rows .*, got 3"),
        (lambda c: c.alltoallv(np.ones(4), [1, 4, -1]), "counts: expected 3 numbers of rows, 0 or more"),
        (lambda c: c.alltoallv(np.ones(3), None), "counts: expected 3 numbers of rows"),
        (
            lambda c: c.alltoallv(np.ones(3), [1, 1, 1], [1, 1]),
            "recvcounts: expected 3 numbers of rows, 0 or more, got",
        ),
        (
            lambda c: c.alltoallv(np.ones(3), [1, 1, 1], [2, 2, 2]),
            "recvcounts: expected 1 at .*, the rows of this rank for itself",
        ),
        (lambda c: c.alltoallv("abc", [1, 1, 1]), "value: expected an array of 1 dimension or more, got str"),
        (lambda c: c.alltoallv([1, 2, 3], [1, 1, 1], out=np.ones(3)), "out: expected None"),
        (lambda c: c.alltoallv(np.ones(3), [1, 1, 1], out=np.ones((3, 2))), "out: expected shape"),
        (lambda c: c.alltoallv(np.ones(3), [1, 1, 1], algorithm="circulant"), "known are scattered, linear"),
        (lambda c: c.shift(1, 0.5), "distance: expected a whole number, got 0.5"),
        (lambda c: c.shift(1, None), "distance: expected a whole number, got None"),
        (lambda c: c.shift(1, 1, algorithm="hypercube"), "it needs a power of two ranks, not 3; possible here: direct"),
    ],
)
def test_a_wrong_argument_is_found_before_anything_is_sent(jobs: Jobs, call: Any, words: str) -> None:
    def work(c: Communicator) -> int:
        with pytest.raises(ArgumentError, match=words):
            call(c)
        return c.allreduce(1)  # the communicator can still be used

    assert jobs("threads", 3).ask(work) == [3] * 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.shift(np.ones(3), 1 + c.rank % 2), "distance 1.*distance 2|distance 2.*distance 1"),
        (lambda c: c.shift(np.ones(3 + c.rank % 2), 1), "shape"),
        (lambda c: c.alltoall(np.ones((4, 1 + c.rank % 2))), "shape"),
        (lambda c: c.alltoall(np.ones(4, "f4" if c.rank else "f8")), "dtype float32"),
        (lambda c: c.alltoall(np.ones(4) if c.rank else [1, 2, 3, 4]), "dtype object"),
        (lambda c: c.alltoall(np.ones(4), algorithm="ring" if c.rank else "linear"), "algorithm ring"),
        (lambda c: c.alltoallv(np.ones((4, 1 + c.rank % 2)), [1] * 4), "shape"),
        (lambda c: c.alltoallv(np.ones(4), [1] * 4, [1] * 4 if c.rank else None), "counts left out"),
        (
            lambda c: c.alltoallv(np.ones(4), [1] * 4, [1 + (c.rank != j) for j in range(4)]),
            "8 bytes where 16 are expec",
        ),
    ],
)
def test_calls_that_do_not_match_are_found(jobs: Jobs, call: Any, words: str) -> None:
    found = [error for error in jobs("threads", 4).run(call) if isinstance(error, CollectiveMismatch)]
    assert any(re.search(words, str(error)) for error in found), found


def test_lists_of_other_lengths_than_told(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        c.alltoallv([1, 2, 3], [1, 1, 1], [1 + (c.rank != j) for j in range(3)])

    errors = jobs("threads", 3).run(work)
    assert any("recvcounts: expected the numbers of objects that came, (1, 1, 1)" in str(error) for error in errors)


def test_an_out_with_a_wrong_number_of_rows(jobs: Jobs) -> None:
    for recvcounts in None, [1, 1, 1]:
        errors = jobs("threads", 3).run(lambda c, r=recvcounts: c.alltoallv(np.ones(3), [1] * 3, r, out=np.ones(4)))
        assert any("out: expected shape (3,)" in str(error) for error in errors)
