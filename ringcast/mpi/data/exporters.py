"""Memory of objects: Python's buffer protocol, DLPack, and the CUDA array interface where the host can read it."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.mpi.data.dlpack import tensor_of
from ringcast.mpi.data.layout import Bytes

NOTHING: Bytes = np.zeros(0, np.uint8)
_BYTE = np.dtype(np.uint8)
_NUMBERS = frozenset("?bBhHiIlLqQefdgFDG")  # characters of dtypes that are codes of datatypes
_ORDER = "<" if sys.byteorder == "little" else ">"
FOREIGN = ">" if _ORDER == "<" else "<"  # mark of the other byte order


Exported = tuple[Bytes, str, bool]  # memory, the code of its items, and whether it is memory of a device


def exported(source: Any, *, writes: bool) -> Exported:
    """Return the memory of an object.

    Raises:
        BufferError: it is not contiguous, is to be written and cannot be, or is memory of a device.
        TypeError: the object gives no access to memory.
    """
    found = _from_array(source) if isinstance(source, np.ndarray) else _from_object(source)
    if writes and not found[0].flags.writeable:
        raise BufferError("the memory is read-only")
    return found


def at_address(address: int, nbytes: int, readonly: bool, owner: object) -> Bytes:
    """Return memory at an address; it keeps its owner."""
    return np.asarray(_Foreign(address, nbytes, readonly, owner)) if nbytes else _empty(readonly)


def address_of(memory: Bytes) -> int:
    """Return the address of memory."""
    return int(memory.__array_interface__["data"][0])


class _Foreign:
    """Memory at an address, for numpy."""

    def __init__(self, address: int, nbytes: int, readonly: bool, owner: object) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "data": (address, readonly), "shape": (nbytes,), "typestr": "|u1", "version": 3,
        }  # fmt: skip


def _empty(readonly: bool) -> Bytes:
    memory = np.zeros(0, np.uint8)
    memory.flags.writeable = not readonly
    return memory


def _from_array(array: np.ndarray[Any, Any]) -> Exported:
    flags, dtype = array.flags, array.dtype
    if not flags.c_contiguous:
        if not flags.f_contiguous:
            raise BufferError(
                "the array is not contiguous: give np.ascontiguousarray(array) to be sent, "
                "or the whole array and a datatype of Create_vector"
            )
        array = array.T
    if type(array) is not np.ndarray:
        array = array.view(np.ndarray)
    char = dtype.char
    if char in _NUMBERS and dtype.isnative:
        return (array if array.ndim == 1 else array.reshape(-1)).view(_BYTE), char, False
    if dtype.hasobject:
        raise TypeError("an array of Python objects has no data to send")
    return array.reshape(-1).view(_BYTE), dtype.str, False


def _from_object(source: Any) -> Exported:
    try:
        view = memoryview(source)
    except (TypeError, ValueError):  # numpy's scalars may raise the latter
        view = None
    if view is not None:
        return _from_view(view)
    kind = type(source)
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _from_dlpack(source)
    if hasattr(source, "__cuda_array_interface__"):
        return _from_cuda(source, source.__cuda_array_interface__)
    raise TypeError(f"a bytes-like object is required, not '{kind.__name__}'")


def _from_view(view: memoryview) -> Exported:
    if not view.contiguous:
        raise BufferError("the buffer is not contiguous")
    code = view.format[1:] if view.format[:1] in ("@", "=", _ORDER) else view.format
    if not view.nbytes:
        return _empty(view.readonly), code, False
    array = np.frombuffer(view, np.uint8) if view.c_contiguous else np.asarray(view).T.reshape(-1).view(np.uint8)
    return array, code, False


def _from_dlpack(source: Any) -> Exported:
    tensor = tensor_of(source)
    if not _contiguous(tensor.shape, tensor.strides, 1):
        raise BufferError("dlpack: the tensor is not contiguous")
    nbytes = prod(tensor.shape) * tensor.itemsize
    if tensor.of_device:
        _check_readable(tensor.address, nbytes)
    memory = at_address(tensor.address, nbytes, tensor.readonly, (source, tensor.owner))
    return memory, tensor.code, tensor.of_device


def _from_cuda(source: Any, interface: Any) -> Exported:
    if not isinstance(interface, dict):
        raise TypeError(f"__cuda_array_interface__ is a {type(interface).__name__}, not a dict")
    address, readonly = interface["data"]
    typestr, shape, strides = interface["typestr"], interface["shape"], interface.get("strides")
    if not isinstance(typestr, str):
        raise TypeError(f"__cuda_array_interface__['typestr'] is a {type(typestr).__name__}, not a str")
    if interface.get("mask") is not None:
        raise BufferError("__cuda_array_interface__ has a mask")
    if typestr[0] not in (_ORDER, "|", "="):
        raise BufferError(f"the items {safe_text(typestr)} have another byte order")
    if len(interface.get("descr") or ()) > 1:
        warnings.warn("the fields in __cuda_array_interface__['descr'] are ignored", RuntimeWarning, stacklevel=2)
    itemsize = int(typestr[2:])
    if not _contiguous(tuple(shape), tuple(strides) if strides is not None else None, itemsize):
        raise BufferError("__cuda_array_interface__: the array is not contiguous")
    nbytes = prod(shape) * itemsize
    _check_readable(address, nbytes)
    code = "B" if typestr[1] == "V" else typestr[1:]
    return at_address(address, nbytes, bool(readonly), source), code, True


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    """Return whether items follow each other in memory, in the order of C or Fortran."""
    if any(size < 0 for size in shape):
        raise BufferError(f"a dimension of {shape} is negative")
    if strides is None or 0 in shape:
        return True
    if len(strides) != len(shape):
        raise BufferError(f"there are {len(shape)} dimensions and {len(strides)} strides")
    sized = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size > 1]
    return _follow(sized, itemsize) or _follow(sized[::-1], itemsize)


def _follow(sized: list[tuple[int, int]], itemsize: int) -> bool:
    for size, stride in sized:
        if stride != itemsize:
            return False
        itemsize *= size
    return True


def _check_readable(address: int, nbytes: int) -> None:
    """Raise if the host cannot read memory: we ask the kernel, as a read could end the process."""
    if not nbytes:
        return
    reader, writer = os.pipe()
    try:
        for place in (address, address + nbytes - 1):
            if _libc().write(writer, ctypes.c_void_p(place), 1) != 1:
                raise BufferError("the memory belongs to a device; the host cannot read it")
    finally:
        os.close(reader)
        os.close(writer)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None)
