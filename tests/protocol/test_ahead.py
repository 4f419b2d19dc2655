"""Rounds that overlap: the next receive is posted early, and with `lookahead` a sender does not wait for completion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ringcast import SUM, collectives
from ringcast.algorithms.network import Network
from ringcast.bootstrap.in_process import drive_together, simulated_endpoints
from ringcast.collectives.stage import Choice, Group
from ringcast.errors import PeerFailed, RingcastError
from ringcast.protocol.operations import SEGMENT, Operation
from ringcast.schedules.schedule import Combine, Slots, Step, independent
from ringcast.wire.control_messages import Bye, notice_frames
from ringcast.wire.header import Kind
from support.protocol_net import NONCE, Buffer, Net, check_quiet, content

SIZE = 1000


def two_rounds(lookahead: int = 0) -> tuple[Net, list[Operation], Buffer, Buffer]:
    """Rank 0 has posted a receive from rank 1, the one from rank 2 after it, and a send to rank 3."""
    net = Net(4, lookahead=lookahead)
    ops = net.begin(granted=True)
    first, second = Buffer(SIZE), Buffer(SIZE)
    net.ranks[0].receive(ops[0], 1, first)
    net.ranks[0].send(ops[0], 3, [memoryview(content(0, 3, 0, SIZE))])
    net.ranks[0].receive(ops[0], 2, second, ahead=True)
    net.collect()
    return net, ops, first, second


def test_the_next_round_is_granted_when_this_one_has_arrived_though_its_send_has_not_left() -> None:
    net, ops, first, second = two_rounds()
    assert (net.kinds(0, 1), net.kinds(0, 2)) == ([Kind.CTS], [])
    net.ranks[1].send(ops[1], 0, [memoryview(content(1, 0, 0, SIZE))])
    net.run()
    assert first.data == content(1, 0, 0, SIZE)
    assert net.kinds(0, 2) == [Kind.CTS]
    assert {t.peer for t in ops[0].pending} == {3}  # nobody waits for the next round yet
    net.ranks[2].send(ops[2], 0, [memoryview(content(2, 0, 0, SIZE))])
    net.run()
    assert second.data == content(2, 0, 0, SIZE)
    assert ops[0].ahead is None  # it is complete before its round begins
    net.ranks[0].catch_up(ops[0])
    net.ranks[3].receive(ops[3], 0, Buffer(SIZE))
    net.run()
    assert not any(op.pending for op in ops)
    for protocol, op in zip(net.ranks, ops, strict=True):
        protocol.end(op)
    check_quiet(net)


def test_a_round_that_begins_waits_for_what_was_posted_ahead() -> None:
    net, ops, _, _ = two_rounds()
    net.ranks[3].receive(ops[3], 0, Buffer(SIZE))
    net.ranks[1].send(ops[1], 0, [memoryview(content(1, 0, 0, SIZE))])
    net.run()
    assert not ops[0].pending
    net.ranks[0].catch_up(ops[0])
    assert {t.peer for t in ops[0].pending} == {2}
    assert ops[0].ahead is None


def test_with_lookahead_the_next_round_is_granted_at_once() -> None:
    net, _, _, _ = two_rounds(lookahead=SIZE)
    assert (net.kinds(0, 1), net.kinds(0, 2)) == ([Kind.CTS], [Kind.CTS])


def test_giving_up_tells_the_peer_of_the_next_round_too() -> None:
    net, ops, _, _ = two_rounds()
    net.ranks[0].fail(ops[0], ValueError("no more"))
    assert net.kinds(0, 2)[-1] == Kind.REFUSE
    net.run()
    assert all(isinstance(op.error, RingcastError) for op in ops[1:])
    check_quiet(net)


def test_a_rank_that_has_left_is_noticed_when_its_round_begins() -> None:
    net, ops, _, _ = two_rounds()
    net.ranks[3].receive(ops[3], 0, Buffer(SIZE))
    net.ranks[1].send(ops[1], 0, [memoryview(content(1, 0, 0, SIZE))])
    net.run()
    net.inject(0, *notice_frames(Bye(2, 0), NONCE))
    assert ops[0].error is None
    net.ranks[0].catch_up(ops[0])
    assert isinstance(ops[0].error, PeerFailed)
    assert ops[0].error.peer == 2


@pytest.mark.parametrize(("lookahead", "waited"), [(0, 3), (SIZE - 1, 3), (SIZE, 2), (2 * SIZE, 1), (3 * SIZE, 0)])
def test_a_sender_waits_for_completion_of_all_but_lookahead_bytes(lookahead: int, waited: int) -> None:
    net = Net(4, lookahead=lookahead)
    ops = net.begin(granted=True)
    for peer in (1, 2, 3):
        net.ranks[peer].receive(ops[peer], 0, Buffer(SIZE))
        net.collect()
        net.step(peer, 0)
        net.ranks[0].send(ops[0], peer, [memoryview(content(0, peer, 0, SIZE))])
    assert len(ops[0].pending) == waited
    net.run()
    assert not ops[0].pending
    for protocol, op in zip(net.ranks, ops, strict=True):
        protocol.end(op)
    check_quiet(net)


def test_a_message_of_several_windows_is_waited_for_until_all_of_it_was_sent() -> None:
    net = Net(2, lookahead=100 * SEGMENT)
    ops = net.begin(granted=True)
    net.ranks[1].receive(ops[1], 0, Buffer(9 * SEGMENT))
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(9 * SEGMENT))])
    net.step(1, 0)
    assert ops[0].pending
    net.run()
    assert not ops[0].pending


def test_giving_up_takes_back_what_nobody_waits_for() -> None:
    net = Net(2, lookahead=SIZE)
    ops = net.begin(granted=True)
    net.ranks[1].receive(ops[1], 0, Buffer(SIZE))
    net.collect()
    net.step(1, 0)
    net.ranks[0].send(ops[0], 1, [memoryview(bytes(SIZE))])
    assert net.ranks[0]._sending.trailing == SIZE
    net.ranks[0].fail(ops[0], ValueError("no more"))
    assert not net.ranks[0]._sending.trailing
    assert not net.ranks[0]._sending.transfers
    net.run()
    assert not ops[1].pending  # it was on its way, like an eager message
    assert net.ranks[0].dropped == {}


KINDS: list[Slots] = [
    (),
    (0,),
    (2,),
    (0, 2),
    range(2),
    range(1, 3),
    range(2, 4),
    range(3, -1, -2),
    np.array([3, 0]),
    np.array([1]),
]


def test_rounds_are_independent_if_the_second_receives_into_nothing_that_the_first_uses() -> None:
    for sent, received, after in itertools.product(KINDS, repeat=3):
        step, following = Step(1, sent, 1, received), Step(1, (), 1, after)
        used = {int(slot) for slots in (sent, received) for slot in slots}
        assert independent(step, following) == used.isdisjoint(int(slot) for slot in after)


def test_rounds_with_local_steps_are_not_independent() -> None:
    assert not independent(Step(1, (0,), 1, (1,)), Step(1, (), 1, (2,), local=(Combine(0, 1, 2),)))


def simulated_time(p: int, nbytes: int, nblocks: int, latency: float, lookahead: int) -> float:
    """Return the seconds that a bcast and a reduce of int64 take, checked against their result."""
    wire, endpoints = simulated_endpoints(p, alpha=latency, beta=1e-7)
    groups = [Group(endpoint, 1, Network(2 * latency, 1e-7, 0, 0)) for endpoint in endpoints]
    for endpoint in endpoints:
        endpoint.protocol.lookahead = lookahead
    values = [np.arange(nbytes // 8, dtype=np.int64) * (rank + 1) for rank in range(p)]
    root, choice = p - 1, Choice("circulant", nblocks)
    got = drive_together(
        wire, endpoints, [collectives.broadcast.bcast(g, values[g.rank].copy(), root, choice) for g in groups]
    )
    assert all(np.array_equal(value, values[root]) for value in got)
    steps = [collectives.reduce.reduce(g, values[g.rank], SUM, root, None, choice) for g in groups]
    assert np.array_equal(drive_together(wire, endpoints, steps)[root], sum(values))
    return wire.now


@pytest.mark.parametrize("p", [2, 3, 8, 9, 33])
@pytest.mark.parametrize("lookahead", [0, 1 << 14, 1 << 20])
def test_results_do_not_depend_on_how_rounds_overlap(p: int, lookahead: int) -> None:
    simulated_time(p, 200_000, 20, 1e-3, lookahead)


def dead_time(p: int, lookahead: int) -> float:
    """Return how long the links are idle in each round, in latencies."""
    nbytes, nblocks, latency = 1_600_000, 50, 2e-3
    q = (p - 1).bit_length()
    rounds = 2 * (nblocks - 1 + q)
    wire_time = rounds * nbytes / nblocks * 1e-7
    return (simulated_time(p, nbytes, nblocks, latency, lookahead) - wire_time) / rounds / latency


@pytest.mark.parametrize("p", [8, 9])
def test_what_a_round_costs_beside_its_bytes(p: int) -> None:
    assert 2.0 <= dead_time(p, 0) <= 2.6  # a grant, then the data; it was 2.9 when the grant waited for the send
    assert dead_time(p, 1 << 17) <= 1.6  # long fat links: the grant is there before it is needed


@pytest.mark.parametrize("lookahead", [0, SIZE])
def test_a_message_without_bytes_is_waited_for_unless_something_may_be_missing(lookahead: int) -> None:
    net = Net(2, lookahead=lookahead)
    ops = net.begin(granted=True)
    net.ranks[1].receive(ops[1], 0, Buffer(0))
    net.collect()
    net.step(1, 0)
    net.ranks[0].send(ops[0], 1, [memoryview(b"")])
    assert bool(ops[0].pending) == (lookahead == 0)
    net.run()
    assert not ops[0].pending
