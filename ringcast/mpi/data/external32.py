"""The representation external32 of MPI: big-endian, with sizes that are the same everywhere."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcast.mpi.data.definition import Definition, numpy_dtype
from ringcast.mpi.data.elements import Elements
from ringcast.mpi.data.layout import Bytes

_QUAD = np.dtype([("high", ">u2"), ("fraction", ">u8"), ("low", "V6")])  # a binary128, with the 63 bits that x87 has
_X87 = np.dtype([("fraction", "<u8"), ("high", "<u2"), ("padding", "V6")])
_OTHER_SIZES = {"l": ">i4", "L": ">u4", "U": ">u2"}


def encoded(elements: Elements) -> Bytes:
    """Return elements as external32."""
    native, external = _formats(elements.definition)
    items = elements.packed().view(native)
    result = np.zeros(items.shape, external)
    for name in native.names or ():
        result[name] = _quads(items[name]) if external[name].base == _QUAD else items[name]
    return result.view(np.uint8)


def decoded(data: Bytes, elements: Elements) -> Bytes:
    """Return data in external32 as data without gaps for `elements`."""
    native, external = _formats(elements.definition)
    items = np.ascontiguousarray(data).view(external)
    result = np.zeros(items.shape, native)
    for name in native.names or ():
        result[name] = _long_doubles(items[name]) if external[name].base == _QUAD else items[name]
    return result.view(np.uint8)


def size_of(definition: Definition) -> int:
    """Return how many bytes an element takes."""
    return _formats(definition)[1].itemsize


@lru_cache
def _formats(definition: Definition) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return two dtypes of an element without gaps: the native one, and external32."""
    native: list[tuple[str, Any, tuple[int, ...]]] = []
    external: list[tuple[str, Any, tuple[int, ...]]] = []
    for i, (code, count) in enumerate(items_of(definition)):
        dtype, parts = numpy_dtype(code), 1
        if dtype.kind == "c":
            dtype, parts = np.dtype(f"f{dtype.itemsize // 2}"), 2
        native.append((str(i), _RAW.get(code, dtype), (count * parts,)))
        is_x87 = dtype == np.longdouble and np.finfo(np.longdouble).nmant == 63
        other = _QUAD if is_x87 else np.dtype(_OTHER_SIZES.get(code, native[-1][1])).newbyteorder(">")
        external.append((str(i), other, (count * parts,)))
    return np.dtype(native), np.dtype(external)


_RAW = {"U": np.dtype("u4"), "c": np.dtype("u1")}


def items_of(definition: Definition) -> list[tuple[str, int]]:
    """Return the items of an element in their order: codes, and how many there are of each."""
    if definition.code is not None:
        return [(definition.code, 1)]
    lengths = definition.arguments.get("blocklengths") if len(definition.bases) > 1 else None
    if lengths is None:
        base = definition.bases[0]
        lengths = [definition.layout.size // base.layout.size if base.layout.size else 0]
    items = [_repeated(items_of(base), length) for base, length in zip(definition.bases, lengths, strict=True)]
    return [item for part in items for item in part]


def _repeated(items: list[tuple[str, int]], times: int) -> list[tuple[str, int]]:
    return [(items[0][0], items[0][1] * times)] if len(items) == 1 else items * times


def _quads(items: NDArray[Any]) -> NDArray[Any]:
    """Return long doubles of x87 in the format of IEEE 754, which has no bit for the 1 before the point."""
    parts = np.ascontiguousarray(items).view(_X87)
    result = np.zeros(parts.shape, _QUAD)
    result["high"], result["fraction"] = parts["high"], parts["fraction"] << 1
    return result


def _long_doubles(items: NDArray[Any]) -> NDArray[Any]:
    """Return long doubles of IEEE 754 in the format of x87, without the bits for which that has no room."""
    result = np.zeros(items.shape, _X87)
    normal = (items["high"] & 0x7FFF != 0).astype("u8")
    result["high"], result["fraction"] = items["high"], items["fraction"] >> 1 | normal << np.uint64(63)
    return result.view(np.longdouble)
