"""A single value as a message that describes itself: a record, then the raw buffer or the pickle."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from ringcast.engine.datatypes import Described, described, dtype_name, parse_dtype
from ringcast.engine.objects import decode, encode, new_frame, pack_record, unpack_record
from ringcast.ops import Array
from ringcast.protocol.operations import put_into_views

_OBJECT = memoryview(pack_record({"kind": "object"}))


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
