"""Make one-to-all broadcasts, by a message to each rank or by recursive doubling, and the same from every rank in turn.

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, sections 4.1, 4.2 and 4.4. Backwards these
are the reductions and the gathers. Our addition: any number of ranks, where the book has powers of two.

p ranks; q = ceil(log2 p). Ranks have labels; the root has label 0.
"""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.schedules.circulant import window
from ringcast.schedules.schedule import IDLE, Schedule, Slots, Step


@dataclass(frozen=True)
class Linear(Schedule):
    """Broadcast by p-1 messages from the root, the next rank first."""

    root: int = 0

    def __len__(self) -> int:
        return self.size - 1

    def _step(self, i: int) -> Step:
        other = (self.root + 1 + i) % self.size
        if self.rank == self.root:
            return Step(other, self._slots(other))
        return Step(recv_from=self.root, recv=self._slots(other)) if self.rank == other else IDLE

    def _slots(self, rank: int) -> Slots:  # noqa: ARG002 (all ranks get the same)
        return (0,)


@dataclass(frozen=True)
class LinearScatter(Linear):
    """Scatter by p-1 messages from the root; part j is for rank j."""

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def _slots(self, rank: int) -> Slots:
        return (rank,)


@dataclass(frozen=True)
class Binomial(Schedule):
    """Broadcast in q rounds by recursive doubling, on a ring: labels count the ranks from the root on.

    A rank that has the value serves a range of labels. It sends the value to the middle of the range, whose upper half
    the receiver serves from then on. So the messages of a round use different links.
    """

    root: int = 0

    def __len__(self) -> int:
        return (self.size - 1).bit_length()

    def label_of(self, rank: int) -> int:
        return (rank - self.root) % self.size

    def rank_of(self, label: int) -> int:
        return (label + self.root) % self.size

    def _step(self, i: int) -> Step:
        half = 1 << len(self) - 1 - i
        label = self.label_of(self.rank)
        if label % half:
            return IDLE
        if label & half:
            return Step(recv_from=self.rank_of(label - half), recv=self._slots(label, half))
        other = label + half
        return Step(self.rank_of(other), self._slots(other, half)) if other < self.size else IDLE

    def _slots(self, label: int, length: int) -> Slots:  # noqa: ARG002 (all ranks get the same)
        """Return the slots for the ranks of up to `length` labels from `label` on."""
        return (0,)


@dataclass(frozen=True)
class Hypercube(Binomial):
    """The binomial broadcast along the edges of a hypercube: a label is rank XOR root.

    This needs a power of two ranks; with other numbers ranks have the labels of the ring.
    """

    @property
    def _cube(self) -> bool:
        return self.size & (self.size - 1) == 0

    def label_of(self, rank: int) -> int:
        return rank ^ self.root if self._cube else super().label_of(rank)

    def rank_of(self, label: int) -> int:
        return label ^ self.root if self._cube else super().rank_of(label)


@dataclass(frozen=True)
class Scatter(Hypercube):
    """Scatter in q rounds: the messages of `Hypercube`, with the parts for the ranks that the receiver serves."""

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def held_by(self, rank: int) -> Slots:
        """Return the slots that the rank has at the end: its own part, and the parts that it passed on."""
        label = self.label_of(rank)
        return self._slots(label, label & -label or self.size)

    def _slots(self, label: int, length: int) -> Slots:
        start = self.rank_of(label)
        if self._cube:  # the ranks of a subcube are consecutive, in any order of their labels
            first = start - start % length
            return range(first, first + length)
        return window(start, min(length, self.size - label), self.size)


@dataclass(frozen=True)
class Broadcasts(Schedule):
    """Allgather by p broadcasts, one after the other: p*q rounds."""

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return self.size * (self.size - 1).bit_length()

    def _step(self, i: int) -> Step:
        root, k = divmod(i, (self.size - 1).bit_length())
        step = Binomial(self.size, self.rank, root)._step(k)
        if step is IDLE:  # in nearly all rounds
            return IDLE
        return Step(step.send_to, (root,) * len(step.send), step.recv_from, (root,) * len(step.recv))
