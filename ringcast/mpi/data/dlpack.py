"""DLPack: the memory of a tensor that another package owns."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, NamedTuple

_CPU, _HOST_MEMORY = 1, (1, 3, 11)  # devices; memory of CUDA and ROCm that is the host's too
_READ_ONLY = 1
_MAJOR = 1
_CODES = {  # numpy's characters by kind and bits
    (0, 8): "b", (0, 16): "h", (0, 32): "i", (0, 64): "l", (1, 8): "B", (1, 16): "H", (1, 32): "I", (1, 64): "L",
    (2, 16): "e", (2, 32): "f", (2, 64): "d", (2, 128): "g", (5, 64): "F", (5, 128): "D", (6, 8): "?",
}  # fmt: skip
_LONG_COMPLEX = (2, 128, 2)  # kind, bits and lanes; two lanes, as the field for the bits is a byte and cannot hold 256

_Fields = list[tuple[str, Any]]


class _Tensor(ctypes.Structure):
    _fields_: ClassVar[_Fields] = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("kind", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_: ClassVar[_Fields] = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_: ClassVar[_Fields] = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


class Tensor(NamedTuple):
    """A tensor of another package."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in items
    itemsize: int
    code: str
    readonly: bool
    of_device: bool
    owner: object  # keeps the memory


def tensor_of(source: Any) -> Tensor:
    """Return the tensor that an object exports."""
    device, number = source.__dlpack_device__()
    if not isinstance(device, int) or not isinstance(number, int):
        raise TypeError("__dlpack_device__ returns two ints")
    capsule = _capsule_of(source, {} if device == _CPU else {"stream": -1})
    managed, readonly = _managed(capsule)
    tensor = managed.tensor
    if tensor.ndim < 0 or (tensor.ndim and not tensor.shape):
        raise BufferError(f"dlpack: a tensor of {tensor.ndim} dimensions without a shape")
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    kind = tensor.kind, tensor.bits, tensor.lanes
    code = _CODES.get(kind[:2], "B") if tensor.lanes == 1 else "G" if kind == _LONG_COMPLEX else "B"
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule frees the tensor when it goes, as it is not marked as used.
    return Tensor(address, shape, strides, itemsize, code, readonly, tensor.device_type not in _HOST_MEMORY, capsule)


def _capsule_of(source: Any, arguments: dict[str, Any]) -> Any:
    try:
        return source.__dlpack__(max_version=(_MAJOR, 0), **arguments)
    except TypeError:  # of before version 1
        return source.__dlpack__(**arguments)


def _managed(capsule: Any) -> tuple[_Managed | _Versioned, bool]:
    """Return the tensor that a capsule holds, and whether it is read-only."""
    for name, kind in ((b"dltensor_versioned", _Versioned), (b"dltensor", _Managed)):
        if ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), name):
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            managed: Any = kind.from_address(pointer(capsule, name))
            if kind is _Versioned and managed.major != _MAJOR:
                raise BufferError(f"dlpack: version {managed.major} is not {_MAJOR}")
            return managed, kind is _Versioned and bool(managed.flags & _READ_ONLY)
    raise BufferError("dlpack: there is no capsule with a tensor that has not been used")
