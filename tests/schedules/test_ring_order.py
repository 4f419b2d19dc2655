"""The order of ranks around a ring of hosts, and the two ways to cut the parts."""

import doctest
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.analysis import postconditions
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.commands.bench import distributions
from ringcast.engine.slots import bounds
from ringcast.schedules import ring, ringorder
from ringcast.schedules.ringorder import node_order
from ringcast.schedules.schedule import Schedule, relabel, reverse

ranks = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3).map(lambda m: 5 * m)), min_size=1, max_size=17)


def apart(placed: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the host and the count of each rank."""
    return tuple(host for host, _ in placed), tuple(m for _, m in placed)


def crossings(schedules: list[Schedule], hosts: tuple[int, ...]) -> Counter[tuple[int, str, int]]:
    """Return how many messages leave and enter each host in each step."""
    found: Counter[tuple[int, str, int]] = Counter()
    for schedule in schedules:
        here = hosts[schedule.rank]
        for i, step in enumerate(schedule):
            if step.send_to is not None and hosts[step.send_to] != here:
                found[here, "out", i] += 1
            if step.recv_from is not None and hosts[step.recv_from] != here:
                found[here, "in", i] += 1
    return found


def test_examples() -> None:
    result = doctest.testmod(ringorder)
    assert result.attempted
    assert not result.failed


@given(placed=ranks)
def test_ranks_of_a_host_are_neighbours_and_the_last_has_data(placed: list[tuple[int, int]]) -> None:
    hosts, counts = apart(placed)
    order = node_order(hosts, counts)
    assert sorted(order) == list(range(len(hosts)))
    around = [hosts[r] for r in order]
    runs = [i for i in range(len(around)) if i == 0 or around[i - 1] != around[i]]
    assert len(runs) == len(set(hosts))
    for end in [*(start - 1 for start in runs[1:]), len(order) - 1]:
        host = around[end]
        assert counts[order[end]] or not any(m for h, m in placed if h == host)


@given(placed=ranks, nblocks=st.integers(1, 6))
def test_a_host_sends_and_receives_one_message_a_round(placed: list[tuple[int, int]], nblocks: int) -> None:
    hosts, counts = apart(placed)
    p, order = len(hosts), node_order(hosts, counts)
    schedules = [ring.pipelined_ring(p, r, nblocks=nblocks, counts=counts, order=order) for r in range(p)]
    verify(schedules, postconditions.postcondition("allgatherv", p, schedules[0].parts))
    assert simulate(schedules).rounds == ring.ring_rounds(counts, nblocks, order)
    assert max(crossings(schedules, hosts).values(), default=0) <= 1


def test_without_it_scattered_ranks_crowd_their_hosts() -> None:
    hosts, counts = (0, 1, 2) * 4, (6,) * 12
    scattered = [ring.pipelined_ring(12, r, nblocks=2, counts=counts) for r in range(12)]
    assert max(crossings(scattered, hosts).values()) == 4


def test_the_figure_of_the_paper() -> None:
    # Figure 1: 1, 5, 2, 1, 1, 1 processes on the nodes.
    hosts = (0, *(1,) * 5, 2, 2, 3, 4, 5)
    assert node_order(hosts, (1,) * 11) == tuple(range(11))


@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=12).map(tuple), nblocks=st.integers(1, 9))
def test_full_blocks_are_of_one_size_but_the_last(counts: tuple[int, ...], nblocks: int) -> None:
    p = len(counts)
    full, even = (
        [ring.pipelined_ring(p, r, nblocks=nblocks, counts=counts, full_blocks=full) for r in range(p)]
        for full in (True, False)
    )
    assert [list(s) for s in full] == [list(s) for s in even]
    assert full[0].parts == even[0].parts
    size = -(-max(counts) // nblocks) or 1
    cut = np.diff(bounds(full[0], counts)).tolist()
    for m, n in zip(counts, full[0].parts, strict=True):
        mine, cut = cut[:n], cut[n:]
        assert sum(mine) == m
        if p > 1:
            assert mine == [min(size, m - b * size) for b in range(n)]


def test_full_blocks_stay_full_backwards_and_among_others() -> None:
    counts = (7, 4, 0)
    one = ring.pipelined_ring(3, 1, nblocks=2, counts=counts, full_blocks=True)
    for schedule in one, reverse(one), relabel(one, (5, 6, 7), 8):
        assert np.diff(bounds(schedule, counts)).tolist() == [4, 3, 4]
    even = ring.pipelined_ring(3, 1, nblocks=2, counts=(9, 5, 0))
    assert np.diff(bounds(even, (9, 5, 0))).tolist() == [4, 5, 5]


@pytest.mark.parametrize("p", [5772, 65536])
def test_rounds_at_the_sizes_of_the_paper(p: int) -> None:
    counts = distributions.parts("geometric", 64 * p, p)
    blocks = tuple(-(-m // 32768) for m in counts)
    assert min(blocks) == 1
    assert ring.ring_rounds(blocks, max(blocks)) == sum(blocks) - 1
