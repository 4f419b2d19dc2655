"""A single value as a message that describes itself: a record, then the raw buffer or the pickle."""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ringcast.engine.correspondent import FRAMES, MOST
from ringcast.engine.datatypes import Described, described, dtype_name, parse_dtype
from ringcast.engine.objects import decode, encode, new_frame, pack_record, unpack_record
from ringcast.ops import Array
from ringcast.protocol.operations import put_into_views
from ringcast.wire.header import EAGER_LIMIT, SIZE
from ringcast.wire.joined import join, prefix

_OBJECT = memoryview(pack_record({"kind": "object"}))
_SIZES = struct.Struct(f"<{FRAMES}I")
_OFFERED = struct.Struct(f"<{FRAMES}Q")
_RECORD = SIZE + prefix(FRAMES)  # where the record begins in such a message
_LONGEST = 1024  # bytes of a record that is kept: peers choose it


class SelfDescribing:
    """The sink of a message of unknown size; fulfils `Sink`.

    Attributes:
        source: rank of the job that has sent it, when it has come; with its `tag`.
        count: bytes of the value.
    """

    def __init__(self, out: Array | None = None) -> None:
        self.total: int | None = None
        self.source = self.tag = self.count = 0
        self._out = out  # memory for an array
        self._sizes: Sequence[int] = ()
        self._starts: list[int] = []
        self._parts: list[memoryview] = []  # the record, then, when that is there, memory for the data
        self._record: dict[str, Any] = {}

    @staticmethod
    def frames(value: Any, check_objects: Callable[[], object]) -> list[memoryview]:
        """Return `value` as the frames of a message; arrays are not copied if they are contiguous, nor within objects.

        `check_objects` is called for a Python object, and raises if the job takes none.
        """
        known = described(value)
        if known is None:
            check_objects()
            return [_OBJECT, *encode(value)]
        description, items = known
        return [_packed(description), items.view(np.uint8).data]

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        if len(sizes) < 2 or not sizes[0] or sum(sizes) > sys.maxsize:
            raise ValueError(f"it has {len(sizes)} frames of {sum(sizes)} bytes, not a record and its data")
        self.source, self.tag, self.count = source, tag, sum(sizes[1:])
        self._sizes, self.total = sizes, sum(sizes)
        self._starts = list(accumulate(sizes, initial=0))
        self._parts = [new_frame(sizes[0])]

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (a part may be longer)
        i = bisect_right(self._starts, offset) - 1
        return self._parts[i][offset - self._starts[i] :]

    def put(self, offset: int, data: memoryview) -> None:
        put_into_views(self, offset, data)

    def placed(self, offset: int, length: int) -> None:
        """Make room for the data when the record has come, which says whether they fit into `out` as they are."""
        if offset + length == self._starts[1]:
            self._record = unpack_record(self._parts[0])
            self._parts += [self._place] if self._in_place else map(new_frame, self._sizes[1:])

    @property
    def _in_place(self) -> bool:
        """Whether the data go straight into `out`."""
        out, record = self._out, self._record
        if out is None or record["kind"] == "object" or record["order"] != "C" or self.count > out.nbytes:
            return False
        return parse_dtype(record["dtype"]) == out.dtype

    @property
    def _place(self) -> memoryview:
        assert self._out is not None
        return self._out.reshape(-1).view(np.uint8).data[: self.count]

    def value(self, check_objects: Callable[[], object]) -> Any:
        """Return the value that has arrived; `check_objects` as for `frames`.

        Raises:
            ValueError: it does not fit into `out`.
        """
        out, record = self._out, self._record
        if record["kind"] == "object":
            if out is not None:
                raise ValueError("expected None for a Python object")
            check_objects()
            return decode(self._parts[1:])
        dtype = parse_dtype(record["dtype"])
        array = np.frombuffer(self._parts[1], dtype).reshape(record["shape"], order=record["order"])
        if out is None:
            return array[()] if record["kind"] == "scalar" else array
        if dtype != out.dtype or array.size > out.size:
            raise ValueError(f"expected room for {array.size} items of dtype {dtype_name(dtype)}")
        into = out if out.shape == array.shape else out.reshape(-1)[: array.size].reshape(array.shape)
        if not self._in_place:
            into[...] = array
        return into


@lru_cache(maxsize=256)  # programs send many arrays of one shape
def _packed(description: Described) -> memoryview:
    return memoryview(pack_record(description.record))


# Messages that go at once, as lanes have them: header and joined frames in one; and larger ones, as lanes offer them.


def at_once(value: Any) -> bytes | None:
    """Return a C-contiguous array as the joined frames of a message that goes at once; None for any other value."""
    if type(value) is not np.ndarray or not value.flags.c_contiguous:
        return None
    before = _before(value.dtype, value.shape)
    return None if before is None else before + value.tobytes()


