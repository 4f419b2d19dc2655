"""Make the allgather on a hypercube, and its compositions for long messages: broadcast, reduction, allreduce.

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, sections 4.2.3 and 4.7. Our addition: any
number of ranks, by folding (Rabenseifner, 2004), or on the circulant graph where there is a root.

p ranks; d = floor(log2 p); f = p - 2^d. Without the ranks 2i+1, i < f, there are 2^d ranks: the nodes of the hypercube.
Rank 2i stands for rank 2i+1, too.
"""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.schedules import circulant
from ringcast.schedules.one_to_all import Scatter
from ringcast.schedules.schedule import IDLE, STORE, Schedule, Slots, Step, concat, joined, reverse


@dataclass(frozen=True)
class AllGather(Schedule):
    """Allgather in d rounds, two more unless p is a power of two.

    In round k nodes that differ in bit k exchange all their parts, which are the parts of 2^k nodes in a row. Before,
    rank 2i+1 sends its part to 2i (fold), and gets all other parts from 2i in the end.
    """

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return rounds(self.size)

    def _step(self, i: int) -> Step:
        r, f = self.rank, folded(self.size)
        if f and i in (0, len(self) - 1):
            if r >= 2 * f:
                return IDLE
            return self._unfold() if i else self._fold()
        if r < 2 * f and r % 2:
            return IDLE
        node = r // 2 if r < 2 * f else r - f
        bit = 1 << (i - 1 if f else i)
        mine = node - node % bit
        peer = first_rank(node ^ bit, f)
        return Step(peer, self._block(mine, bit), peer, self._block(mine ^ bit, bit))

    def _block(self, node: int, length: int) -> range:
        """Return the parts of `length` nodes from `node` on."""
        f = folded(self.size)
        return range(first_rank(node, f), first_rank(node + length, f))

    def _fold(self) -> Step:
        r = self.rank
        return Step(r - 1, (r,)) if r % 2 else Step(recv_from=r + 1, recv=(r + 1,))

    def _unfold(self) -> Step:
        odd = self.rank | 1
        others = (*range(odd), *range(odd + 1, self.size))
        return Step(recv_from=odd - 1, recv=others) if self.rank == odd else Step(odd, others)


@dataclass(frozen=True)
class Completion(Schedule):
    """The allgather after a scatter: ranks that passed pieces on have them already, and do not get them again."""

    scatter: Scatter
    allgather: Schedule

    @property
    def parts(self) -> tuple[int, ...]:
        return self.scatter.parts

    def __len__(self) -> int:
        return len(self.allgather)

    def _step(self, i: int) -> Step:
        step = self.allgather[i]
        send, recv = self._news(step.send_to, step.send), self._news(self.rank, step.recv)
        return Step(step.send_to if send else None, send, step.recv_from if recv else None, recv)

    def _news(self, rank: int | None, slots: Slots) -> tuple[int, ...]:
        """Return the slots among `slots` that `rank` does not have from the scatter."""
        had = set() if rank is None else set(self.scatter.held_by(rank))
        return tuple(int(slot) for slot in slots if slot not in had)


def folded(p: int) -> int:
    """Return f, the number of ranks that are not nodes.

    >>> [folded(p) for p in (1, 2, 3, 4, 5, 8, 11)]
    [0, 0, 1, 0, 1, 0, 3]
    """
    return p - (1 << p.bit_length() - 1)


def first_rank(node: int, f: int) -> int:
    """Return the rank at `node`, which is also the number of parts of the nodes before it."""
    return node + min(node, f)


def rounds(p: int) -> int:
    """Return d, or d + 2 if p is not a power of two."""
    return p.bit_length() - 1 + (2 if folded(p) else 0)


def bcast(size: int, rank: int, *, root: int = 0) -> Schedule:
    """Return scatter, then allgather, of one value cut into p pieces: 2q rounds, every rank gets its pieces once."""
    scatter = Scatter(size, rank, root)
    return joined(concat(scatter, Completion(size, rank, scatter, _allgather(size, rank))))


def reduce(size: int, rank: int, *, root: int = 0) -> Schedule:
    """Return reduce_scatter, then gather, of one value cut into p pieces: 2q rounds, commutative operators."""
    return joined(concat(reverse(_allgather(size, rank)), reverse(Scatter(size, rank, root), STORE)))


def allreduce(size: int, rank: int) -> Schedule:
    """Return the allgather backwards, then forwards: a gather and a scatter in between would cancel each other.

    Every piece has one owner, so all ranks end with the same bits. Commutative operators.
    """
    allgather = AllGather(size, rank)
    return joined(concat(reverse(allgather), allgather))


def _allgather(size: int, rank: int) -> Schedule:
    """Return the allgather, in q rounds: other numbers of ranks than powers of two take the circulant graph."""
    return circulant.allgather(size, rank) if folded(size) else AllGather(size, rank)
