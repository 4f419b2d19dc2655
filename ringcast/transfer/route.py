"""Choose how a segment's pieces travel: along a chain of ranks, or each by the broadcast that is best for its size.

Pieces follow each other without a gap, so that a chain is filled once in a segment, and each rank sends a byte once. A
circulant broadcast is filled and emptied once in a piece: its root sends `q-1` blocks more, where `q = ceil(log2 p)`.
"""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.transfer.layout import CHUNK, PIECE

_SHARE = 50  # the chain is to be full after so small a part of the segment
_BLOCK = 32 << 10  # bytes, at least: below, time goes into messages
_BLOCKS = 32  # in which the cost model has a piece broadcast, on links of 20 to 100 Mbit/s


@dataclass(frozen=True, slots=True)
class Route:
    """How pieces are broadcast: an algorithm, and bytes of a block; None leaves both to the cost model."""

    algorithm: str | None = None
    block: int | None = None

    def nblocks(self, nbytes: int) -> int | None:
        return None if self.block is None else max(1, -(-nbytes // self.block))


def route(size: int, nbytes: int) -> Route:
    """Return the route of a segment of `nbytes` bytes among `size` ranks with the least wait for the root.

    >>> route(8, 100_000_000)
    Route(algorithm='linear_pipeline', block=333333)
    >>> route(1000, 20_000_000)
    Route(algorithm=None, block=None)
    """
    hops, q = max(size - 2, 0), (size - 1).bit_length()
    block = max(_BLOCK, nbytes // (_SHARE * hops)) if hops else PIECE * CHUNK
    if hops * block * _BLOCKS > (q - 1) * nbytes:
        return Route()
    return Route("linear_pipeline", block)
