"""Run the steps of a schedule by header prediction: each message is compared with the one that the schedule expects.

In a collective a rank knows the next message of a peer to the bit, but for the credit that it returns. So where nothing
else is under way, a step needs no matching and no state: compare 64 bytes, advance the ledger, store or combine, go on.
Whatever else is there stays in its ring, and the engine goes on from exactly there (`execute`, with `first` and
`sent`). This module has no deadlines, signals, failures, probes or errors of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringcast.engine.endpoint import Endpoint
from ringcast.engine.program import Program, Programs, passed
from ringcast.engine.slots import ArraySlots, Memory
from ringcast.protocol.lane import ANY_SIZE, Lane
from ringcast.protocol.operations import Operation
from ringcast.schedules.schedule import Step

PATIENCE = 0.01  # seconds of a wait after which the engine goes on, which serves all peers


def predictable(endpoint: Endpoint, op: Operation) -> Programs | None:
    """Return the lane, with its programs, by which `op` can be predicted; None while others are under way."""
    lanes = endpoint.transport.lanes if endpoint.direct else None
    if lanes is None or endpoint.shared or endpoint.requests or endpoint.gate.pending or endpoint.transport.unsent:
        return None
    lane = endpoint.protocol.lane(op, lanes)
    if lane is not None and endpoint.programs is None:
        endpoint.programs = Programs(lane)
    return None if lane is None else endpoint.programs


def run(programs: Programs, steps: Sequence[Step], memory: Memory, op: Operation) -> tuple[int, bool]:
    """Run steps as far as messages come as predicted.

    Returns the number of the first step that is not over, and whether its message is sent; its local steps are done.

    Raises:
        BaseException: of an operator; the message counts as received.
    """
    lane = programs.lane
    if isinstance(memory, ArraySlots) and (flat := programs.find(steps, memory)) is not None:
        flat.load(memory)
        first, sent = run_flat(lane, flat, op)
        flat.store(memory, scratch=first < len(flat.moves))
        return first, sent
    return _run(lane, steps, memory, op)


def run_flat(lane: Lane, flat: Program, op: Operation) -> tuple[int, bool]:
    """Run a program, as `run`."""
    op.rounds = len(flat.moves)
    code = lane.run(flat.prepared, op.context, op.number, op.fingerprint, PATIENCE)
    if code < 2 * len(flat.moves):
        sent, received = passed(flat.moves, code)
        op.sent.update(sent)
        op.received.update(received)
    return code >> 1, code & 1 == 1


def _run(lane: Lane, steps: Sequence[Step], memory: Memory, op: Operation) -> tuple[int, bool]:
    context, number, fingerprint = op.context, op.number, op.fingerprint
    op.rounds = len(steps)
    for op.round, step in enumerate(steps):
        for local in step.local:
            memory.apply(local)
        if (peer := step.send_to) is not None:
            frames, _ = memory.pack(step.send)
            payload = frames[0] if frames else None
            ordinal = op.sent.get(peer, 0)
            if len(frames) > 1 or (payload is not None and len(payload) > op.eager):
                return op.round, False
            if not lane.put(peer, context, number, ordinal, fingerprint, payload):
                return op.round, False
            op.sent[peer] = ordinal + 1
        if (peer := step.recv_from) is not None:
            buffer, ordinal = memory.receive_buffer(step), op.received.get(peer, 0)
            total = ANY_SIZE if buffer.total is None else buffer.total
            data = lane.take(peer, context, number, ordinal, fingerprint, total, PATIENCE)
            if data is None:
                return op.round, True
            op.received[peer] = ordinal + 1
            if total == ANY_SIZE:
                buffer.announce(peer, ordinal, [len(data)])
            buffer.put(0, memoryview(data))
            buffer.finish()
    return len(steps), True
