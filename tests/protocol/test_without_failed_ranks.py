"""A job that continues: the failure of a rank ends the calls that need it, and no others."""

from __future__ import annotations

from itertools import permutations

import pytest

from ringcast.errors import PeerFailed, Revoked
from ringcast.protocol.matching import ANY
from ringcast.protocol.operations import SEGMENT, Operation
from ringcast.wire.call import Call
from ringcast.wire.control_messages import Bye, Failed, Revoke
from ringcast.wire.failure import Failure
from support.protocol_net import CALL, CONTEXT, LARGE, Net, Open, content, exchange, tell

DEAD = Failure("killed by SIGKILL")
SIZES = [0, 1, LARGE, 3 * SEGMENT]
RANKS = [2, 3, 5, 33]


def receive(net: Net, rank: int, source: int) -> tuple[Operation, Open]:
    """Post a receive of any tag."""
    op, sink = exchange(net, rank), Open()
    net.ranks[rank].receive(op, source, sink, tag=ANY)
    return op, sink


def send(net: Net, rank: int, dest: int, size: int) -> Operation:
    op = exchange(net, rank)
    net.ranks[rank].send(op, dest, [memoryview(content(rank, dest, 0, size))], tag=1)
    return op


def lose(net: Net, rank: int) -> None:
    """Let the control plane declare a rank failed."""
    for peer in range(len(net.ranks)):
        if peer != rank:
            tell(net, peer, Failed(rank, DEAD))


def arrive(net: Net, failed: int) -> None:
    """Deliver all messages but those to and from the failed rank."""
    while links := [link for link in net.waiting() if failed not in link]:
        net.step(*links[0])


def ended_by(op: Operation, failed: int) -> bool:
    """Return whether a call is over because of the failed rank, and of no other."""
    assert not op.pending
    return isinstance(op.lost, PeerFailed) and op.lost.peer == failed and op.error is None


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_calls_with_the_failed_rank_end_and_all_others_go_on(p: int, size: int, when: str) -> None:
    net, dead = Net(p, continues=True), p - 1
    if when == "before":
        lose(net, dead)
    calls = {rank: (receive(net, rank, dead), send(net, rank, dead, size)) for rank in range(dead)}
    pairs = [(a, b) for a in range(min(dead, 5)) for b in range(min(dead, 5)) if a != b]
    between = [(send(net, a, b, size), *receive(net, b, a), content(a, b, 0, size)) for a, b in pairs]
    if when == "after":
        lose(net, dead)
    arrive(net, dead)
    for rank, ((wanted, _), sent) in calls.items():
        assert ended_by(wanted, dead)
        assert ended_by(sent, dead) or (when == "after" and size <= 1 and not sent.pending)
        assert not net.ranks[rank].revoked(CONTEXT)
    for sent, wanted, sink, data in between:
        assert not sent.pending
        assert not wanted.pending
        assert sent.lost is wanted.lost is None
        assert sink.data == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", [*permutations(["post", "lose", "send"])])
def test_a_receive_from_any_source_ends_unless_the_failure_is_acknowledged(size: int, order: tuple[str, ...]) -> None:
    for acknowledged in (False, True):
        net = Net(3, continues=True)
        for step in order:
            if step == "post":
                op, sink = receive(net, 0, ANY)
            elif step == "send":
                send(net, 1, 0, size)
                arrive(net, 2)
            else:
                lose(net, 2)
                if acknowledged:
                    net.ranks[0].acknowledge(CONTEXT, frozenset({2}))
        arrive(net, 2)
        met_before = order[2] == "lose" or order.index("send") < order.index("post")
        if met_before or (acknowledged and order.index("lose") < order.index("post")):
            assert sink.data == content(1, 0, 0, size)
            assert op.lost is None
            assert not op.pending
        else:
            assert ended_by(op, 2)


def test_a_receive_from_any_source_goes_on_when_it_is_posted_after_the_acknowledgement() -> None:
    net = Net(3, continues=True)
    lose(net, 2)
    assert ended_by(receive(net, 0, ANY)[0], 2)
    net.ranks[0].acknowledge(CONTEXT, frozenset({2}))
    op, sink = receive(net, 0, ANY)
    assert op.pending
    send(net, 1, 0, 5)
    arrive(net, 2)
    assert sink.data == content(1, 0, 0, 5)


