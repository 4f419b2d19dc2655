"""State the pre- and postconditions of the collectives as plain data: the values of every rank before and after.

The value in a slot is a pair (piece, contributors). `piece` is the slot of the user's buffer that the data belongs
to; `contributors` is a bit mask of the ranks whose data is combined in it, bit r for rank r. Copying keeps a value,
an operator joins the contributors. `verify` runs schedules on such values, and so needs no arithmetic and no data.

Slots are numbered as in `ringcast.schedules.schedule`: part after part, block after block. A slot that `end` does not
mention may end as anything, as the buffers of an MPI reduction do on the ranks that are not its root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.wire.collective import COLLECTIVES

Value: TypeAlias = tuple[int, int]
Held: TypeAlias = Mapping[int, Value]


@dataclass(frozen=True)
class Postcondition:
    """For each rank the slots that it holds at the start, and must hold at the end, with their values.

    `alike`: any piece fits into any slot, as all have the same size, or ranks size their slots by their counts.
    """

    start: tuple[Held, ...]
    end: tuple[Held, ...]
    alike: bool = False


@dataclass(frozen=True)
class _Case:
    """One use of a collective: the number of ranks, the parts of the buffer, and the parts without data."""

    size: int
    root: int
    parts: tuple[int, ...]
    empty: frozenset[int]
    distance: int = 0

    def blocks(self, *, wanted: bool = False) -> list[range]:
        """Return the slots of each part; with `wanted`, parts without data have none."""
        ends = list(accumulate(self.parts))
        every = [range(end - n, end) for n, end in zip(self.parts, ends, strict=True)]
        return [range(0) if wanted and j in self.empty else part for j, part in enumerate(every)]

    def buffer(self, contributors: int, *, wanted: bool = False) -> Held:
        """Return the values of the whole buffer."""
        return _values((s for part in self.blocks(wanted=wanted) for s in part), contributors)

    def at_root(self, held: Held) -> tuple[Held, ...]:
        return tuple(held if r == self.root else {} for r in range(self.size))

    def at_all(self, held: Held) -> tuple[Held, ...]:
        return (held,) * self.size

    def own_buffers(self) -> tuple[Held, ...]:
        """Every rank has its own contribution to every slot."""
        return tuple(self.buffer(1 << r) for r in range(self.size))

    def own_parts(self) -> tuple[Held, ...]:
        """Part j is at rank j, as its own contribution."""
        return tuple(_values(part, 1 << j) for j, part in enumerate(self.blocks()))

    def all_parts(self) -> Held:
        """Return the values of a buffer whose part j is the contribution of rank j."""
        return {s: v for j, part in enumerate(self.blocks(wanted=True)) for s, v in _values(part, 1 << j).items()}

    def run(self) -> Held:
        """Return the values of a buffer in which the parts of all ranks have become one sorted run."""
        return {s: (piece, self.everyone) for s, (piece, _) in self.all_parts().items()}

    def dealt(self, contributors: int) -> tuple[Held, ...]:
        """Part j is at rank j, with data of all `contributors`."""
        return tuple(_values(part, contributors) for part in self.blocks(wanted=True))

    @property
    def everyone(self) -> int:
        return (1 << self.size) - 1


def _values(slots: Iterable[int], contributors: int) -> Held:
    return {s: (s, contributors) for s in slots}


def _bcast(case: _Case) -> Postcondition:
    of_root = 1 << case.root
    return Postcondition(case.at_root(case.buffer(of_root)), case.at_all(case.buffer(of_root, wanted=True)))


def _reduce(case: _Case) -> Postcondition:
    return Postcondition(case.own_buffers(), case.at_root(case.buffer(case.everyone, wanted=True)))


def _allreduce(case: _Case) -> Postcondition:
    return Postcondition(case.own_buffers(), case.at_all(case.buffer(case.everyone, wanted=True)))


def _reduce_scatter(case: _Case) -> Postcondition:
    return Postcondition(case.own_buffers(), case.dealt(case.everyone))


def _scatter(case: _Case) -> Postcondition:
    return Postcondition(case.at_root(case.buffer(1 << case.root)), case.dealt(1 << case.root))


def _gather(case: _Case) -> Postcondition:
    return Postcondition(case.own_parts(), case.at_root(case.all_parts()))


def _allgather(case: _Case) -> Postcondition:
    return Postcondition(case.own_parts(), case.at_all(case.all_parts()))


def _merge_sorted(case: _Case) -> Postcondition:
    return Postcondition(case.own_parts(), case.at_all(case.run()))


def _scan(case: _Case) -> Postcondition:
    return Postcondition(case.own_buffers(), tuple(case.buffer((2 << r) - 1) for r in range(case.size)))


def _exscan(case: _Case) -> Postcondition:
    before = (case.buffer((1 << r) - 1) if r else {} for r in range(case.size))
    return Postcondition(case.own_buffers(), tuple(before))


def _alltoall(case: _Case) -> Postcondition:
    """Parts 0 to p-1 are for these ranks, parts p to 2p-1 are from them; each rank copies its own part itself."""
    p, blocks = case.size, case.blocks()
    start = tuple({s: (s, 1 << r) for part in blocks[:p] for s in part} for r in range(p))
    end = tuple(
        {into: (out, 1 << j) for j in range(p) if j != r for out, into in zip(blocks[r], blocks[p + j], strict=True)}
        for r in range(p)
    )
    return Postcondition(start, end, alike=True)


def _shift(case: _Case) -> Postcondition:
    """Part 0 is a rank's data, part 1 its result; where both are the same, the caller copies."""
    mine, theirs = case.blocks()
    start = tuple(_values(mine, 1 << r) for r in range(case.size))
    sources = [(r - case.distance) % case.size for r in range(case.size)]
    end = tuple(
        {} if j == r else {into: (out, 1 << j) for out, into in zip(mine, theirs, strict=True)}
        for r, j in enumerate(sources)
    )
    return Postcondition(start, end, alike=True)


