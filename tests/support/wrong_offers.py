"""Offers as they lie in a ring, changed so that no lane may take them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from ringcast.wire.header import SIZE
from support.lane_ends import LaneEnds

Change: TypeAlias = "Callable[[LaneEnds, memoryview], object]"  # of the ring from rank 0 to rank 1

HEAD, SIZES = 24, 24 + SIZE  # places of the header, and of the sizes of the frames, behind the first word


def word(at: int, change: int = 1) -> Change:
    """Change a bit of the message, at a byte of it behind its first word."""

    def apply(_: LaneEnds, ring: memoryview) -> None:
        ring[8 + at] ^= change

    return apply


def put(at: int, *words: int) -> Change:
    """Put words into the message, at a byte of it behind its first word."""

    def apply(_: LaneEnds, ring: memoryview) -> None:
        ring[8 + at : 8 + at + 8 * len(words)] = struct.pack(f"<{len(words)}Q", *words)

    return apply


def changes(pieces: int) -> Mapping[str, Change]:
    """Return changes of the first offer in the ring, of so many frames of one piece each, by their names."""
    loans, before = SIZES + 8 * pieces, 8 * pieces
    return {
        **{f"byte {at} of the header": word(HEAD + at) for at in range(SIZE) if not (36 <= at < 40 or 48 <= at < 56)},
        "no transfer": lambda _, ring: ring.__setitem__(slice(8 + HEAD + 36, 8 + HEAD + 40), bytes(4)),
        "sizes of the frames": word(8),
        "a frame of sizes that is longer than all": put(8, 1 << 63),
        "loans that are no pairs": put(8, before + 8, 16 * pieces + 8),
        "no loan": put(8, before + 16 * pieces, 16),
        "another number of pieces": put(8, before - 8, 16 * (pieces + 1) + 8),
        "more bytes lent": word(loans + 24),
        "no bytes lent": put(loans + 24, 0),
        "far too many bytes lent": put(loans + 24, (1 << 64) - 1),
        "memory that is not there": put(loans + 16, 8),
        "memory of the kernel": put(loans + 16, (1 << 64) - 4096),
        "a count of returns that has changed": word(loans + 8),
        "a loan that was taken back": lambda ends, _: [ends.segment(0).returns.__setitem__(i, 9) for i in range(512)],
        "a rank that has left": lambda ends, _: ends.segment(0).left.__setitem__(0, 1),
        "no mark of a loan": lambda _, ring: ring.__setitem__(4, ring[4] ^ 1 << 7),
        "two frames": lambda _, ring: ring.__setitem__(slice(4, 6), b"\0\2"),
        "more frames": lambda _, ring: ring.__setitem__(5, 4),
        "one frame": lambda _, ring: ring.__setitem__(5, 1),
    }
