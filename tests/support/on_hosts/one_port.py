"""Count the large messages that are in flight out of this rank and into it, while collectives run; print the maxima.

A message is in flight from its first DATA to its DONE. `schedules` runs collectives of about 1 MB; `two-at-once` is the
control: rank 0 sends to two ranks, then receives from two, without waiting for the first. Prints JSON: the largest
number of messages out and in, and how many there were.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import ringcast
from ringcast.engine.endpoint import Endpoint, Exchange
from ringcast.transports.base import Arrival, Frame, Transport
from ringcast.wire.call import Call
from ringcast.wire.header import Kind, unpack

SIZE = 1_000_000  # bytes of a collective
CONTROL = 4_000_000  # bytes of a message of the control: long enough that two meet, however late one of them begins


class Flights:
    """The messages in flight in one direction, by peer and number of the transfer."""

    def __init__(self) -> None:
        self.now: set[tuple[int, int]] = set()
        self.most = self.ever = 0

    def data(self, peer: int, transfer: int) -> None:
        self.ever += (peer, transfer) not in self.now
        self.now.add((peer, transfer))
        self.most = max(self.most, len(self.now))

    def done(self, peer: int, transfer: int) -> None:
        self.now.remove((peer, transfer))


class Tap:
    """A transport that looks at the headers of what passes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.out, self.into = Flights(), Flights()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        header = unpack(frames[0])
        if header.kind == Kind.DATA:
            self.out.data(peer, header.transfer)
        elif header.kind == Kind.DONE:
            self.into.done(peer, header.transfer)
        self._transport.send(peer, frames)

    def poll(self, deadline: float | None) -> Arrival | None:
        arrival = self._transport.poll(deadline)
        if arrival is not None:
            header = unpack(arrival.header)
            if header.kind == Kind.DATA:
                self.into.data(header.source, header.transfer)
            elif header.kind == Kind.DONE:
                self.out.done(header.source, header.transfer)
        return arrival


def schedules(comm: ringcast.Communicator) -> None:
    """Run collectives of which every block is large, also with some other numbers of blocks."""
    p, r = comm.size, comm.rank
    mod3 = [SIZE * (i % 3) // p for i in range(p)]
    for nblocks in (None, 3, 7):
        comm.bcast(np.zeros(SIZE, np.uint8) if r == 1 else None, 1, nblocks=nblocks)
        comm.allgatherv(np.zeros(mod3[r], np.uint8), mod3, nblocks=nblocks)
    comm.reduce_scatter(np.zeros(SIZE // 8))
    comm.allreduce(np.zeros(SIZE // 8))


class Nowhere:
    """A sink that forgets what it gets."""

    total: int | None = CONTROL

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(CONTROL))

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        raise AssertionError(sizes)

    def view(self, offset: int, length: int) -> memoryview:
        return self._memory[offset : offset + length]

    def placed(self, offset: int, length: int) -> None:
        pass

    def put(self, offset: int, data: memoryview) -> None:
        pass


def two_at_once(comm: ringcast.Communicator, endpoint: Endpoint) -> None:
    """Break the rule at rank 0 towards ranks 1 and 2, first out, then in."""
    everything = [memoryview(bytes(CONTROL))]
    call = Call("control", "uint8", (CONTROL,))
    for out in (True, False):
        op = endpoint.protocol.begin(2, call, granted=True)
        for peer in (1, 2) if comm.rank == 0 else (0,) if comm.rank in (1, 2) else ():
            if (comm.rank == 0) == out:
                endpoint.post(Exchange(op, peer, everything, False, None, None))
            else:
                endpoint.post(Exchange(op, None, [], False, peer, Nowhere()))
        while op.pending:
            endpoint.progress(None)
        endpoint.protocol.end(op)
        comm.barrier()


def main(what: str) -> None:
    with ringcast.init() as comm:
        endpoint = comm._group.endpoint
        endpoint.transport = tap = Tap(endpoint.transport)
        if what == "schedules":
            schedules(comm)
        else:
            two_at_once(comm, endpoint)
        print(json.dumps({"out": tap.out.most, "in": tap.into.most, "sent": tap.out.ever, "received": tap.into.ever}))
        assert not tap.out.now, "a call was over before its message was"
        assert not tap.into.now


if __name__ == "__main__":
    main(sys.argv[1])
