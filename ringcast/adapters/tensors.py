"""The memory of torch's tensors as numpy arrays. torch is not imported.

`Tensor.numpy()` marks a storage as one that is never resized again; arrays of DLPack are read-only before numpy 2.1.
So the array is made from the address.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ringcast.ops import Array

_OF_NUMPY = {"bool", "float16", "float32", "float64", "complex64", "complex128"}
_OF_NUMPY |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class _Place:
    """Memory as numpy takes it. The array keeps this object, and so the storage."""

    __slots__ = "__array_interface__", "storage"

    def __init__(self, tensor: Any) -> None:
        address, size = tensor.data_ptr(), tensor.element_size()
        if tensor.is_quantized or (not address and tensor.numel()):  # wrappers have the address 0
            raise TypeError(f"ringcast carries plain tensors, got {tensor.dtype} in a {type(tensor).__name__}")
        self.storage = tensor.untyped_storage()
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": _dtype(tensor.dtype, size).str,
            "data": (address, False),
            "strides": tuple(size * stride for stride in tensor.stride()),
        }


def viewed(tensor: Any) -> Array:
    """Return a dense CPU tensor as a writable array on the same memory.

    Items of a dtype that numpy lacks are records of one field of raw bytes, which has the dtype's name: calls of ranks
    with different dtypes then differ. The tensor's conjugate and negative bits are not seen.

    Raises:
        TypeError: the tensor is quantized, or has no memory of its own.
    """
    found: Array = np.asarray(_Place(tensor))
    dtype = _dtype(tensor.dtype, tensor.element_size())
    return found if dtype.names is None else found.view(dtype)


def numpy_has(dtype: Any) -> bool:
    """Return whether numpy has a dtype of torch."""
    return str(dtype).removeprefix("torch.") in _OF_NUMPY


@cache
def _dtype(dtype: Any, size: int) -> np.dtype[Any]:
    """Return the dtype of the items in numpy."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(name if numpy_has(dtype) else [(name, f"V{size}")])
