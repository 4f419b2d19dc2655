"""Buffers of the program as MPI describes them: memory, a count, displacements and a datatype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base.exceptions import ERR_COUNT, ERR_TYPE, Exception
from ringcast.mpi.base.sentinels import BOTTOM
from ringcast.mpi.data.definition import NULL, OF_CODE, Definition
from ringcast.mpi.data.elements import Elements
from ringcast.mpi.data.exporters import FOREIGN, NOTHING, exported
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.datatypes.datatype import Datatype
from ringcast.ops import Array

_SEQUENCES = (list, tuple)
_BYTE = np.dtype(np.uint8)


class Part(Elements):
    """Elements of a datatype in memory of the program."""

    __slots__ = ()

    @property
    def datatype(self) -> Datatype:
        """The datatype of the elements; another handle than the program's, which may be freed."""
        return Datatype._of_state(self.definition)


def _placed(memory: Bytes | None, start: int, count: int, definition: Definition) -> Part:
    """Return the elements from byte `start` of memory on; where there are none, any datatype will do, as in MPICH."""
    if count and not definition.committed:
        null = definition is NULL
        raise Exception(ERR_TYPE, "the datatype is null" if null else "the datatype has not been committed")
    return Part.placed(memory, start, count, definition)


def message(spec: Any, *, writes: bool) -> Part:
    """Return the buffer of a message, bcast, or reduction."""
    return block(spec, 1, writes=writes)


def block(spec: Any, blocks: int, *, writes: bool) -> Part:
    """Return a buffer of `blocks` blocks of the same number of elements; a count in `spec` is for one block."""
    array = of_array(spec, blocks, writes)
    if array is not None:
        return array
    data, count, displacement, datatype = _fields(spec, _pair_of)
    memory, definition = _source(data, datatype, writes, count is not None and not displacement)
    if count is None and displacement is None:
        count = _filling(memory, definition, blocks)
        return _placed(memory, 0, count, definition)
    displacement = 0 if displacement is None else index(displacement)
    if displacement < 0:
        raise ValueError(f"message: negative displacement {displacement}")
    if count is None or displacement:
        total = _filling(memory, definition, 1)
        if displacement > total:
            raise ValueError(f"message: displacement {displacement} out of bounds, number of datatype entries {total}")
        count = (total - displacement) // blocks if count is None else count
    count = index(count)
    if count < 0:
        raise ValueError(f"message: negative count {count}")
    return _placed(memory, displacement * definition.layout.extent, count * blocks, definition)


def of_array(spec: Any, blocks: int, writes: bool) -> Part | None:
    """Return the buffer that an array is, with its datatype or without; most are, and it is worth a short cut."""
    line = line_of(spec, blocks, writes)
    return None if line is None else Part(line.view(_BYTE), 0, line.size, OF_CODE[line.dtype.char])


def line_of(spec: Any, blocks: int, writes: bool) -> Array | None:
    """Return the items of a buffer that is an array, in one dimension; None if it needs a closer look."""
    array, datatype = spec if type(spec) in (list, tuple) and len(spec) == 2 else (spec, None)
    if type(array) is not np.ndarray:
        return None
    flags, dtype, count = array.flags, array.dtype, array.size
    usable = flags.c_contiguous and dtype.isnative and dtype.kind in "biufc" and (flags.writeable or not writes)
    if not usable or not count or count % blocks:
        return None
    if datatype is not None and (type(datatype) is not Datatype or datatype._state is not OF_CODE[dtype.char]):
        return None
    line: Array = array if array.ndim == 1 else array.reshape(-1)
    return line


