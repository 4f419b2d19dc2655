"""Define schedules: the messages and local steps of one rank in each round of a collective, as data.

A schedule is a pure function of its fields. It is indexable like `range`, computes its steps when asked, does no
I/O and knows no buffers. The model is one-ported and homogeneous: in a round a rank sends at most one message and
receives at most one, at the same time. Only the rounds of a schedule that is `concurrent` may overlap.

*Slots* number the pieces of the user's buffer: the buffer consists of `len(parts)` parts, part j is cut into
`parts[j]` blocks, and slots count the blocks of all parts in order. Scratch slots follow; the i-th has the size of
slot `scratch[i]`. Every rank of a collective uses the same numbering.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass

Slots: TypeAlias = "tuple[int, ...] | range | NDArray[np.intp]"


class Accept(IntEnum):
    """The use of an arriving piece; the order of operands matters for non-commutative operators."""

    STORE = 0
    COMBINE_LEFT = 1  # slot = op(arrival, slot)
    COMBINE_RIGHT = 2  # slot = op(slot, arrival)


STORE, COMBINE_LEFT, COMBINE_RIGHT = Accept


@dataclass(frozen=True, slots=True)
class Copy:
    """Local step: dst = src."""

    dst: int
    src: int


@dataclass(frozen=True, slots=True)
class Combine:
    """Local step: dst = op(left, right)."""

    dst: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Local step: the sorted runs in these slots become one run, which fills them and is only sent as a whole.

    Each rank contributes one slot: a run of k ranks fills k slots. The slots are adjacent, mod the number of ranks.
    """

    slots: tuple[int, ...]


Local: TypeAlias = "Copy | Combine | Merge"


@dataclass(frozen=True, slots=True)
class Step:
    """One rank's part in one round: at most one message out, one in (one-ported).

    A slot must not be received and sent in the same step: buffers travel without a copy.
    """

    send_to: int | None = None  # None: this side is idle, and its slots are ()
    send: Slots = ()
    recv_from: int | None = None
    recv: Slots = ()
    accept: Accept | tuple[Accept, ...] = STORE  # one for all slots, or one per slot
    local: tuple[Local, ...] = ()  # to do before the round, in order

    def accepts(self) -> tuple[Accept, ...]:
        """Return the use of each received slot, one entry per slot of `recv`."""
        return self.accept if isinstance(self.accept, tuple) else (self.accept,) * len(self.recv)


IDLE = Step()


def independent(step: Step, following: Step) -> bool:
    """Return whether the message of `following` may arrive during `step`: it touches no slot that `step` uses."""
    if following.local:
        return False
    return disjoint(following.recv, step.send) and disjoint(following.recv, step.recv)


def untouched(slots: Iterable[Slots], step: Step) -> bool:
    """Return whether a step, with the local steps before its round, writes into none of these slots."""
    written = [step.recv, *(local.slots if isinstance(local, Merge) else (local.dst,) for local in step.local)]
    return all(disjoint(kept, each) for kept in slots for each in written)


def disjoint(a: Slots | Sequence[int], b: Slots | Sequence[int]) -> bool:
    """Return whether no slot is in both."""
    if not len(a) or not len(b):
        return True
    if isinstance(a, range) and isinstance(b, range) and a.step == b.step == 1:
        return a.stop <= b.start or b.stop <= a.start
    if len(a) == len(b) == 1:
        return bool(a[0] != b[0])
    return set(_numbers(a)).isdisjoint(_numbers(b))


def _numbers(slots: Slots | Sequence[int]) -> Iterable[int]:
    return slots.tolist() if isinstance(slots, np.ndarray) else slots


@dataclass(frozen=True)
class Schedule(Sequence[Step]):
    """The steps of `rank` among `size` ranks. Subclasses add `__len__` and `_step`."""

    size: int
    rank: int

    @property
    def parts(self) -> tuple[int, ...]:
        """The number of blocks into which each part of the user's buffer is cut."""
        return (1,)

    @property
    def scratch(self) -> tuple[int, ...]:
        """For each scratch slot a slot of the user's buffer with the same size."""
        return ()

    @property
    def full(self) -> int | None:
        """Items of every block of a part but the last; None: blocks are as even as whole items allow."""
        return None

    @property
    def concurrent(self) -> bool:
        """Whether all rounds may run at the same time: no round uses a slot that another round receives into."""
        return False

    @property
    def nslots(self) -> int:
        return sum(self.parts) + len(self.scratch)

    @abstractmethod
    def _step(self, i: int) -> Step:
        """Return step i, 0 <= i < len(self)."""

    @overload
    def __getitem__(self, i: int) -> Step: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, i: int | slice) -> Step | tuple[Step, ...]:
        if isinstance(i, slice):
            return tuple(self._step(j) for j in range(*i.indices(len(self))))
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"step {i} of a schedule of {n} steps")
        return self._step(i % n)

    def __iter__(self) -> Iterator[Step]:
        return map(self._step, range(len(self)))


