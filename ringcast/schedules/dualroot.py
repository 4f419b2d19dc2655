"""Make the allreduce of n blocks over two trees whose roots exchange: in rank order, in a pipeline up and down.

Träff, "A doubly-pipelined, dual-root reduction-to-all algorithm", arXiv 2109.12626. Our addition: each message has its
round, so that step i is round i on all ranks.

p ranks; n blocks. The first h = ceil(p/2) ranks are one tree, the others are the other; both are numbered in
post-order: the root is the last rank, its first child the rank before it, the second the rank before the first child's
subtree. Each rank adds its children's sums on the left, so that rank order is kept.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from ringcast._util.dataclass import dataclass
from ringcast.schedules.schedule import COMBINE_LEFT, COMBINE_RIGHT, STORE, Accept, Copy, Nothing, Schedule, Step


@dataclass(frozen=True)
class DualRoot(Schedule):
    """Allreduce in about 3n + 4 log2 p rounds of a block each; any associative operator on elements.

    A block goes up (combined on its way), from root to root, and down; a new one starts every three rounds, as a rank
    has three peers. Both roots form the same product of two, so all ranks end with the same bits.

    Slots: the n blocks, and for each a copy that the roots send while the block itself changes.
    """

    nblocks: int

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.nblocks,)

    @property
    def scratch(self) -> tuple[int, ...]:
        return tuple(range(self.nblocks))

    def __len__(self) -> int:
        return dual_root_rounds(self.size, self.nblocks)

    def _step(self, i: int) -> Step:
        out, into = self._turn(self._out, i), self._turn(self._in, i)
        to = None if out is None else out.stream.peer
        send = () if out is None else (out.block,)
        if into is None:
            return Step(to, send)
        recv, stream = (into.block,), into.stream
        if send != recv:
            return Step(to, send, stream.peer, recv, stream.accept)
        copy = Copy(self.nblocks + into.block, into.block)  # only roots exchange the same block
        return Step(to, (copy.dst,), stream.peer, recv, stream.accept, (copy,))

    def _turn(self, streams: tuple[_Stream, ...], i: int) -> _Turn | None:
        """Return the block that moves in round i, and its stream; at most one stream moves in a round."""
        for stream in streams:
            block, rest = divmod(i - stream.first, _period(self.size))
            if rest == 0 and 0 <= block < self.nblocks:
                return _Turn(stream, block)
        return None

    @cached_property
    def _out(self) -> tuple[_Stream, ...]:
        node, parent = _place(self.size, self.rank)
        children = (_Stream(child.rank, child.down) for child in node.children())
        return (_Stream(self._other_root if parent is None else parent.rank, node.up), *children)

    @cached_property
    def _in(self) -> tuple[_Stream, ...]:
        node, parent = _place(self.size, self.rank)
        children = [_Stream(child.rank, child.up, COMBINE_LEFT) for child in node.children()]
        if parent is not None:
            return (*children, _Stream(parent.rank, node.down, STORE))
        accept = COMBINE_RIGHT if self.rank < self._other_root else COMBINE_LEFT
        return (*children, _Stream(self._other_root, node.down, accept))

    @property
    def _other_root(self) -> int:
        lower, upper = _half(self.size) - 1, self.size - 1
        return lower if self.rank == upper else upper


@dataclass(frozen=True)
class _Stream:
    """All blocks, one after the other, to or from one peer; block 0 in round `first`."""

    peer: int
    first: int
    accept: Accept = STORE


@dataclass(frozen=True)
class _Turn:
    """One block of a stream."""

    stream: _Stream
    block: int


@dataclass(frozen=True)
class _Node:
    """A rank in its tree; its subtree consists of the `size` ranks up to itself.

    up: the round in which its block 0 goes to its parent, or between the roots.
    down: the round in which its block 0 comes back complete.
    """

    rank: int
    size: int
    up: int
    down: int

    def children(self) -> tuple[_Node, ...]:
        """Return the first child and the second; the first is served first, upwards and downwards."""
        first, second = _subtrees(self.size)
        if first == 0:
            return ()
        if second == 0:
            return (_Node(self.rank - 1, first, self.up - 1, self.down + 1),)
        return (
            _Node(self.rank - 1, first, self.up - 2, self.down + 1),
            _Node(self.rank - 1 - first, second, self.up - 1, self.down + 2),
        )


def _half(p: int) -> int:
    """Return h, the number of ranks in the first tree."""
    return (p + 1) // 2


def _subtrees(size: int) -> tuple[int, int]:
    """Return the sizes of the subtrees of the two children in a tree of `size` ranks."""
    return size // 2, (size - 1) // 2


def _period(p: int) -> int:
    """Return the number of rounds from one block to the next: the most peers of a rank."""
    return min(_half(p), 3)


@lru_cache(maxsize=1024)
def _latency(size: int) -> tuple[int, int]:
    """Return the rounds that a block needs up and down a tree of `size` ranks, in O(log size)."""
    first, second = _subtrees(size)
    if first == 0:
        return 0, 0
    (up, down), (up2, down2) = _latency(first), _latency(second) if second else (0, 0)
    if second == 0:
        return 1 + up, 1 + down
    return max(2 + up, 1 + up2), max(1 + down, 2 + down2)


@lru_cache(maxsize=1024)
def _place(p: int, rank: int) -> tuple[_Node, _Node | None]:
    """Return the nodes of `rank` and of its parent."""
    h = _half(p)
    exchange = _latency(h)[0]
    node = _Node(h - 1, h, exchange, exchange) if rank < h else _Node(p - 1, p - h, exchange, exchange)
    parent = None
    while node.rank != rank:
        node, parent = next(child for child in node.children()[::-1] if rank <= child.rank), node
    return node, parent


def dual_root_rounds(p: int, nblocks: int) -> int:
    """Return the number of rounds, in O(log p).

    >>> [dual_root_rounds(p, 1) for p in (1, 2, 3, 5, 14, 30)], dual_root_rounds(30, 10)
    ([0, 1, 3, 5, 9, 13], 40)
    """
    return 1 + sum(_latency(_half(p))) + _period(p) * (nblocks - 1) if p > 1 else 0


def dual_root(size: int, rank: int, *, nblocks: int) -> Schedule:
    """Return the allreduce of n blocks over two trees; any associative operator on elements."""
    return Nothing(size, rank, (nblocks,)) if size == 1 else DualRoot(size, rank, nblocks)
