"""Ranks that wait ask each other: it shows what was lost, and is not taken for progress."""

from __future__ import annotations

import pytest

from ringcast.errors import CollectiveMismatch, CollectiveTimeout, PeerFailed
from ringcast.protocol.operations import Operation
from ringcast.wire import header
from ringcast.wire.codec import encode
from ringcast.wire.control_messages import notice_frames
from ringcast.wire.header import ECHO, PROBE, Kind
from ringcast.wire.reports import Deadlock, Finding, Mismatch
from support.protocol_net import CALL, CONTEXT, NONCE, Buffer, Net, check_quiet


def two(p2p: bool) -> tuple[Net, list[Operation]]:
    """Rank 0 waits for a message of rank 1."""
    net = Net(2)
    ops = net.begin(p2p=p2p)
    net.ranks[0].receive(ops[0], 1, Buffer(5), tag=0)
    return net, ops


@pytest.mark.parametrize("p2p", [False, True])
def test_the_answer_shows_that_the_last_message_was_lost(p2p: bool) -> None:
    net, ops = two(p2p)
    net.ranks[1].send(ops[1], 0, [memoryview(b"hello")], tag=0)
    net.collect()
    net.links[1, 0].clear()
    net.run()
    assert ops[0].error is None
    net.ranks[0].probe([ops[0]])
    net.run()
    assert isinstance(ops[0].error, PeerFailed)
    assert "1 messages before number 1 are missing" in str(ops[0].error)


@pytest.mark.parametrize("p2p", [False, True])
def test_asking_is_answered_once_and_counted_apart(p2p: bool) -> None:
    net, ops = two(p2p)
    for times in range(1, 4):
        net.ranks[0].probe([ops[0]])
        net.run()
        assert [h.flags for _, _, h in net.log] == [PROBE, ECHO] * times
        assert [protocol.keepalives for protocol in net.ranks] == [times, times]
        for protocol, op in zip(net.ranks, ops, strict=True):
            said = protocol.report([op], every=True, seconds=1.0, times=times)
            assert not any([*said.sent.values(), *said.seen.values()])
    net.ranks[1].send(ops[1], 0, [memoryview(b"hello")], tag=0)
    net.run()
    assert not ops[0].pending
    assert net.ranks[0].report([ops[0]], every=True, seconds=1.0, times=1).seen == {1: 1}
    assert net.ranks[1].report([ops[1]], every=True, seconds=1.0, times=1).sent == {0: 1}
    for protocol, op in zip(net.ranks, ops, strict=True):
        protocol.end(op)
    check_quiet(net)


def test_a_peer_of_which_two_messages_are_missing_is_asked_once() -> None:
    net, ops = two(p2p=False)
    net.ranks[0].receive(ops[0], 1, Buffer(5))
    net.ranks[0].probe([ops[0]])
    assert net.kinds(0, 1) == [Kind.CTS]


def tell(net: Net, found: Finding) -> None:
    net.inject(found.rank, *notice_frames(found, NONCE))


@pytest.mark.parametrize("p2p", [False, True])
def test_a_deadlock_ends_the_call_it_is_about(p2p: bool) -> None:
    net, ops = two(p2p)
    tell(net, Deadlock(0, CONTEXT, ops[0].number, 2.5, (0, 1), ("this", "that")))
    error = ops[0].error
    assert isinstance(error, CollectiveTimeout)
    assert (error.cycle, error.calls, error.seconds, error.waiting_for) == ((0, 1), ("this", "that"), 2.5, (1,))
    assert net.waiting() == []  # the other one is told by the control plane


def test_a_deadlock_of_a_call_that_has_ended_is_not_heard() -> None:
    net, ops = two(p2p=False)
    for number, context in ((ops[0].number + 1, CONTEXT), (0, CONTEXT), (ops[0].number, CONTEXT + 1)):
        tell(net, Deadlock(0, context, number, 2.5, (0, 1), ()))
    assert ops[0].error is None
    assert net.ranks[0].dropped["late finding"] == 3


@pytest.mark.parametrize("ended", [False, True])
def test_a_mismatch_that_was_found_from_outside_is_complete(ended: bool) -> None:
    net = Net(2)
    op = net.ranks[0].begin(CONTEXT, CALL, site=("/path/to/prog.py", 12))
    if ended:
        net.ranks[0].end(op)
    else:
        net.ranks[0].receive(op, 1, Buffer(5))
    tell(net, Mismatch(0, CONTEXT, op.number, 1, "", "", "barrier()", "prog.py:30"))
    with pytest.raises(CollectiveMismatch) as raised:
        net.ranks[0].begin(CONTEXT, CALL)
    error = raised.value
    assert (error.mine, error.theirs, error.complete) == (str(CALL), "barrier()", True)
    assert (error.my_site, error.their_site) == ("prog.py:12", "prog.py:30")


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]", encode(Deadlock(0, 1, 2, 2.5, (0, 1), ()))[:-1]])
def test_a_notice_that_nobody_understands_is_dropped(data: bytes) -> None:
    net, ops = two(p2p=False)
    net.inject(0, header.to_itself(Kind.NOTICE, NONCE), data)
    assert net.ranks[0].dropped["malformed"] == 1
    assert ops[0].error is None
