"""The one loop: every collective on every backend, live or simulated, runs through `execute`.

`execute` is a generator: it yields an `Exchange`, and is resumed when that is complete, by a `Task`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import TypeAlias, TypeVar

from ringcast.engine.endpoint import Exchange
from ringcast.engine.slots import Memory, ReceiveBuffer
from ringcast.protocol.operations import Operation, Send
from ringcast.schedules.schedule import IDLE, Slots, Step, independent, untouched

MOST_LENT = 64  # messages of an operation that are lent at a time: each round is compared with all of them

Result = TypeVar("Result")

Steps: TypeAlias = Generator[Exchange, None, Result]

# Transfers of a rank, sends and receives, beside which it begins one more round where rounds overlap. With more, TCP
# divides a link less evenly; with fewer, ranks wait for each other where parts differ in size. On 8 hosts of 100 Mbit/s
# equal parts took 1.20, 1.11, 1.17 times the limit with 4, 6, 8, those of mod3 1.20, 1.13, 1.25.
UNDER_WAY = 6


def execute(
    steps: Sequence[Step],
    memory: Memory,
    op: Operation,
    *,
    concurrent: bool = False,
    first: int = 0,
    sent: bool | None = None,
    lent: Mapping[Send, Slots] | None = None,
) -> Steps[None]:
    """Run the steps of one rank's schedule on its slots; its rounds may overlap if it is `concurrent`.

    It begins with step `first`, whose local steps are done unless `sent` is None, and whose message is `sent` if it is;
    messages of earlier steps are `lent`.

    No step receives into a slot that it sends (`verify` sees to that), so nothing has to be copied. Where rounds are
    granted, the next receive is posted with this round, so that its grant goes out when this round's receive is
    complete, however long this round's send takes. What is lent may be read during later rounds, up to one that writes
    there.
    """
    if concurrent:
        yield from _overlapping(steps, memory, op)
        return
    ahead: ReceiveBuffer | None = None
    lent = dict(lent or {})  # which others may be reading
    op.rounds, op.lends = len(steps), True
    for op.round, (step, following) in enumerate(pairwise(chain(islice(steps, first, None), (IDLE,))), first):
        if lent and sent is None:  # else it was free when it began
            lent = {send: slots for send, slots in lent.items() if send in op.lending}
            if not _free(step, lent.values()):
                yield Exchange(op, None, [], False, None, None, settle=True)
                lent.clear()
        if sent is None:
            for local in step.local:
                memory.apply(local)
        send_to, recv_from = None if sent else step.send_to, step.recv_from
        sent = None
        if send_to is None and recv_from is None:
            continue
        frames, packed = memory.pack(step.send) if send_to is not None else ([], False)
        posted, receive_buffer, after = ahead is not None, ahead, None
        if receive_buffer is None and recv_from is not None:
            receive_buffer = memory.receive_buffer(step)
        if op.granted:
            # Where the next round begins with a wait for readers, nothing is posted ahead: that wait would include it.
            free = not lent or _free(following, lent.values(), 1)
            early = following.recv_from is not None and free and independent(step, following)
            ahead = memory.receive_buffer(following) if early else None
            after = None if ahead is None or following.recv_from is None else (following.recv_from, ahead)
        yield Exchange(op, send_to, frames, packed, recv_from, receive_buffer, None, posted, after)
        if op.lending:
            lent.update(dict.fromkeys(op.lending.difference(lent), step.send))
        if receive_buffer is not None:
            receive_buffer.finish()
    if op.lending:
        yield Exchange(op, None, [], False, None, None, settle=True)


def _overlapping(steps: Sequence[Step], memory: Memory, op: Operation) -> Steps[None]:
    """Run steps that do not depend on each other: a round begins while at most UNDER_WAY transfers are not complete.

    All ranks begin their rounds in order, and no grant is withheld. So the first round that is not complete is under
    way on both of its ranks, or will be without waiting for others: no cycle of waits can arise.
    """
    buffers: list[ReceiveBuffer] = []
    op.rounds, op.concurrent = len(steps), True
    for op.round, step in enumerate(steps):
        op.slack = UNDER_WAY if op.round + 1 < op.rounds else 0  # after the last one all have to be complete
        frames, packed = memory.pack(step.send) if step.send_to is not None else ([], False)
        receive_buffer = memory.receive_buffer(step) if step.recv_from is not None else None
        if receive_buffer is not None:
            buffers.append(receive_buffer)
        yield Exchange(op, step.send_to, frames, packed, step.recv_from, receive_buffer)
    for receive_buffer in buffers:
        receive_buffer.finish()


def _free(step: Step, lent: Collection[Slots], more: int = 0) -> bool:
    """Return whether a step may begin while others read these slots, and the slots of so many `more` messages."""
    return len(lent) + more < MOST_LENT and untouched(lent, step)
