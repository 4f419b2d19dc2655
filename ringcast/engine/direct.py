"""Run the steps of a schedule by header prediction: each message is compared with the one that the schedule expects.

In a collective a rank knows the next message of a peer to the bit, but for the credit that it returns. So where nothing
else is under way, a step needs no matching and no state: compare 64 bytes, advance the ledger, store or combine, go on.
Whatever else is there stays in its ring, and the engine goes on from exactly there (`execute`, with `first`, `sent` and
`lent`). This module has no deadlines, signals, failures, probes or errors of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ringcast.engine.endpoint import Endpoint
from ringcast.engine.program import Program, Programs, passed
from ringcast.engine.slots import ArraySlots, Memory
from ringcast.ops import Array
from ringcast.protocol.lane import ANY_SIZE, Lane, PythonLane
from ringcast.protocol.operations import Operation, Send
from ringcast.schedules.schedule import Slots, Step
from ringcast.transports.base import Lanes
from ringcast.wire.header import EAGER_LIMIT

PATIENCE = 0.01  # seconds of a wait after which the engine goes on, which serves all peers


class End(NamedTuple):
    """How far steps were run that are not all over; `execute` goes on there."""

    first: int  # the number of the first step that is not over
    sent: bool | None  # whether its message is sent; None: neither are its local steps done
    lent: Mapping[Send, Slots]  # messages that others may be reading


START = End(0, None, {})


def free_lanes(endpoint: Endpoint) -> Lanes | None:
    """Return the lanes of a rank if nothing of its own is under way, and the next call would not raise at once."""
    if endpoint.shared or endpoint.waiting or endpoint.gate.pending or endpoint.transport.unsent:
        return None
    if endpoint.closed or endpoint.torn or endpoint.dropped or endpoint.playing is not None:
        return None
    return endpoint.transport.lanes if endpoint.direct else None


def predictable(endpoint: Endpoint, op: Operation) -> Programs | None:
    """Return the lane, with its programs, by which `op` can be predicted; None while others are under way."""
    lanes = free_lanes(endpoint)
    lane = None if lanes is None else endpoint.protocol.lane(op, lanes)
    if lane is not None and endpoint.programs is None:
        every = len(endpoint.transport.lenders) == endpoint.size - 1
        endpoint.programs = Programs(lane, offers=every and not isinstance(lane, PythonLane))
    return None if lane is None else endpoint.programs


def run(
    endpoint: Endpoint,
    programs: Programs,
    steps: Sequence[Step],
    memory: Memory,
    op: Operation,
    patience: float | None = None,
) -> End | None:
    """Run steps as far as messages come as predicted; None: all are over.

    Each may take `patience` seconds to come; None: PATIENCE.

    Raises:
        BaseException: of an operator; the message counts as received.
    """
    if isinstance(memory, ArraySlots) and (flat := programs.find(steps, memory, granted=op.granted)) is not None:
        flat.load(memory)
        end = run_flat(endpoint, programs.lane, flat, op, memory.data, patience)
        flat.store(memory, scratch=end is not None)
        return end
    return START if op.granted else _run(programs.lane, steps, memory, op, patience)


def run_flat(
    endpoint: Endpoint,
    lane: Lane,
    flat: Program,
    op: Operation,
    data: Array | None = None,
    patience: float | None = None,
) -> End | None:
    """Run a program, as `run`; on `data`, if it has none of its own."""
    patience = PATIENCE if patience is None else patience
    op.rounds, whole = len(flat.moves), 2 * len(flat.moves)
    code, given, lent = 0, () if flat.data is not None else flat.bound(data), dict[Send, Slots]()
    hand_over = partial(_lend, endpoint, lane, flat, op, data, lent) if flat.offers else _nothing
    endpoint.playing = hand_over
    try:
        code = lane.run(flat.prepared, op.context, op.number, op.fingerprint, patience, *given)
    finally:
        endpoint.playing = None
        if code != whole:
            hand_over()
    if code == whole:
        return None
    return end_at(flat, op, code, lent)


def run_on(
    endpoint: Endpoint, lane: Lane, flat: Program, op: Operation, data: Array | None, patience: float, code: int
) -> int:
    """Run a program that offers nothing on from the place `code`, and return the next one (`Lane.run`)."""
    op.rounds = len(flat.moves)
    bytes_, calls = (None, None) if flat.data is not None else flat.bound(data)
    endpoint.playing = _nothing
    try:
        return lane.run(flat.prepared, op.context, op.number, op.fingerprint, patience, bytes_, calls, code)
    finally:
        endpoint.playing = None


def end_at(flat: Program, op: Operation, code: int, lent: Mapping[Send, Slots]) -> End:
    """Return where the engine goes on with a program that has ended with `code`; the operation counts its messages."""
    end = End(code >> 1, code & 1 == 1, lent) if code >= 0 else End(-1 - code, None, lent)
    sent, received = passed(flat.moves[: end.first + 1], code if code >= 0 else 2 * end.first)
    op.sent.update(sent)
    op.received.update(received)
    return end


def _nothing() -> None:
    """Hand nothing over: the program offers nothing."""


def _lend(
    endpoint: Endpoint, lane: Lane, flat: Program, op: Operation, data: Array | None, lent: dict[Send, Slots]
) -> None:
    """Hand the offers that are not confirmed over to the engine, and put them into `lent` with their slots."""
    for number, transfer in lane.offered():
        peer, ordinal, frames, slots = flat.offer(number, data)
        lent[endpoint.protocol.lent(op, peer, ordinal, transfer, frames)] = slots


def _run(lane: Lane, steps: Sequence[Step], memory: Memory, op: Operation, patience: float | None) -> End | None:
    patience = PATIENCE if patience is None else patience
    context, number, fingerprint = op.context, op.number, op.fingerprint
    op.rounds = len(steps)
    for op.round, step in enumerate(steps):
        for local in step.local:
            memory.apply(local)
        if (peer := step.send_to) is not None:
            frames, _ = memory.pack(step.send)
            payload = frames[0] if frames else None
            ordinal = op.sent.get(peer, 0)
            if len(frames) > 1 or (payload is not None and len(payload) > EAGER_LIMIT):
                return End(op.round, False, {})
            if not lane.put(peer, context, number, ordinal, fingerprint, payload):
                return End(op.round, False, {})
            op.sent[peer] = ordinal + 1
        if (peer := step.recv_from) is not None:
            buffer, ordinal = memory.receive_buffer(step), op.received.get(peer, 0)
            total = ANY_SIZE if buffer.total is None else buffer.total
            data = lane.take(peer, context, number, ordinal, fingerprint, total, patience)
            if data is None:
                return End(op.round, True, {})
            op.received[peer] = ordinal + 1
            if total == ANY_SIZE:
                buffer.announce(peer, ordinal, [len(data)])
            buffer.put(0, memoryview(data))
            buffer.finish()
    return None