# A barrier is an allreduce of empty values: no rank may leave before it has heard of all ranks.
POSTCONDITIONS: Mapping[str, Callable[[_Case], Postcondition]] = MappingProxyType(
    {
        "bcast": _bcast,
        "reduce": _reduce,
        "allreduce": _allreduce,
        "barrier": _allreduce,
        "scan": _scan,
        "exscan": _exscan,
        "alltoall": _alltoall,
        "alltoallv": _alltoall,
        "shift": _shift,
        "reduce_scatter": _reduce_scatter,
        "scatter": _scatter,
        "gather": _gather,
        "allgather": _allgather,
        "allgatherv": _allgather,
        "merge_sorted": _merge_sorted,
    }
)


def postcondition(
    collective: str,
    size: int,
    parts: Sequence[int],
    *,
    root: int = 0,
    empty: frozenset[int] = frozenset(),
    distance: int = 0,
) -> Postcondition:
    """Return the values that each of `size` ranks holds before and after `collective`.

    `parts` is the attribute of the schedules; collectives that gather or scatter have one part per rank. The parts in
    `empty` have blocks without data: an algorithm may move them, and need not. `root` and `distance` matter only for
    collectives that have one.

    >>> postcondition("allgather", 2, (1, 1)).end[0]
    {0: (0, 1), 1: (1, 2)}
    >>> postcondition("reduce", 3, (2,), root=1).end
    ({}, {0: (0, 7), 1: (1, 7)}, {})
    """
    facts = COLLECTIVES.get(collective)
    if facts is None or facts.algorithms not in POSTCONDITIONS:
        raise ValueError(f"collective must be one of {', '.join(sorted(POSTCONDITIONS))}, not {collective!r}")
    if not 0 <= root < size:
        raise ValueError(f"root must be in 0..{size - 1}, not {root}")
    if (needed := facts.parts_of(size)) not in (None, len(parts)):
        raise ValueError(f"{collective} of {size} ranks has {needed} parts, not {len(parts)}")
    if not empty <= frozenset(range(len(parts))):
        raise ValueError(f"empty names part {max(empty)}, but there are {len(parts)} parts")
    return POSTCONDITIONS[facts.algorithms](_Case(size, root, tuple(parts), empty, distance))
