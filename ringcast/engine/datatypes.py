"""Kinds of values: numpy arrays, which are sent as raw buffers, and everything else, which is pickled.

Arrays of any dtype without Python objects in it travel raw. A broadcast keeps C and Fortran order; all other
collectives work on C order, and copy once what is not. Subclasses of ndarray (masked arrays and the like) and arrays of
objects travel as Python objects.
"""

from __future__ import annotations

import ast
import re
import threading
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.errors import ArgumentError
from ringcast.ops import Array, Op

_PARSING = threading.Lock()  # ranks may be threads, and in Python 3.11 these disturb each other (python/cpython#106905)
_NAMES = re.compile(":[^:]*:")  # of fields, in the format of a buffer
LONG_DTYPE = 1024  # characters of a dtype's description beyond which it is parsed each time: peers choose it
MOST_DIMENSIONS = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32


def as_array(value: Any) -> Array | None:
    """Return `value` as an array if it travels as a raw buffer: an ndarray, memmap or numpy scalar; else None."""
    array: Array
    if type(value) is np.ndarray:
        array = value
    elif isinstance(value, np.generic) or type(value) is np.memmap:
        array = np.asarray(value)
    else:
        return None
    return array if _travels_raw(array.dtype) else None


@lru_cache(maxsize=256)  # numpy takes its time to look into a dtype
def _travels_raw(dtype: np.dtype[Any]) -> bool:
    """Return whether items are sent as they lie in memory: they hold no Python objects, and can be described."""
    return not dtype.hasobject and dtype.itemsize > 0 and (dtype.names is None or _describable(dtype))


def _describable(dtype: np.dtype[Any]) -> bool:
    """Return whether a structured dtype can be described: fields must be in order (not so in `a[["b", "a"]]`)."""
    try:
        describe_dtype(dtype)
    except ValueError:
        return False
    return True


def like(value: Any, result: Array) -> Any:
    """Return `result` as a numpy scalar if `value` is one."""
    return result[()] if isinstance(value, np.generic) else result


def flat(array: Array) -> Array:
    """Return the items of a contiguous array in memory order, as a one-dimensional view."""
    return array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)


def order_of(array: Array) -> str:
    """Return "C" or "F", or "" for an array that has to be copied to be sent."""
    return "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else ""


class Described(NamedTuple):
    """The description of an array or scalar, without its items."""

    kind: str  # scalar or array
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Any  # of the items in memory, "C" or "F"

    @property
    def record(self) -> dict[str, Any]:
        """The description as a record, in which the dtype is a text for `parse_dtype`."""
        return {**self._asdict(), "dtype": describe_dtype(self.dtype)}


def described(value: Any) -> tuple[Described, Array] | None:
    """Return what a value is, and its items in memory order as a line; None for a Python object."""
    array = as_array(value)
    if array is None:
        return None
    order = order_of(array)
    if not order:
        array, order = np.ascontiguousarray(array), "C"
    kind = "scalar" if isinstance(value, np.generic) else "array"
    return Described(kind, array.dtype, array.shape, order), flat(array)


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return a text from which `parse_dtype` makes the dtype again (also of structured ones), without pickle."""
    return repr(np.lib.format.dtype_to_descr(dtype))


def parse_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype that `describe_dtype` was given."""
    return _kept_dtype(text) if len(text) <= LONG_DTYPE else _parsed_dtype(text)


def _parsed_dtype(text: str) -> np.dtype[Any]:
    with _PARSING:
        descr: Any = ast.literal_eval(text)
    return np.lib.format.descr_to_dtype(descr)


_kept_dtype = lru_cache(maxsize=256)(_parsed_dtype)


