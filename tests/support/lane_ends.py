"""Ranks that share memory and have a lane each; and the same messages by the engine, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, TypeAlias
from unittest.mock import patch

from ringcast.bootstrap.in_process import LocalControl, SharedControl
from ringcast.engine.endpoint import Endpoint
from ringcast.protocol import compiled, lane
from ringcast.protocol.lane import ANY_SIZE, Lane
from ringcast.protocol.operations import Operation
from ringcast.transports.base import Frame
from ringcast.transports.memory.transport import ShmTransport
from ringcast.wire.call import Call
from ringcast.wire.header import P2P
from ringcast.wire.joined import join
from support import jobs, needs
from support.protocol_net import Buffer, Open

BUILDS = ("python", "compiled")
NONCE, CONTEXT, CALL = 5, 3, Call("allgather", dtype="uint8", shape=(9,), algorithm="ring")
EXCHANGE = Call("sendrecv")

Make: TypeAlias = "Callable[..., LaneEnds]"


def need(build: str) -> None:
    """Go on only where there are such lanes."""
    if build == "compiled":
        needs.compiled_part()


class LaneEnds:
    """Two ranks or more in one operation: `put` and `take` are those of lanes, `send` and `receive` of the engine.

    So are `put_to`, `offer_to`, `look`, `accept`, `fetch` and `settle`, and `send_to` and `receive_from`, of messages
    point-to-point.
    """

    def __init__(self, *builds: str) -> None:
        size = len(builds)
        self.transports: list[Any] = [t for t in jobs.shared(size) if isinstance(t, ShmTransport)]
        control = SharedControl(NONCE, self.transports)
        self.endpoints = [Endpoint(r, size, NONCE, t, LocalControl(r, control)) for r, t in enumerate(self.transports)]
        self.protocols: list[Any] = [endpoint.protocol for endpoint in self.endpoints]
        self.ops = [protocol.begin(CONTEXT, CALL) for protocol in self.protocols]
        self.lanes = [self._lane(rank, build) for rank, build in enumerate(builds)]

    def _lane(self, rank: int, build: str) -> Lane:
        with patch.object(lane, "Compiled", compiled.Compiled if build == "compiled" else None):
            opened = self.protocols[rank].lane(self.ops[rank], self.transports[rank].lanes)
        assert isinstance(opened, lane.PythonLane) == (build == "python")
        return opened

    def put(self, rank: int, peer: int, payload: Frame | None, joined: int = 0) -> bool:
        op = self.ops[rank]
        ordinal = op.sent.get(peer, 0)
        done = self.lanes[rank].put(peer, op.context, op.number, ordinal, op.fingerprint, payload, joined)
        op.sent[peer] = ordinal + done
        return done

    def take(self, rank: int, peer: int, total: int = ANY_SIZE, patience: float = 0.0) -> bytes | None:
        op, _ = self.ops[rank], self.transports[rank].lanes  # which ends the look at the last message of several frames
        ordinal = op.received.get(peer, 0)
        data = self.lanes[rank].take(peer, op.context, op.number, ordinal, op.fingerprint, total, patience)
        op.received[peer] = ordinal + (data is not None)
        return data

    def send(self, rank: int, peer: int, *frames: Frame | None) -> None:
        self.protocols[rank].send(self.ops[rank], peer, [memoryview(frame) for frame in frames if frame is not None])
        self.endpoints[rank].flush()

    def receive(self, rank: int, peer: int, total: int) -> bytes:
        sink, op = Buffer(total), self.ops[rank]
        self.protocols[rank].receive(op, peer, sink)
        self.endpoints[rank].progress(0.0)
        assert not op.pending
        return sink.data

    def put_to(self, rank: int, peer: int, tag: int, frames: Sequence[Frame]) -> bool:
        """Send some frames, which are joined if there are several."""
        payload, joined = (join(frames), len(frames)) if len(frames) > 1 else (frames[0] if frames else None, 0)
        return self.lanes[rank].put(peer, CONTEXT, P2P, tag, EXCHANGE.fingerprint, payload, joined)

    def look(self, rank: int, peer: int, tag: int, joined: int, patience: float = 0.0) -> bytes | None:
        _ = self.transports[rank].lanes  # as in `take`
        return self.lanes[rank].look(peer, CONTEXT, tag, EXCHANGE.fingerprint, joined, patience)

    def accept(self, rank: int, peer: int) -> None:
        self.lanes[rank].accept(peer)

    def offer_to(self, rank: int, peer: int, tag: int, frames: Sequence[Frame]) -> bool:
        return self.lanes[rank].offer(peer, CONTEXT, P2P, tag, EXCHANGE.fingerprint, frames)

    def fetch(self, rank: int, peer: int, memory: bytearray) -> bool:
        return self.lanes[rank].fetch(peer, memory)

    def settle(self, rank: int, patience: float = 0.0) -> bool:
        return self.lanes[rank].settle(CONTEXT, P2P, EXCHANGE.fingerprint, patience)

    def send_to(self, rank: int, peer: int, tag: int, frames: Sequence[Frame]) -> Operation:
        """Return the operation, which is over unless it has offered the message."""
        protocol = self.protocols[rank]
        op: Operation = protocol.begin(CONTEXT, EXCHANGE, p2p=True)
        protocol.send(op, peer, [memoryview(frame) for frame in frames], tag=tag)
        if not op.pending:
            protocol.end(op)
        self.endpoints[rank].flush()
        return op

    def hand_over(self, rank: int, peer: int, tag: int, frames: Sequence[Frame]) -> Operation:
        """Let the engine await the reader of what the lane has offered; return the operation."""
        protocol = self.protocols[rank]
        op: Operation = protocol.begin(CONTEXT, EXCHANGE, p2p=True)
        for _, transfer in self.lanes[rank].offered():
            protocol.lent(op, peer, tag, transfer, [memoryview(frame) for frame in frames])
        protocol.settle(op)
        return op

    def receive_from(self, rank: int, peer: int, tag: int) -> list[bytes]:
        sink, protocol = Open(), self.protocols[rank]
        op = protocol.begin(CONTEXT, EXCHANGE, p2p=True)
        protocol.receive(op, peer, sink, tag=tag)
        self.endpoints[rank].progress(0.0)
        assert not op.pending
        protocol.end(op)
        return [bytes(piece) for piece in sink.pieces]

    def segment(self, rank: int) -> Any:
        return self.transports[rank]._own

    def ledger(self, rank: int) -> Any:
        return self.protocols[rank]._ledger

    def start(self, source: int, peer: int, place: int, used: int = 0) -> None:
        """Set a ring's counters: `place` bytes were written so far, and `used` of them are not read yet."""
        self.segment(peer).tails[source], self.segment(peer).heads[source] = place, place - used

    def words(self) -> list[list[int]]:
        """Return all words that a message changes."""
        found = []
        for rank, protocol in enumerate(self.protocols):
            tables = self.segment(rank)
            found += [[*words] for words in (*self.ledger(rank).words(), tables.tails, tables.heads, tables.wanting)]
            found.append([*protocol.payload])
        return found

    def ring(self, source: int, peer: int) -> bytes:
        """Return what is in a ring."""
        return bytes(self.segment(peer).ring(source))

    def close(self) -> None:
        for transport in self.transports:
            transport.close(0.0)


def assert_alike(mine: LaneEnds, theirs: LaneEnds, rings: Sequence[tuple[int, int]] = ((0, 1), (1, 0))) -> None:
    """Assert that rings and words are the same, byte for byte."""
    assert mine.words() == theirs.words()
    for source, peer in rings:
        assert mine.ring(source, peer) == theirs.ring(source, peer), f"the ring from rank {source} to rank {peer}"


def makes() -> Iterator[Make]:
    """Yield a maker of such ranks by the builds of their lanes, and close them at the end: a fixture."""
    with ExitStack() as stack:

        def made(*builds: str) -> LaneEnds:
            for build in builds:
                need(build)
            return stack.enter_context(closing(LaneEnds(*builds)))

        yield made
