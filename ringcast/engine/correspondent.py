"""Messages between two ranks by prediction: to a send or a receive what `direct` is to the steps of a schedule.

Both find nothing else under way. A sender puts its message into the lane, or offers it there and waits until it is
read; a receiver looks at the next message of its source, and accepts or fetches it when it has understood all of it.
Whatever else is there stays where it is, and the engine goes on with the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcast.engine import direct
from ringcast.engine.datatypes import flat
from ringcast.engine.direct import free_lanes
from ringcast.engine.endpoint import Endpoint
from ringcast.protocol.lane import Lane
from ringcast.protocol.operations import Operation
from ringcast.transports.base import Frame
from ringcast.wire.call import Call, Site
from ringcast.wire.header import P2P

FRAMES = 2  # of a value that is predicted: a record, and its data
KIND = 1  # the byte of a header that says whether the message is an offer
MOST = 16 << 20  # bytes of a message that is predicted: the interpreter's lock is held while they are copied


class Correspondent:
    """Another rank of a communicator: `peer` in the job."""

    def __init__(self, endpoint: Endpoint, context: int, peer: int, call: Call) -> None:
        self.endpoint, self.peer = endpoint, peer
        self._context, self._call, self._fingerprint = context, call, call.fingerprint
        self._operation = self._made()  # of the next call, again and again: nothing keeps it if all is as predicted

    def lane(self, tag: int | None = None, *, in_turn: bool = False) -> Lane | None:
        """Return the lane by which a message may go to this rank, or, with a tag or ANY, come from it; None: by none
        now.

        Messages that earlier requests receive come first, unless it is known that this one is `in_turn`.
        """
        if tag is not None and self.endpoint.predicted and not in_turn:
            return None
        lanes = free_lanes(self.endpoint)
        return None if lanes is None else self.endpoint.protocol.message_lane(self._context, self.peer, lanes, tag)

    def put(self, lane: Lane, tag: int, payload: Frame, joined: int = FRAMES) -> bool:
        """Send a message of so many joined frames; 0: of one. False, and nothing has changed, if it cannot go now."""
        return lane.put(self.peer, self._context, P2P, tag, self._fingerprint, payload, joined)

    def offer(self, lane: Lane, tag: int, frames: Sequence[Any]) -> Loan | None:
        """Offer a message where it lies: bytes, and contiguous arrays. None, and nothing has changed, if it cannot be
        offered now.
        """
        if not lane.offer(self.peer, self._context, P2P, tag, self._fingerprint, frames):
            return None
        return Loan(self, lane, tag, frames)

    def settle(self, lane: Lane) -> bool:
        """Wait for PATIENCE until what was offered is read; return whether it is."""
        return lane.settle(self._context, P2P, self._fingerprint, direct.PATIENCE)

    def lent(self, op: Operation, tag: int, transfer: int, frames: Sequence[memoryview]) -> None:
        """Let the engine await that a message is read."""
        self.endpoint.protocol.lent(op, self.peer, tag, transfer, frames)

    def deliver(self, timeout: float | None) -> None:
        """Wait until what was sent is on its way, as any call does, but no longer than `timeout`."""
        transport = self.endpoint.transport
        if transport.unsent:
            self.endpoint.deliver(None if timeout is None else transport.clock() + timeout)

    def begin(self, record: bytes, site: Site) -> Operation:
        """Return the operation of a call, which the flight recorder has and nothing else; `done` follows, or `rest`."""
        op = self._operation
        op.site = site
        self.endpoint.recorder.begin(op, record)
        return op

    def begin_request(self, record: bytes, site: Site) -> Operation:
        """Return the operation of a request, as `begin`; it is the request's own."""
        op, self._operation = self._operation, self._made()
        op.site, op.blocks = site, False
        self.endpoint.recorder.begin(op, record)
        return op

    def look(self, lane: Lane, tag: int, joined: int = FRAMES, patience: float | None = None) -> bytes | None:
        """Return the next message of this rank, as `Lane.look`, if it is as predicted.

        It waits for `patience` seconds; None: for PATIENCE.
        """
        patience = direct.PATIENCE if patience is None else patience
        return lane.look(self.peer, self._context, tag, self._fingerprint, joined, patience)

    def fetch(self, lane: Lane, memory: Any) -> bool:
        """Receive the offer that `look` has returned, its last frame in memory of this size; False if that fails."""
        return lane.fetch(self.peer, memory)

    def rest(self, label: str) -> Operation:
        """Return the operation of `begin`, with which the engine goes on; errors call it `label`."""
        op, self._operation = self._operation, self._made()
        op.label = label
        return op

    def break_off(self, label: str, loan: Loan | None) -> None:
        """End the operation of `begin`, whose call fails by an error; the engine awaits that what it lent is read."""
        op = self.rest(label)
        if loan is not None:
            loan.hand_over(op)
        self.endpoint.recorder.failed(op)

    def _made(self) -> Operation:
        return Operation(self._context, P2P, self._call, False, 1)


class Loan(NamedTuple):
    """A message that was offered, and may not have been read yet: `settle` follows, and `hand_over` if it fails."""

    to: Correspondent
    lane: Lane
    tag: int
    frames: Sequence[Any]

    def settle(self) -> bool:
        """Wait for PATIENCE until it is read; return whether it is."""
        return self.to.settle(self.lane)

    def hand_over(self, op: Operation) -> None:
        """Let the engine await that, unless it is read already."""
        for _, transfer in self.lane.offered():
            self.to.lent(op, self.tag, transfer, [_view(frame) for frame in self.frames])


def _view(frame: Any) -> memoryview:
    return flat(frame).view(np.uint8).data if type(frame) is np.ndarray else memoryview(frame)