def vector(spec: Any, blocks: int, *, writes: bool) -> list[Part]:
    """Return the buffers of a call that has a count and a displacement, in elements, for each rank."""
    data, counts, displacements, datatype = _fields(spec, _pairs_of)
    memory, definition = _source(data, datatype, writes, counts is not None)
    if counts is None:
        each = [_filling(memory, definition, blocks) // blocks] * blocks if blocks else []
    else:
        each = _numbers(counts, blocks)
    if min(each, default=0) < 0:
        raise Exception(ERR_COUNT, f"a count in {each} is negative")
    if displacements is None:
        places = list(accumulate(each[:-1], initial=0)) if blocks else []
    elif hasattr(displacements, "__len__") and np.ndim(displacements):
        places = _numbers(displacements, blocks)
    else:
        places = [k * index(displacements) for k in range(blocks)]
    extent = definition.layout.extent
    return [_placed(memory, place * extent, count, definition) for place, count in zip(places, each, strict=True)]


def wide(spec: Any, blocks: int, *, writes: bool) -> list[Part]:
    """Return the buffers of a call that has a count, a displacement in bytes, and a datatype for each rank."""
    data, counts, displacements, datatypes = _of_each(spec)
    if len(datatypes) != blocks:
        raise ValueError(f"expecting {blocks} datatypes, got {len(datatypes)}")
    if data is BOTTOM or data is None:
        if counts is None or displacements is None:
            raise ValueError("message: a buffer without an address has counts and displacements")
        memory = None if data is BOTTOM else NOTHING
    else:
        memory = exported(data, writes=writes)[0]
    each = [1] * blocks if counts is None else _numbers(counts, blocks)
    places = [0] * blocks if displacements is None else _numbers(displacements, blocks)
    if min(each, default=0) < 0:
        raise Exception(ERR_COUNT, f"a count in {each} is negative")
    definitions = [NULL if datatype._state is None else datatype._state for datatype in datatypes]
    return [
        _placed(memory, place, count, definition)
        for place, count, definition in zip(places, each, definitions, strict=True)
    ]


def joined(parts: Sequence[Part]) -> Bytes | None:
    """Return the data of parts in one line, if they lie in memory one behind the other without gaps; else None."""
    filled = [part for part in parts if part.nbytes]
    if not filled:
        return NOTHING
    source, end = filled[0].source, filled[0].start
    for part in filled:
        if part.gaps or part.source is not source or part.start != end:
            return None
        end += part.nbytes
    return source[filled[0].start : end] if filled[0].start >= 0 and end <= source.nbytes else None


def _fields(spec: Any, pair_of: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any, Any, Any]:
    """Return data, count, displacement and datatype of a specification; or counts and displacements."""
    if spec is None:
        raise TypeError("message: expecting buffer or list/tuple")
    if not isinstance(spec, _SEQUENCES):
        return spec, None, None, None
    if len(spec) == 2:
        data, second = spec
        if second is None or isinstance(second, (Datatype, str)):
            return data, None, None, second
        return data, *pair_of(second), None
    if len(spec) == 3:
        data, count, datatype = spec
        return data, *pair_of(count), datatype
    if len(spec) == 4:
        return spec  # type: ignore[return-value]
    raise ValueError("message: expecting 2 to 4 items")


def _pair_of(count: Any) -> tuple[Any, Any]:
    if not isinstance(count, _SEQUENCES):
        return count, None
    count, displacement = count
    return count, displacement


def _pairs_of(counts: Any) -> tuple[Any, Any]:
    if not isinstance(counts, tuple):
        return counts, None
    counts, displacements = counts
    return counts, displacements


def _of_each(spec: Any) -> tuple[Any, Any, Any, Sequence[Datatype]]:
    """Return data, counts, displacements and datatypes of a specification."""
    if len(spec) == 2:
        return spec[0], None, None, spec[1]
    if len(spec) == 3:
        counts, displacements = spec[1]
        return spec[0], counts, displacements, spec[2]
    if len(spec) == 4:
        return spec  # type: ignore[no-any-return]
    raise ValueError("message: expecting 2 to 4 items")


def _source(data: Any, datatype: Any, writes: bool, counted: bool) -> tuple[Bytes | None, Definition]:
    """Return memory and datatype; no memory for addresses."""
    if data is BOTTOM:
        return None, _definition(datatype, counted)
    if data is None:
        return NOTHING, _definition(datatype, True)
    memory, code, _ = exported(data, writes=writes)
    return memory, _definition(datatype if datatype is not None else code, counted)


def _definition(datatype: Any, counted: bool) -> Definition:
    """Return the definition of a datatype, or of a code; the null datatype is one where the count is known."""
    if isinstance(datatype, Datatype):
        if datatype._state is not None:
            return datatype._state
        if not counted:
            raise ValueError("message: cannot infer count, datatype is null")
        return NULL
    found = OF_CODE.get(datatype)
    if found is None:
        if isinstance(datatype, str) and datatype[:1] == FOREIGN:
            raise BufferError(f"the items {safe_text(datatype)} have another byte order")
        raise KeyError(f"cannot map {safe_text(datatype)} to MPI datatype")
    return found


def _filling(memory: Bytes | None, definition: Definition, blocks: int) -> int:
    """Return how many elements fill the memory, as whole blocks."""
    if memory is None or not memory.nbytes:
        return 0
    extent = definition.layout.extent
    if extent <= 0:
        raise ValueError(f"message: cannot infer count, datatype extent {extent}")
    count, rest = divmod(memory.nbytes, extent)
    if rest:
        raise ValueError(
            f"message: cannot infer count, buffer length {memory.nbytes} is not a multiple of datatype extent {extent}"
        )
    if count % blocks:
        raise ValueError(f"message: cannot infer count, {count} entries are not a multiple of {blocks} blocks")
    return count


def _numbers(numbers: Any, blocks: int) -> list[int]:
    """Return a number for each block."""
    if isinstance(numbers, np.ndarray) and numbers.ndim and numbers.dtype.kind in "iu":
        numbers = numbers.tolist()
    elif not hasattr(numbers, "__len__") or (isinstance(numbers, np.ndarray) and not numbers.ndim):
        return [index(numbers)] * blocks
    if len(numbers) != blocks:
        raise ValueError(f"expecting {blocks} items, got {len(numbers)}")
    return [index(number) for number in numbers]