def in_one(frames: Sequence[memoryview]) -> bytes | None:
    """Return frames as the joined ones of a message that goes at once; None if it does not."""
    return join(frames) if len(frames) == FRAMES and sum(map(len, frames)) <= EAGER_LIMIT else None


def in_two(value: Any) -> tuple[bytes, Array] | None:
    """Return the record and the items of a C-contiguous array that can be offered; None for any other value."""
    if type(value) is not np.ndarray or not value.flags.c_contiguous:
        return None
    record = _record(value.dtype, value.shape)
    return None if record is None else (record, value)


@lru_cache(maxsize=256)
def _record(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes | None:
    """Return the record of a C-contiguous array; None if it is none, or too large to be offered."""
    known = described(np.empty(shape, dtype)) if prod(shape) * dtype.itemsize <= MOST else None
    return None if known is None else bytes(_packed(known[0]))


@lru_cache(maxsize=256)
def _before(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes | None:
    """Return all that is before the data in the joined frames of an array; None if it does not go at once."""
    known = described(np.empty(shape, dtype)) if prod(shape) * dtype.itemsize <= EAGER_LIMIT else None
    if known is None:
        return None
    record, nbytes = _packed(known[0]), known[1].nbytes
    return _SIZES.pack(len(record), nbytes) + record if len(record) + nbytes <= EAGER_LIMIT else None


class Opened(NamedTuple):
    """A message that has come at once: what its record says, where its data begin, and their size."""

    message: bytes
    known: Described | None  # None: a Python object
    start: int
    nbytes: int

    def value(self, out: Array | None) -> Any:
        """Return the value; in the memory of `out`, if that is given.

        Raises:
            BaseException: of unpickling.
        """
        known = self.known
        if known is None:
            return decode([memoryview(self.message)[self.start :]])
        order: Any = known.order
        view: Array = np.ndarray(known.shape, known.dtype, self.message, self.start, None, order)
        if out is not None:
            out[...] = view
            return out
        array = view.copy(order)
        return array[()] if known.kind == "scalar" else array


def opened(message: bytes, out: Array | None, *, objects: bool) -> Opened | None:
    """Return a message, header and joined frames, as far as it is understood; None if it is not.

    Nor is a Python object, unless the job takes `objects`, and what does not fit `out` as it is; the caller gives that
    C-contiguous and writeable.
    """
    length, count = _SIZES.unpack_from(message, SIZE)
    start = _RECORD + length
    if start + count != len(message):
        return None
    record = message[_RECORD:start]
    understood, known = _understood(record, count, out, objects=objects)
    return Opened(message, known, start, count) if understood else None


class Offered(NamedTuple):
    """A message that is offered: what its record says, and memory for its data, of this size."""

    known: Described | None  # None: a Python object
    memory: Any
    nbytes: int

    def value(self, out: Array | None) -> Any:
        """Return the value, whose data have come.

        Raises:
            BaseException: of unpickling.
        """
        known, memory = self.known, self.memory
        if known is None:
            return decode([memory])
        if out is not None:
            return out
        array = memory if known.order == "C" else memory.T
        return array[()] if known.kind == "scalar" else array


def offered(message: bytes, out: Array | None, *, objects: bool) -> Offered | None:
    """Return a message that is offered, from its header, sizes and record; None in the cases of `opened`."""
    record, (_, count) = message[SIZE + _OFFERED.size :], _OFFERED.unpack_from(message, SIZE)
    understood, known = _understood(record, count, out, objects=objects)
    if not understood or count > MOST:
        return None
    if known is None:
        return Offered(None, new_frame(count), count)
    if out is not None:
        return Offered(known, out, count)
    return Offered(known, np.empty(known.shape if known.order == "C" else known.shape[::-1], known.dtype), count)


def _understood(record: bytes, count: int, out: Array | None, *, objects: bool) -> tuple[bool, Described | None]:
    """Return whether a value of `count` bytes with this record can be taken, and what it is; None: an object."""
    if record == _OBJECT:
        return out is None and objects, None
    found = _known(record)
    if found is None or found[1] != count:
        return False, None
    known = found[0]
    if out is None:
        return True, known
    return known.shape == out.shape and known.order == "C" and known.dtype == out.dtype, known


@lru_cache(maxsize=256)
def _known(record: bytes) -> tuple[Described, int] | None:
    """Return what a record says of an array, and the bytes of its data; None if that is not understood."""
    try:
        facts = unpack_record(memoryview(record))
        kind, dtype, order, shape = facts["kind"], parse_dtype(facts["dtype"]), facts["order"], tuple(facts["shape"])
        nbytes = prod(shape) * dtype.itemsize
        if len(record) > _LONGEST or dtype.hasobject or kind not in ("array", "scalar") or nbytes > MOST:
            return None
        np.ndarray(shape, dtype, bytes(nbytes), 0, None, order)
    except Exception:  # whatever a peer has sent: the engine looks at it again, and says so
        return None
    return Described(kind, dtype, shape, order), nbytes
