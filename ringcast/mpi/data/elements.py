"""Elements of a datatype in memory of the program."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ringcast.mpi.base.exceptions import ERR_ARG, ERR_COUNT, ERR_OP, Exception
from ringcast.mpi.data.definition import Definition
from ringcast.mpi.data.exporters import NOTHING, address_of, at_address
from ringcast.mpi.data.layout import LARGEST, Bytes


class Elements:
    """`count` elements of a datatype in memory of the program.

    Attributes:
        nbytes: bytes of data, without gaps.
        definition: the datatype.
        source: the program's memory around the data, or the memory of the data if given by addresses.
        start: byte of `source` at which the data begin.
        memory: `source` from `start` to the end of the data.
        gaps: whether there are gaps in memory, so that data are copied to be sent.
    """

    __slots__ = ("_origin", "count", "definition", "gaps", "memory", "nbytes", "source", "start")

    def __init__(self, memory: Bytes, origin: int, count: int, definition: Definition) -> None:
        self.memory, self.source, self.start = memory, memory, 0
        self._origin, self.gaps = origin, False  # the origin of element 0, in `memory`
        self.definition, self.count = definition, count
        self.nbytes = count * definition.layout.size

    @classmethod
    def placed(cls, source: Bytes | None, start: int, count: int, definition: Definition) -> Self:
        """Return `count` elements from byte `start` of `source`; without a source, `start` is an address."""
        layout = definition.layout
        nbytes = layout.size * count
        if source is not None and nbytes == source.nbytes and not start and layout.dense and not layout.true_lb:
            return cls(source, 0, count, definition)
        if not nbytes:
            return cls(NOTHING, 0, count, definition)
        if nbytes > LARGEST:
            raise Exception(ERR_COUNT, f"{count} elements have {nbytes} bytes, no number of 64 bits")
        last = (count - 1) * layout.extent
        first, end = start + min(0, last) + layout.true_lb, start + max(0, last) + layout.true_ub
        memory = _at(first, end) if source is None else _cut(source, first, end)
        self = cls(memory, start - first, count, definition)
        self.gaps = not layout.dense and (count > 1 or not layout.solid)
        if source is not None:
            self.source, self.start = source, first
        return self

    def packed(self) -> Bytes:
        """Return the data without gaps: the memory itself where there are none, else a copy."""
        return self.definition.layout.gather(self.memory, self._origin, self.count) if self.gaps else self.memory

    def room(self) -> Bytes:
        """Return memory to receive the data without gaps: the program's own if that has none."""
        return np.empty(self.nbytes, np.uint8) if self.gaps else self.memory

    def store(self, data: Bytes) -> None:
        """Put data without gaps, of at most `nbytes`, where they belong, unless they are there."""
        if data is self.memory or not data.nbytes:
            return
        data = data.reshape(-1).view(np.uint8)
        if self.gaps:
            self.definition.layout.scatter(data, self.memory, self._origin, self.count)
        elif address_of(data) != address_of(self.memory):
            self.memory[: data.nbytes] = data

    def values(self) -> NDArray[Any]:
        """Return the items, of one numpy dtype and dimension, for operators: the memory itself where it has no gaps."""
        dtype = self.definition.dtype
        if dtype is None:
            raise Exception(ERR_OP, f"no operation is defined for {self.definition.name or 'a derived datatype'}")
        return self.packed().view(dtype)

    def elements(self) -> NDArray[Any]:
        """Return the elements as items of any datatype without gaps, for operators of programs."""
        return self.packed().view(np.dtype((np.void, self.definition.layout.size)))

    def split(self, blocks: int) -> list[Self]:
        """Return `blocks` times the same number of elements."""
        each = self.count // blocks
        step = each * self.definition.layout.extent
        parts = [self.placed(self.memory, self._origin + k * step, each, self.definition) for k in range(blocks)]
        for part in parts:
            part.source, part.start = self.source, self.start + part.start
        return parts


def _at(first: int, end: int) -> Bytes:
    if first < 0 or end > LARGEST:
        raise Exception(ERR_ARG, f"datatype and count reach from address {first} to {end}")
    return at_address(first, end - first, False, None)


def _cut(memory: Bytes, first: int, end: int) -> Bytes:
    """Return bytes of memory; a datatype may reach beyond a part of an array that the program gives."""
    if first >= 0 and end <= memory.nbytes:
        return memory[first:end]
    around: Any = memory
    while isinstance(around.base, np.ndarray):
        around = around.base
    if around.flags.c_contiguous or around.flags.f_contiguous:
        begin = address_of(memory) - address_of(around)
        if begin + first >= 0 and begin + end <= around.nbytes:
            return at_address(address_of(memory) + first, end - first, not memory.flags.writeable, memory)
    if memory is NOTHING:
        raise ValueError("message: buffer is None but count is not 0")
    reach = f"datatype and count reach from byte {first} to {end} of {memory.nbytes}"
    raise ValueError(f"message: buffer too small, as {reach}")
