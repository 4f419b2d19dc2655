"""List the messages of each round, from the schedules of all ranks: for tables, drawings, and readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ringcast.analysis.lockstep import Cursor, run_in_lockstep
from ringcast.schedules.schedule import Schedule


@dataclass(frozen=True, order=True, slots=True)
class Transfer:
    """Slots that travel from one rank to another in a round."""

    round: int
    source: int
    dest: int
    slots: tuple[int, ...]


def messages(schedules: Sequence[Schedule]) -> list[Transfer]:
    """Return all messages in the order of rounds.

    Where both ends of every message are in the same step, rounds are steps; else a message's round is the first in
    which both ranks can be there, as in `ringcast.analysis.simulate`.

    Raises:
        ScheduleError: the schedules break a rule of the model.
    """
    log = _Log()
    run_in_lockstep(schedules, log)
    return sorted(log.by_step if log.in_step else log.by_round)


def label(slots: Sequence[int], parts: Sequence[int]) -> str:
    """Return the names of the slots of a message: b3 for block 3, or, of several parts, 2.3 for block 3 of part 2.

    A part of one block is 2, a scratch slot t0, and an empty message -.

    >>> label((3,), (4,)), label((0, 2, 3), (1, 2)), label((), (1,))
    ('b3', '0+1.1+t0', '-')
    """
    scratch = sum(parts)
    ends = list(accumulate(parts))

    def name(slot: int) -> str:
        if slot >= scratch:
            return f"t{slot - scratch}"
        if len(parts) == 1:
            return f"b{slot}"
        j = bisect_right(ends, slot)
        return f"{j}.{slot - ends[j] + parts[j]}" if parts[j] > 1 else f"{j}"

    return "+".join(map(name, slots)) or "-"


class _Log:
    """The stage that records messages."""

    def __init__(self) -> None:
        self.by_step: list[Transfer] = []
        self.by_round: list[Transfer] = []
        self.in_step = True

    def enter(self, cursor: Cursor) -> None:
        pass

    def deliver(self, sender: Cursor, receiver: Cursor) -> None:
        a, b, slots = sender.rank, receiver.rank, tuple(sender.send)
        self.in_step &= sender.index == receiver.index
        self.by_step.append(Transfer(sender.index, a, b, slots))
        self.by_round.append(Transfer(max(sender.round, receiver.round), a, b, slots))

    def leave(self, cursor: Cursor) -> None:
        pass
