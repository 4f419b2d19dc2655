"""How many messages a rank offers to one that is far behind: that keeps only so much of them."""

from __future__ import annotations

import pytest

from ringcast.protocol.machine import Protocol
from ringcast.protocol.operations import SEGMENT, Operation
from ringcast.protocol.sending import MOST_OFFERED
from ringcast.transports.base import MemoryArrival
from ringcast.wire.call import Call
from support.loans import MemoryLoan
from support.protocol_net import Buffer

SIZE = 70_000  # bytes of a message that does not go eagerly


class Pair:
    """Two ranks that lend to each other; the second one is late."""

    def __init__(self) -> None:
        self.ranks = [Protocol(rank, 2, 7, lenders=(1 - rank,)) for rank in range(2)]
        for protocol in self.ranks:
            protocol.enrol(1, range(2))

    def begin(self, rank: int) -> Operation:
        op = self.ranks[rank].begin(1, Call("bcast"))
        op.lends = True
        return op

    def pass_on(self) -> None:
        """Let all messages arrive that are under way."""
        while self.ranks[0].outbox or self.ranks[1].outbox:
            for rank, protocol in enumerate(self.ranks):
                while protocol.outbox:
                    peer, frames, _, lent = protocol.outbox.popleft()
                    assert peer == 1 - rank
                    loan = MemoryLoan(lent) if lent else None
                    self.ranks[peer].handle(MemoryArrival([bytes(frame) for frame in frames], loan))


def test_a_peer_that_is_late_is_not_given_more_than_it_keeps() -> None:
    pair, data = Pair(), memoryview(bytes(SIZE))
    sender, receiver = pair.ranks
    begun = [pair.begin(0) for _ in range(100)]
    for op in begun:
        for _ in range(63):
            if not op.pending:  # else the schedule waits there
                sender.send(op, 1, [data])
    offered = sum(len(op.lending) for op in begun)
    assert 500 < offered < 2000
    assert sum(len(op.pending) for op in begun) <= 100  # one of each operation waits beside these
    pair.pass_on()
    assert not receiver.failed
    for op in begun:
        theirs = pair.begin(1)
        for _ in range(len(op.lending) + len(op.pending)):
            receiver.receive(theirs, 0, Buffer(SIZE))
        pair.pass_on()
        assert not op.lending
        assert not op.pending
        receiver.end(theirs)
    assert not any(sender._budget.asked)


@pytest.mark.parametrize("settled", [False, True])
def test_offers_that_are_dropped_make_room(settled: bool) -> None:
    pair, data = Pair(), memoryview(bytes(SIZE))
    sender, _ = pair.ranks
    op = pair.begin(0)
    while not op.pending:
        sender.send(op, 1, [data])
    assert sender._budget.asked[1] >= MOST_OFFERED
    if settled:
        sender.settle(op)
        assert not op.lending
    sender.fail(op, ValueError("no more"))
    assert sender._budget.asked[1] == 0
    assert not sender._sending.transfers


def test_a_message_of_many_frames_takes_more_room() -> None:
    pair = Pair()
    op = pair.begin(0)
    frames = [memoryview(bytes(8))] * (SEGMENT // 8)
    while not op.pending:
        pair.ranks[0].send(op, 1, frames)
    assert len(op.lending) <= 2
