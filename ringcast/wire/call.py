"""Arguments of a collective call, and their fingerprint, by which two ranks detect a mismatch."""

from __future__ import annotations

import os
import zlib
from functools import cached_property
from types import FrameType
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.wire.collective import BY_BYTE, COLLECTIVES, Parts, byte

Site: TypeAlias = tuple[str, int]  # file and line of the program that made a call
NOWHERE: Site = ("", 0)  # where that is not known


def site_of(frame: FrameType | None) -> Site:
    """Return file and line of a frame of the program."""
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else NOWHERE


def in_words(operation: str, site: Site) -> str:
    """Return a call and its place in the program.

    >>> in_words("ibarrier", ("/home/me/prog.py", 12))
    'ibarrier at prog.py:12'
    """
    file, line = site
    return f"{operation} at {os.path.basename(file)}:{line}" if file else operation


@dataclass(frozen=True)
class Call:
    """The arguments on which all ranks of a collective must agree; printable, and hashed into 64 bits."""

    collective: str
    dtype: str = ""
    shape: tuple[int, ...] = ()  # of the array, or the counts of the v-forms; the numbers that create or cart is given
    op: str = ""
    root: int | None = None
    algorithm: str = ""
    nblocks: int = 1
    distance: int | None = None
    topology: str = ""  # name of the graph whose neighbours it is between

    def __str__(self) -> str:
        facts = [
            self.data(),
            f"op {self.op}" if self.op else "",
            f"root {self.root}" if self.root is not None else "",
            f"distance {self.distance}" if self.distance is not None else "",
            f"algorithm {self.algorithm}, nblocks {self.nblocks}" if self.algorithm else "",
            f"on {self.topology}" if self.topology else "",
        ]
        return f"{self.collective}({', '.join(filter(None, facts))})"

    def data(self) -> str:
        """Return what the data are like; of a call that has none, what its numbers mean."""
        if self.collective == "create":
            return f"ranks {_short(_plain(self.shape))}"
        if self.collective == "cart":
            axes = len(self.shape) // 2
            return f"dims {_short(_plain(self.shape[:axes]))}, periods {_short(tuple(map(bool, self.shape[axes:])))}"
        if self.dtype.endswith(COUNTS_OF):
            return f"dtype {self.dtype.removesuffix(COUNTS_OF)}, rows of shape {_short(self.shape)}, counts left out"
        return f"dtype {self.dtype}, shape {_short(_plain(self.shape))}" if self.dtype else ""

    @cached_property
    def fingerprint(self) -> int:
        """64 bits: a byte each for collective, dtype, op, root, algorithm or topology; 24 bits for everything."""
        root = 0 if self.root is None else int(self.root) + 1  # as it is: roots that are near each other always differ
        algorithm = f"{self.algorithm}/{self.nblocks}" + (f" on {self.topology}" if self.topology else "")
        aspects = byte(self.collective), byte(self.dtype), byte(self.op), root & 0xFF, byte(algorithm)
        everything = (self.collective, self.dtype, self.op, root, algorithm, _plain(self.shape), self.distance)
        return int.from_bytes(bytes(aspects), "big") << 24 | zlib.crc32(repr(everything).encode()) >> 8

    def difference(self, fingerprint: int) -> str:
        """Return in words how the call with `fingerprint` differs from this one."""
        theirs, mine = fingerprint.to_bytes(8, "big"), self.fingerprint.to_bytes(8, "big")
        if theirs[0] != mine[0]:
            return f"{BY_BYTE.get(theirs[0], 'another call')}, not {self.collective}"
        if counts := self._counts(theirs[1], theirs[3]):
            return f"{self.collective} {counts}"
        aspects = (*_ASPECTS, "topology" if self.topology else "algorithm or nblocks")
        names = [name for i, name in enumerate(aspects, start=1) if theirs[i] != mine[i]]
        rest = _NUMBERS.get(self.collective, "shape or counts")
        if self.distance is not None or self.topology:
            rest = "topology or shape" if self.topology else "distance or shape"
        text = f"{self.collective} with another {' and another '.join(names or [rest])}"
        if theirs[1] != mine[1] and byte(OBJECT) in (theirs[1], mine[1]):
            text += " (a Python object on one side, a numpy array or scalar on the other)"
        return text

    def _counts(self, dtype: int, root: int) -> str:
        """Return in words that counts are given on one side only, if these bytes of the other side's call say so."""
        facts = COLLECTIVES.get(self.collective)  # of create and the like there are none
        if facts is None or facts.parts is not Parts.COUNTS:
            return ""
        plain = self.dtype.removesuffix(COUNTS_OF)
        if plain == self.dtype:  # of texts the stage that tells counts has no width; it never has a root
            left_out = not root and dtype in (byte(plain + COUNTS_OF), byte(plain[:1] + COUNTS_OF))
            return "without counts, which are given here" if left_out else ""
        given = dtype == byte(plain) or (root and dtype != byte(OBJECT))
        return "with counts, which are left out here" if given else ""


COUNTS_OF = " (counts of)"  # ends the dtype of a stage in which ranks tell how many rows of it they have
OBJECT = "object"  # the dtype of everything that is not sent as a raw buffer
_ASPECTS = ("dtype", "op", "root")
_NUMBERS = {"create": "list of ranks", "cart": "dims or periods"}  # of calls without data


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return Python's integers: numpy's are equal to them, but print differently."""
    return tuple(map(int, shape))


def _short(values: tuple[int, ...]) -> str:
    """Return some numbers, or truth values, in parentheses; of many only the first ones."""
    return str(values) if len(values) <= 8 else f"({', '.join(map(str, values[:8]))}, …)"
