"""Full-lane algorithms, and rings in the order of the hosts: what they achieve, and how little leaves a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from ringcast.algorithms import ALGORITHMS, Algorithm, CallFacts, Params, build
from ringcast.algorithms.cost import choose, predict
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.analysis.postconditions import postcondition
from ringcast.analysis.rounds import Transfer, messages
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.schedules.placement import Hosts, hosts_of, leaving, members
from ringcast.schedules.schedule import Schedule
from support.beds import make_bed, run_ranks

LANES = [named["full_lane"] for named in ALGORITHMS.values() if "full_lane" in named]
AROUND = [
    entry
    for named in ALGORITHMS.values()
    for name, entry in named.items()
    if name.startswith("pipelined_ring") or name == "linear_pipeline"
]
EVEN = [(2, 2), (2, 3), (3, 2), (4, 4), (5, 3), (3, 5), (8, 2), (2, 8), (11, 3)]  # hosts, ranks on each
LARGE = [(13, 5), (2, 33)]
BYTES = Network(alpha=0.0, beta=1.0, gamma=0.0, frame=0.0, local=0.0)


def placements(hosts: int, each: int) -> Iterator[Hosts]:
    """Ranks of a host side by side; one after the other on the next host; anyhow."""
    one_by_one = [h for h in range(hosts) for _ in range(each)]
    yield hosts_of(one_by_one)
    yield hosts_of(list(range(hosts)) * each)
    yield hosts_of(np.random.default_rng([hosts, each]).permutation(one_by_one).tolist())


def calls(entry: Algorithm, hosts: Hosts) -> Iterator[Params]:
    p = len(hosts)
    for n in (1, 3) if entry.blocks else (1,):
        roots = (0, p - 1, p // 2) if entry.collective in ("bcast", "reduce") else (0,)
        for root in roots:
            yield Params(p, root, n, hosts=hosts)
    if entry.collective in ("allgatherv", "reduce_scatter"):
        yield Params(p, counts=tuple(7 * j % 5 * (j % 3) for j in range(p)), hosts=hosts)


def schedules_of(entry: Algorithm, params: Params) -> list[Schedule]:
    return [build(entry.collective, entry.name, params, r) for r in range(params.size)]


def check(entry: Algorithm, params: Params) -> None:
    schedules = schedules_of(entry, params)
    empty = frozenset(j for j, n in enumerate(params.counts) if n == 0)
    verify(schedules, postcondition(entry.collective, params.size, schedules[0].parts, root=params.root, empty=empty))
    assert simulate(schedules).rounds == entry.rounds(params), params


def far(entry: Algorithm, params: Params) -> list[Transfer]:
    """Return the messages that leave their host."""
    sent = messages(schedules_of(entry, params))
    return [m for m in sent if params.hosts[m.source] != params.hosts[m.dest]]


@pytest.mark.parametrize(("hosts", "each"), [*EVEN, *(pytest.param(*large, marks=pytest.mark.long) for large in LARGE)])
@pytest.mark.parametrize("entry", LANES, ids=lambda entry: entry.collective)
def test_full_lanes_keep_their_promise_wherever_ranks_are(entry: Algorithm, hosts: int, each: int) -> None:
    for placement in placements(hosts, each):
        for params in calls(entry, placement):
            check(entry, params)


@pytest.mark.parametrize("hosts", [(0, 0, 1), (0, 1, 0, 2, 1, 0), (0, 0, 1, 1, 2, 3, 3, 3), (0,) * 20 + (1,) * 13])
@pytest.mark.parametrize("entry", AROUND, ids=lambda entry: f"{entry.collective}-{entry.name}")
def test_rings_and_rows_keep_their_promise_and_one_message_leaves_a_host_at_a_time(
    entry: Algorithm, hosts: Hosts
) -> None:
    for params in calls(entry, hosts):
        check(entry, params)
        out = Counter((m.round, params.hosts[m.source]) for m in far(entry, params))
        assert max(out.values(), default=0) <= 1


@pytest.mark.parametrize("root", [0, 5])
def test_each_host_receives_a_broadcast_once(root: int) -> None:
    for hosts, each in EVEN + LARGE:
        for placement in placements(hosts, each):
            params = Params(hosts * each, root % (hosts * each), 3, hosts=placement)
            into = Counter(params.hosts[m.dest] for m in far(ALGORITHMS["bcast"]["full_lane"], params) for _ in m.slots)
            whole = each * params.nblocks
            assert into == {h: whole for h in range(hosts) if h != params.hosts[params.root]}


def test_each_host_receives_each_part_of_an_allgather_once() -> None:
    for hosts, each in EVEN + LARGE:
        for placement in placements(hosts, each):
            params = Params(hosts * each, hosts=placement)
            sent = far(ALGORITHMS["allgatherv"]["full_lane"], params)
            into = Counter((params.hosts[m.dest], slot) for m in sent for slot in m.slots)
            assert set(into.values()) <= {1}
            assert len(into) == hosts * (hosts - 1) * each


@pytest.mark.parametrize("entry", LANES, ids=lambda entry: entry.collective)
def test_where_hosts_are_not_equal_the_reason_is_told(entry: Algorithm) -> None:
    with pytest.raises(ValueError, match=r"full_lane.*as many ranks on each host, not 2, 1"):
        choose(entry.collective, CallFacts(size=3, nbytes=24, hosts=(0, 0, 1)), NETWORKS["tcp"], algorithm="full_lane")


def test_hosts_are_told_by_their_names() -> None:
    assert hosts_of([]) == hosts_of(["a"]) == hosts_of("abc") == hosts_of("aaa") == ()
    assert hosts_of("abab") == (0, 1, 0, 1)
    assert members(hosts_of("baca")) == ((0,), (1, 3), (2,))


def test_how_many_messages_leave_a_host() -> None:
    for hosts in [(0, 0, 1), (0, 1, 0, 2, 1, 0), (0,) * 5 + (1,) * 3]:
        p = len(hosts)
        for distance in range(p):
            pairs = [(hosts[r], hosts[(r + distance) % p]) for r in range(p)]
            out = Counter(a for a, b in pairs if a != b)
            assert leaving(hosts, distance) == max(out.values(), default=0)


@pytest.mark.parametrize(("hosts", "each"), [(4, 4), (8, 2), (3, 5)])
def test_a_prediction_counts_what_shares_the_link_of_a_host(hosts: int, each: int) -> None:
    for placement in placements(hosts, each):
        for collective in ("bcast", "allgatherv", "allreduce", "reduce_scatter", "reduce", "allgather"):
            for name, entry in ALGORITHMS[collective].items():
                params = Params(len(placement), nblocks=4 if entry.blocks else 1, hosts=placement)
                if entry.fits(params):
                    continue
                schedules = schedules_of(entry, params)
                out = Counter[tuple[int, int]]()
                for message in far(entry, params):
                    out[message.round, placement[message.source]] += len(message.slots)
                rounds = {i for i, _ in out}
                needed = sum(max(out[i, host] for host in range(hosts)) for i in rounds)
                nslots = sum(schedules[0].parts)
                told = predict(collective, name, params, nslots, BYTES)
                # On the circulant graph the average over skips counts, though not all rounds weigh the same.
                assert told >= 0.85 * needed, f"{collective} by {name}: {told} < {needed}"


def test_several_ranks_on_a_host_use_all_lanes_by_default() -> None:
    hosts = hosts_of([r // 4 for r in range(32)])
    for collective in ("bcast", "reduce", "allgather", "reduce_scatter", "allreduce"):
        known, unknown = (
            choose(collective, CallFacts(size=32, nbytes=10**6 * 32, itemsize=8, hosts=h), NETWORKS["tcp"])[0]
            for h in (hosts, ())
        )
        assert known == "full_lane"
        assert unknown != "full_lane"


@pytest.mark.live
@pytest.mark.parametrize("places", [(0, 0, 1, 1, 2, 2), (0, 1, 2, 0, 1, 2), (2, 0, 1, 1, 0)])
def test_a_job_knows_which_ranks_share_a_host(places: tuple[int, ...]) -> None:
    with make_bed("3x1gbit") as bed:
        said = run_ranks(bed, "shared_hosts.py", *map(str, hosts_of(places)), hosts=places)
    assert said == ["ok\n"] * len(places)
