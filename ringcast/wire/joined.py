"""Several frames in one, behind their sizes. Each frame of a message costs a call on both sides, and an encryption."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise


def join(frames: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """Return frames as one, which `split` divides again.

    >>> [bytes(frame) for frame in split(memoryview(join([b"ab", b"", b"c"])), 3)]
    [b'ab', b'', b'c']
    """
    return b"".join((struct.pack(f"<{len(frames)}I", *map(len, frames)), *frames))


def prefix(count: int) -> int:
    """Return how many bytes stand before so many frames."""
    return 4 * count


def split(data: memoryview, count: int) -> list[memoryview]:
    """Return the frames, so many, that were joined; without a copy.

    Raises:
        ValueError: the sizes do not add up to the data.
    """
    begin = prefix(count)
    if begin > len(data):
        raise ValueError(f"{len(data)} bytes do not hold the sizes of {count} frames")
    ends = list(accumulate(struct.unpack_from(f"<{count}I", data), initial=begin))
    if ends[-1] != len(data):
        raise ValueError(f"the sizes of {count} frames end at {ends[-1]}, the data at {len(data)}")
    return [data[start:end] for start, end in pairwise(ends)]
