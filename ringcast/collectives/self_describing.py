"""A single value as a message that tells the receiver what it is: a record, then the raw buffer or the pickle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ringcast.engine.datatypes import described, parse_dtype
from ringcast.engine.objects import Codec, pack_record, unpack_record


class SelfDescribing:
    """The sink of a message of unknown size; fulfils `Sink`."""

    def __init__(self) -> None:
        self.total: int | None = None
        self._parts: list[memoryview] = []
        self._starts: list[int] = []

    @staticmethod
    def frames(value: Any, codec: Callable[[], Codec]) -> list[memoryview]:
        """Return `value` as the frames of a message; arrays are not copied if they are contiguous.

        `codec` is asked for how objects travel, and may refuse them.
        """
        known = described(value)
        if known is None:
            return [memoryview(pack_record({"kind": "object"})), memoryview(codec()[0](value))]
        record, items = known
        return [memoryview(pack_record(record)), items.view(np.uint8).data]

    def announce(self, sizes: Sequence[int]) -> None:
        if len(sizes) != 2:
            raise ValueError(f"it has {len(sizes)} frames, not a record and its data")
        self.total = sum(sizes)
        self._parts = [np.empty(size, np.uint8).data for size in sizes]
        self._starts = list(accumulate(sizes, initial=0))

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (a part may be longer)
        i = 0 if offset < self._starts[1] else 1
        return self._parts[i][offset - self._starts[i] :]

    def placed(self, offset: int, length: int) -> None:
        """Nothing to do: the value is made when all is there."""

    def take(self, frames: Sequence[memoryview]) -> None:
        """Take a copy of frames that did not travel."""
        self.announce([len(frame) for frame in frames])
        for part, frame in zip(self._parts, frames, strict=True):
            part[:] = frame

    def value(self, codec: Callable[[], Codec]) -> Any:
        """Return the value that has arrived; `codec` as for `frames`."""
        record, data = unpack_record(self._parts[0]), self._parts[1]
        if record["kind"] == "object":
            return codec()[1](data)
        array = np.frombuffer(data, parse_dtype(record["dtype"])).reshape(record["shape"], order=record["order"])
        return array[()] if record["kind"] == "scalar" else array
