"""Run schedules in lockstep, by the strictest rules of the one-ported model: ranks *meet* in their steps.

A rank does its steps in order, and is in one step at a time; a message moves when its sender and its receiver are both
in the steps that name it; a step ends when its halves have. So the two ends of a message are matched by their ordinal
(the n-th message from a to b), never by the number of a step, which may differ. This is stricter than any transport,
which may buffer: a schedule that passes cannot deadlock. `verify` and `simulate` build on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.errors import ScheduleError
from ringcast.schedules.schedule import IDLE, Copy, Local, Merge, Schedule, Slots, Step, disjoint


@dataclass(slots=True)
class Cursor:
    """The position of a rank: its step, and the peers of the step's incomplete halves.

    A message moves in the first round after both of its ranks ended their steps before; `round` counts the rounds
    before this step began, `until` the rounds until it ends, as far as is known.
    """

    rank: int
    index: int = -1
    step: Step = IDLE
    send: Sequence[int] = ()
    recv: Sequence[int] = ()
    to: int | None = None
    source: int | None = None
    round: int = 0
    until: int = 0

    @property
    def met(self) -> bool:
        return self.to is None and self.source is None


class Stage(Protocol):
    """The effects of meetings. Calls come in an order that respects cause and effect, else in any order."""

    def enter(self, cursor: Cursor) -> None:
        """The rank begins a step; nothing of the step has arrived yet."""

    def deliver(self, sender: Cursor, receiver: Cursor) -> None:
        """The message from `sender`'s step to `receiver`'s step moves; both are in these steps."""

    def leave(self, cursor: Cursor) -> None:
        """The rank has completed both halves of its step."""


def run_in_lockstep(schedules: Sequence[Schedule], stage: Stage) -> int:
    """Do the steps of all ranks on `stage`; return the rounds: the longest chain of messages that wait for each other.

    Costs O(1) calls per step, and two passes over its slots.

    Raises:
        ScheduleError: a step is not well formed, the ends of a message disagree, a message has one end only, or the
            ranks wait for each other in a cycle.
    """
    _check_alike(schedules)
    nslots = schedules[0].nslots
    cursors = [Cursor(r) for r in range(len(schedules))]
    steps = [enumerate(s) for s in schedules]
    free = cursors[::-1]  # the ranks that can begin their next step; the order changes nothing
    while free:
        cursor = free.pop()
        if _begin(cursor, steps[cursor.rank], len(cursors), nslots, stage):
            to, source = cursor.to, cursor.source
            if to is not None and cursors[to].source == cursor.rank:
                _meet(cursor, cursors[to], stage, free)
            if source is not None and cursors[source].to == cursor.rank:
                _meet(cursors[source], cursor, stage, free)
    waiting = [cursor for cursor in cursors if not cursor.met]
    if waiting:
        raise _stuck(cursors, waiting)
    return max(cursor.until for cursor in cursors)


def _begin(cursor: Cursor, steps: Iterator[tuple[int, Step]], size: int, nslots: int, stage: Stage) -> bool:
    """Bring `cursor` to its next step with a message; return False when there is none."""
    for index, step in steps:
        cursor.index, cursor.step, cursor.round = index, step, cursor.until
        cursor.send, cursor.recv = _numbers(step.send), _numbers(step.recv)
        _check_step(cursor, size, nslots)
        cursor.to, cursor.source = to, source = step.send_to, step.recv_from
        stage.enter(cursor)
        if to is not None or source is not None:
            return True
        stage.leave(cursor)
    return False


def _meet(sender: Cursor, receiver: Cursor, stage: Stage, free: list[Cursor]) -> None:
    """Move one message; the ranks whose step it completes become `free`."""
    if len(sender.send) != len(receiver.recv):
        text = f"sends {len(sender.send)} slots, but step {receiver.index} of the peer receives {len(receiver.recv)}"
        raise fault(sender, receiver.rank, text)
    stage.deliver(sender, receiver)
    sender.to = receiver.source = None
    end = max(sender.round, receiver.round) + 1
    for cursor in (sender, receiver):
        cursor.until = max(cursor.until, end)
        if cursor.met:
            stage.leave(cursor)
            free.append(cursor)


def fault(cursor: Cursor, peer: int | None, text: str) -> ScheduleError:
    """Return the error that describes the fault in the step of `cursor`."""
    who = f"rank {cursor.rank}, step {cursor.index}" + ("" if peer is None else f", peer {peer}")
    return ScheduleError(f"{who}: {text}")


def _numbers(slots: Slots) -> Sequence[int]:
    return slots.tolist() if isinstance(slots, np.ndarray) else slots


def _check_alike(schedules: Sequence[Schedule]) -> None:
    """Check that these are the schedules of ranks 0, 1, … of one group, which number their slots alike."""
    for r, s in enumerate(schedules):
        if (s.size, s.rank) != (len(schedules), r):
            raise ScheduleError(f"rank {r} of {len(schedules)}: has the schedule of rank {s.rank} of {s.size}")
        if (s.parts, s.scratch) != (schedules[0].parts, schedules[0].scratch):
            theirs = f"{schedules[0].parts} and scratch {schedules[0].scratch}"
            raise ScheduleError(f"rank {r}: numbers parts {s.parts} and scratch {s.scratch}, but rank 0 {theirs}")
        if s.concurrent:
            _check_concurrent(s)
    nuser = sum(schedules[0].parts)
    if not all(0 <= slot < nuser for slot in schedules[0].scratch):
        raise ScheduleError(f"rank 0: scratch {schedules[0].scratch} names a slot that is not one of {nuser}")


def _check_concurrent(schedule: Schedule) -> None:
    """Check that rounds may overlap: no local steps, and no slot that is received is used by another round."""
    sent: set[int] = set()
    received: dict[int, Cursor] = {}
    for i, step in enumerate(schedule):
        cursor = Cursor(schedule.rank, i, step)
        if step.local:
            raise fault(cursor, None, "has a local step, but its rounds may overlap")
        for slot in _numbers(step.recv):
            if slot in received:
                text = f"receives into slot {slot}, as step {received[slot].index} does, but their rounds may overlap"
                raise fault(cursor, step.recv_from, text)
            received[slot] = cursor
        sent.update(_numbers(step.send))
    for slot in sorted(sent & received.keys()):
        cursor = received[slot]
        text = f"receives into slot {slot}, which another step sends, but their rounds may overlap"
        raise fault(cursor, cursor.step.recv_from, text)


def _check_step(cursor: Cursor, size: int, nslots: int) -> None:
    """Check the rules that concern one step alone; most halves are idle, or of one slot."""
    step, send, recv = cursor.step, cursor.send, cursor.recv
    if send or step.send_to is not None:
        _check_half(cursor, step.send_to, send, "sends", size, nslots)
    if recv or step.recv_from is not None:
        _check_half(cursor, step.recv_from, recv, "receives", size, nslots)
    if send and recv and not disjoint(send, recv):
        text = (
            f"receives into slot {min(set(send) & set(recv))}, which it sends in the same step: send a copy in scratch"
        )
        raise fault(cursor, step.recv_from, text)
    if isinstance(step.accept, tuple) and len(step.accept) != len(recv):
        raise fault(cursor, step.recv_from, f"accepts {len(step.accept)} slots, but receives {len(recv)}")
    for local in step.local:
        if any(not 0 <= slot < nslots for slot in named(local)):
            raise fault(cursor, None, f"{local} names a slot that is not one of {nslots}")


def _check_half(cursor: Cursor, peer: int | None, slots: Sequence[int], half: str, size: int, nslots: int) -> None:
    """Check a half that has a peer or slots."""
    if peer is None:
        raise fault(cursor, None, f"{half} slots {list(slots)} without a peer")
    if not 0 <= peer < size or peer == cursor.rank:
        raise fault(cursor, peer, f"{half} with a peer that is not another of the {size} ranks")
    if slots and not 0 <= min(slots) <= max(slots) < nslots:
        raise fault(cursor, peer, f"{half} slots {list(slots)}, but there are {nslots} slots")


def named(local: Local) -> tuple[int, ...]:
    """Return the slots that a local step names, the changed one first (a merge changes all)."""
    if isinstance(local, Merge):
        return local.slots
    return (local.dst, local.src) if isinstance(local, Copy) else (local.dst, local.left, local.right)


def _stuck(cursors: Sequence[Cursor], waiting: Sequence[Cursor]) -> ScheduleError:
    """Return the error for ranks that wait for ever: for a rank that is done, or else for each other in a cycle."""
    for cursor in waiting:
        for peer, half in (cursor.to, "sends to"), (cursor.source, "receives from"):
            if peer is not None and cursors[peer].met:
                return fault(cursor, peer, f"{half} a rank that has done all its steps: this message has one end only")
    cycle = _cycle(cursors, waiting[0])
    told = "; ".join(f"rank {a.rank} in step {a.index} waits for rank {b.rank}" for a, b in cycle[:8])
    return fault(cycle[0][0], cycle[0][1].rank, f"deadlock: {told}" + ("; …" if len(cycle) > 8 else ""))


def _cycle(cursors: Sequence[Cursor], cursor: Cursor) -> list[tuple[Cursor, Cursor]]:
    """Return the cycle of waits that is reached from `cursor`: each cursor with the cursor that it waits for."""
    chain: list[tuple[Cursor, Cursor]] = []
    seen: dict[int, int] = {}
    while cursor.rank not in seen:
        seen[cursor.rank] = len(chain)
        peer = cursor.to if cursor.to is not None else cursor.source
        assert peer is not None, "a rank that waits has an open half"
        chain.append((cursor, cursors[peer]))
        cursor = cursors[peer]
    return chain[seen[cursor.rank] :]