@pytest.mark.parametrize("p", RANKS)
def test_a_collective_gives_the_communicator_up_for_all(p: int) -> None:
    net, dead = Net(p, continues=True), p - 1
    waiting = [receive(net, rank, 0)[0] for rank in range(1, dead)]
    lose(net, dead)
    assert all(op.pending for op in waiting)
    with pytest.raises(PeerFailed) as caught:
        net.ranks[0].begin(CONTEXT, CALL)
    assert caught.value.peer == dead
    assert net.ranks[0].found == [(CONTEXT, dead)]  # the others have to hear of it
    for rank in range(1, dead):
        tell(net, rank, Revoke(0, CONTEXT, DEAD.cause, dead))
    for op in waiting:
        assert isinstance(op.error, PeerFailed)
        assert op.error.peer == dead
    with pytest.raises(Revoked):
        net.ranks[0].begin(CONTEXT, Call("sendrecv"), p2p=True)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("why", ["a collective is under way", "the communicator is strict", "this rank has found it"])
def test_all_calls_of_the_communicator_end(p: int, why: str) -> None:
    net, dead = Net(p, continues=True), p - 1
    if why == "the communicator is strict":
        for protocol in net.ranks:
            protocol.enrol(CONTEXT, range(p), strict=True)
    elif why == "a collective is under way":
        net.begin()
    waiting = {rank: receive(net, rank, 0)[0] for rank in range(1, dead)}
    if why == "this rank has found it":
        for rank in range(dead):
            net.ranks[rank].lose(dead, "the link broke")
            assert (CONTEXT, dead) in net.ranks[rank].found or net.ranks[rank]._contexts[CONTEXT].members is None
    else:
        lose(net, dead)
    for rank, op in waiting.items():
        assert isinstance(op.error, PeerFailed)
        assert net.ranks[rank].revoked(CONTEXT)


@pytest.mark.parametrize("p", [3, 5])
def test_where_the_job_ends_with_a_failed_rank_all_calls_end(p: int) -> None:
    net, dead = Net(p), p - 1
    waiting = {rank: receive(net, rank, 0)[0] for rank in range(1, dead)}
    lose(net, dead)
    for rank, op in waiting.items():
        assert isinstance(op.error, PeerFailed)
        assert net.ranks[rank].revoked(CONTEXT)


@pytest.mark.parametrize("continues", [False, True])
def test_a_rank_that_has_left_ends_the_calls_that_need_it(continues: bool) -> None:
    net = Net(3, continues=continues)
    from_left, other = receive(net, 0, 2)[0], receive(net, 0, 1)[0]
    for rank in (0, 1):
        tell(net, rank, Bye(2, 0))
    assert isinstance(from_left.lost if continues else from_left.error, PeerFailed)
    assert isinstance(other.error, PeerFailed) != continues


@pytest.mark.parametrize("size", [LARGE, 3 * SEGMENT])
def test_a_message_of_which_the_rest_is_lost_ends_its_receive(size: int) -> None:
    """The request has come, or also a part of the data."""
    for steps in range(1, 4):
        net = Net(3, continues=True)
        op, _ = receive(net, 0, 2)
        send(net, 2, 0, size)
        for _ in range(steps):
            if links := [link for link in net.waiting() if link[1] == 0 or steps > 1]:
                net.step(*links[0])
        if not op.pending:
            break  # all of it has come
        lose(net, 2)
        assert ended_by(op, 2)
        assert not net.ranks[0]._receiving.transfers


@pytest.mark.parametrize("source", [ANY, 2])
def test_a_small_message_that_has_come_can_be_received_after_its_sender_has_failed(source: int) -> None:
    net = Net(3, continues=True)
    send(net, 2, 0, 5)
    send(net, 2, 0, LARGE)
    net.run()
    lose(net, 2)
    assert net.ranks[0].look(CONTEXT, source, ANY, Open())
    op, sink = receive(net, 0, source)
    assert not op.pending
    assert op.lost is None
    assert sink.data == content(2, 0, 0, 5)
    assert ended_by(receive(net, 0, source)[0], 2)  # the rest of the other one is lost


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_other_half_of_an_exchange_ends_before_it_raises(when: str) -> None:
    net = Net(3, continues=True)
    if when == "before":
        lose(net, 2)
    op, sink = exchange(net, 0), Open()
    net.ranks[0].send(op, 2, [memoryview(bytes(LARGE))], tag=1)
    net.ranks[0].receive(op, 1, sink, tag=1)
    if when == "after":
        lose(net, 2)
    assert len(op.pending) == 1
    send(net, 1, 0, LARGE)
    arrive(net, 2)
    assert sink.data == content(1, 0, 0, LARGE)
    assert ended_by(op, 2)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("source", [ANY, 2])
def test_a_probe_ends_and_leaves_nothing(source: int, when: str) -> None:
    net = Net(3, continues=True)
    protocol = net.ranks[0]
    if when == "before":
        lose(net, 2)
    op = exchange(net, 0)
    protocol.await_message(op, source, ANY, Open())
    if when == "after":
        lose(net, 2)
    assert ended_by(op, 2)
    protocol.end(op)
    assert protocol.under_way() == []
    assert protocol._contexts[CONTEXT].probes == []
