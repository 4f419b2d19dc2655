"""Several frames in one: their number and their sizes, then the frames. Each frame of a message costs a system call."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

_COUNT = struct.Struct("<I")


def join(frames: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """Return frames as one, of which `split` makes them again.

    >>> [bytes(frame) for frame in split(memoryview(join([b"ab", b"", b"c"])))]
    [b'ab', b'', b'c']
    """
    return b"".join((struct.pack(f"<I{len(frames)}I", len(frames), *map(len, frames)), *frames))


def split(data: memoryview) -> list[memoryview]:
    """Return the frames in a joined one, without a copy.

    Raises:
        ValueError: the sizes do not add up to the data.
    """
    if len(data) < _COUNT.size:
        raise ValueError(f"{len(data)} bytes do not hold the number of frames")
    (count,) = _COUNT.unpack_from(data)
    begin = _COUNT.size * (count + 1)
    if begin > len(data):
        raise ValueError(f"{len(data)} bytes do not hold the sizes of {count} frames")
    ends = list(accumulate(struct.unpack_from(f"<{count}I", data, _COUNT.size), initial=begin))
    if ends[-1] != len(data):
        raise ValueError(f"the sizes of {count} frames end at {ends[-1]}, the data at {len(data)}")
    return [data[start:end] for start, end in pairwise(ends)]