@dataclass(frozen=True)
class Nothing(Schedule):
    """No rounds at all: every collective of one rank."""

    cut: tuple[int, ...] = (1,)

    @property
    def parts(self) -> tuple[int, ...]:
        return self.cut

    def __len__(self) -> int:
        return 0

    def _step(self, i: int) -> Step:
        raise IndexError(i)


@dataclass(frozen=True)
class Reversed(Schedule):
    """`inner` backwards: a received slot is sent, and a sent slot arrives and is accepted by `accept`."""

    inner: Schedule
    accept: Accept = COMBINE_RIGHT

    @property
    def parts(self) -> tuple[int, ...]:
        return self.inner.parts

    @property
    def full(self) -> int | None:
        return self.inner.full

    def __len__(self) -> int:
        return len(self.inner)

    def _step(self, i: int) -> Step:
        s = self.inner._step(len(self.inner) - 1 - i)
        return Step(s.recv_from, s.recv, s.send_to, s.send, self.accept)


def reverse(schedule: Schedule, accept: Accept = COMBINE_RIGHT) -> Schedule:
    """Return the reduction that runs `schedule` backwards (commutative operators only).

    A schedule by which each rank receives each piece once becomes one that gathers each contribution to a piece once.
    With STORE, a scatter becomes a gather: pieces with a contribution of only one rank travel back. Only schedules that
    store and have no local steps can be reversed.
    """
    return Reversed(schedule.size, schedule.rank, schedule, accept)


@dataclass(frozen=True)
class Concatenated(Schedule):
    """`first`, then `second`, on the same slots."""

    first: Schedule
    second: Schedule

    @property
    def parts(self) -> tuple[int, ...]:
        return self.first.parts

    @property
    def scratch(self) -> tuple[int, ...]:
        return self.first.scratch

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def _step(self, i: int) -> Step:
        n = len(self.first)
        return self.first[i] if i < n else self.second[i - n]


def concat(first: Schedule, second: Schedule) -> Schedule:
    """Return the schedule that does `first` and then `second`; both must number the same slots."""
    if (first.parts, first.scratch) != (second.parts, second.scratch):
        raise ValueError("concat: the two schedules number their slots differently")
    return Concatenated(first.size, first.rank, first, second)


@dataclass(frozen=True)
class Joined(Schedule):
    """`inner` on a buffer that is one part: its parts, one behind the other."""

    inner: Schedule

    @property
    def parts(self) -> tuple[int, ...]:
        return (sum(self.inner.parts),)

    @property
    def scratch(self) -> tuple[int, ...]:
        return self.inner.scratch

    def __len__(self) -> int:
        return len(self.inner)

    def _step(self, i: int) -> Step:
        return self.inner._step(i)


def joined(schedule: Schedule) -> Schedule:
    """Return `schedule` on a buffer of one part, which is cut into the blocks of all its parts."""
    return Joined(schedule.size, schedule.rank, schedule)


@dataclass(frozen=True)
class Relabelled(Schedule):
    """`inner` on other ranks: its rank i is `ranks[i]`."""

    inner: Schedule
    ranks: Sequence[int]

    @property
    def parts(self) -> tuple[int, ...]:
        return self.inner.parts

    @property
    def full(self) -> int | None:
        return self.inner.full

    @property
    def scratch(self) -> tuple[int, ...]:
        return self.inner.scratch

    @property
    def concurrent(self) -> bool:
        return self.inner.concurrent

    def __len__(self) -> int:
        return len(self.inner)

    def _step(self, i: int) -> Step:
        s = self.inner[i]
        to = None if s.send_to is None else self.ranks[s.send_to]
        source = None if s.recv_from is None else self.ranks[s.recv_from]
        return Step(to, s.send, source, s.recv, s.accept, s.local)


def relabel(schedule: Schedule, ranks: Sequence[int], size: int) -> Schedule:
    """Return `schedule` run by the sub-group `ranks` of a group of `size` ranks (slots are not renumbered)."""
    return Relabelled(size, ranks[schedule.rank], schedule, ranks)
