"""The one loop: every collective on every backend, live or simulated, runs through `execute`.

`execute` is a generator: it yields an `Exchange`, and is resumed when that is complete, by a `Task`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import chain, pairwise
from typing import TypeAlias, TypeVar

from ringcast.engine.endpoint import Exchange
from ringcast.engine.slots import Memory, ReceiveBuffer
from ringcast.protocol.operations import Operation
from ringcast.schedules.schedule import IDLE, Slots, Step, independent, untouched

MOST_LENT = 64  # messages of an operation that are lent at the same time: each counts against its receiver's patience

Result = TypeVar("Result")

Steps: TypeAlias = Generator[Exchange, None, Result]


def execute(steps: Sequence[Step], memory: Memory, op: Operation) -> Steps[None]:
    """Run the steps of one rank's schedule on its slots.

    No step receives into a slot that it sends (`verify` sees to that), so nothing has to be copied. Where rounds are
    granted, the next receive is posted with this round, so that its grant goes out when this round's receive is
    complete, however long this round's send takes. What is lent may be read during later rounds, up to one that writes
    there.
    """
    ahead: ReceiveBuffer | None = None
    lent: list[Slots] = []  # which others may be reading
    op.rounds, op.lends = len(steps), True
    for op.round, (step, following) in enumerate(pairwise(chain(steps, (IDLE,)))):
        if lent and not _free(step, lent):
            yield Exchange(op, None, [], False, None, None)
            lent.clear()
        for local in step.local:
            memory.apply(local)
        send_to, recv_from = step.send_to, step.recv_from
        if send_to is None and recv_from is None:
            continue
        frames, packed = memory.pack(step.send) if send_to is not None else ([], False)
        posted, receive_buffer, after = ahead is not None, ahead, None
        if receive_buffer is None and recv_from is not None:
            receive_buffer = memory.receive_buffer(step)
        if op.granted:
            # Who waits for the readers of what it has lent has posted nothing ahead: it would wait for that too.
            early = following.recv_from is not None and independent(step, following) and _free(following, lent, 1)
            ahead = memory.receive_buffer(following) if early else None
            after = None if ahead is None or following.recv_from is None else (following.recv_from, ahead)
        yield Exchange(op, send_to, frames, packed, recv_from, receive_buffer, None, posted, after)
        if not op.lending:
            lent.clear()
        elif send_to is not None:
            lent.append(step.send)
        if receive_buffer is not None:
            receive_buffer.finish()
    if op.lending:
        yield Exchange(op, None, [], False, None, None)


def _free(step: Step, lent: Sequence[Slots], more: int = 0) -> bool:
    """Return whether a step may begin while these slots, and those of so many `more` messages, are read by others."""
    return len(lent) + more < MOST_LENT and untouched(lent, step)