@lru_cache(maxsize=256)  # numpy takes its time to put a name together
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype for error messages and fingerprints."""
    if dtype.kind in "SU" and dtype.isnative:  # numpy names these after bits
        return dtype.str[1:]
    if dtype.names is not None and len(dtype.names) == 1 and dtype[0] == f"V{dtype.itemsize}":
        return dtype.names[0]  # items that numpy lacks, as bfloat16
    return dtype.name if dtype.names is None and dtype.isnative else describe_dtype(dtype)


def has_width(dtype: np.dtype[Any]) -> bool:
    """Return whether it is of texts or times, whose widths or units easily differ between ranks."""
    return dtype.kind in "SUMm"


def check_out(
    rank: int, operation: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], argument: str = "out"
) -> Array:
    """Return `out` if a result of this shape and dtype can be put into it; errors call it `argument`.

    Raises:
        ArgumentError: it cannot.
    """
    if type(out) in (np.ndarray, np.memmap) and (out.shape != shape or out.dtype != dtype):
        expected = f"expected shape {shape} and dtype {dtype_name(dtype)}"
        raise ArgumentError(rank, operation, argument, f"{expected}, got {out.shape} and {dtype_name(out.dtype)}")
    return check_buffer(rank, operation, out, argument)


def check_buffer(rank: int, operation: str, out: Any, argument: str = "out") -> Array:
    """Return `out` if results can be received in it; errors call it `argument`.

    Raises:
        ArgumentError: they cannot.
    """
    if type(out) not in (np.ndarray, np.memmap):
        raise ArgumentError(rank, operation, argument, f"expected a numpy array, got {type(out).__name__}")
    if out.dtype.hasobject:
        raise ArgumentError(rank, operation, argument, "expected an array without Python objects")
    if not out.flags.c_contiguous:
        raise ArgumentError(rank, operation, argument, "expected a C-contiguous array; results are received in place")
    if not out.flags.writeable:
        raise ArgumentError(rank, operation, argument, "expected a writeable array")
    return out  # type: ignore[no-any-return]  # the type was checked


def bytes_of(rank: int, operation: str, buffer: Any, *, writes: bool) -> Array:
    """Return the memory of an object with the buffer protocol as a flat array of bytes, without a copy.

    Raises:
        ArgumentError: the object has no such memory, or not as one C-contiguous piece; the memory holds Python objects;
            or it is read-only and the call `writes` to it.
    """
    try:
        objects = "O" in _NAMES.sub("", memoryview(buffer).format)
        line: Array = np.frombuffer(buffer, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        expected = "expected one C-contiguous piece of memory, as a bytearray, an mmap or a numpy array has"
        raise ArgumentError(rank, operation, "buffer", f"{expected}; {type(buffer).__name__}: {error}") from None
    if objects:
        raise ArgumentError(rank, operation, "buffer", "expected memory without Python objects")
    if writes and not line.flags.writeable:
        raise ArgumentError(rank, operation, "buffer", "expected writeable memory; only the root's may be read-only")
    return line


def room(rank: int, operation: str, shape: tuple[int, ...], dtype: np.dtype[Any], argument: str = "counts") -> Array:
    """Return memory for a result; errors blame `argument`, which gives its number of rows.

    Raises:
        ArgumentError: it does not fit into memory.
    """
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):  # more than the system gives; more than numpy can count
        size = prod(map(int, shape)) * dtype.itemsize
        expected = f"expected rows that fit in memory, got {shape[0]}, which take {size} bytes"
        raise ArgumentError(rank, operation, argument, expected) from None


def check_stackable(rank: int, operation: str, array: Array) -> None:
    """Raise ArgumentError if arrays of this shape cannot be stacked: numpy has no array of one dimension more."""
    if array.ndim >= MOST_DIMENSIONS:
        expected = (
            f"expected an array of {MOST_DIMENSIONS - 1} dimensions or less, as they are stacked, got {array.ndim}"
        )
        raise ArgumentError(rank, operation, "value", expected)


def check_op(rank: int, operation: str, op: Op, dtype: np.dtype[Any]) -> None:
    """Raise ArgumentError if a numpy operator does not work on this dtype: before anything is sent."""
    if isinstance(op.fn, np.ufunc) and not _works(op.fn, dtype):
        raise ArgumentError(rank, operation, "op", f"{op} does not work on dtype {dtype_name(dtype)}")


@lru_cache(maxsize=256)
def _works(fn: np.ufunc, dtype: np.dtype[Any]) -> bool:
    one = np.ones(1, dtype) if dtype.kind not in "Mm" else np.zeros(1, dtype)
    try:
        fn(one, one, out=np.empty(1, dtype))
        if dtype.kind in "SU" and fn(one, one).dtype != dtype:  # strings would be cut to fit
            return False
    except TypeError:
        return False
    return True


def check_counts(rank: int, operation: str, counts: Any, size: int, argument: str = "counts") -> tuple[int, ...]:
    """Return `counts` as a tuple of `size` whole numbers, none negative; errors call it `argument`.

    Raises:
        ArgumentError: they are something else.
    """
    try:
        numbers = tuple(int(count) for count in counts)
        whole = all(number == count for number, count in zip(numbers, counts, strict=True))
    except (TypeError, ValueError, OverflowError):  # the last one of infinity
        numbers, whole = (), False
    if not whole or len(numbers) != size or min(numbers, default=0) < 0:
        raise ArgumentError(
            rank, operation, argument, f"expected {size} numbers of rows, 0 or more, got {safe_text(counts)}"
        )
    return numbers
