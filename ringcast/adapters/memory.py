"""The memory of arrays and tensors that programs hand over: numpy arrays, or tensors of torch, which is not imported.

Arrays that are not contiguous are copied, and copied back. Floats of 16 bits are combined as float32, and rounded once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringcast.adapters.tensors import numpy_has, viewed
from ringcast.ops import Array

Back = Callable[[], object]  # brings a result to where the program has its array


def items(given: Any) -> Array:
    """Return the items of an array or tensor in one row, to be read: its own memory, or a copy of it.

    Raises:
        TypeError: it is something else, on a device, or sparse; or an array of Python objects.
    """
    array = _strided(given)
    return np.ascontiguousarray(array).reshape(-1)


def target(given: Any) -> tuple[Array, Back]:
    """Return a row for the items of an array or tensor, which also has them now, and how they come to their place.

    Raises:
        TypeError: as in `items`.
        ValueError: it is read-only.
    """
    array = _strided(given)
    if not array.flags.writeable:
        raise ValueError("the array is read-only; pass a copy of it")
    row = np.ascontiguousarray(array).reshape(-1)
    if np.may_share_memory(row, array):
        return row, _nothing
    return row, lambda: np.copyto(array, row.reshape(array.shape))


def operand(given: Any) -> tuple[Array, Back]:
    """Return what `target` does, in the form in which the items are combined."""
    row, back = target(given)
    if not _narrow(given, row):
        return row, back
    wide = contribution(given)
    if _is_bfloat16(given):
        torch, tensor = sys.modules["torch"], given.detach()
        return wide, lambda: tensor.copy_(torch.from_numpy(wide).reshape(tensor.shape))

    def rounded() -> None:
        row[:] = wide
        back()

    return wide, rounded


def contribution(given: Any) -> Array:
    """Return what `items` does, in the form in which the items are combined.

    Raises:
        TypeError: as in `items`.
    """
    row = items(given)
    if not _narrow(given, row):
        return row
    wide: Array = given.detach().reshape(-1).float().numpy() if _is_bfloat16(given) else row.astype(np.float32)
    return wide


def joined(parts: Sequence[Any]) -> Array:
    """Return the items of several arrays or tensors of one dtype in one row, in the form in which they are combined.

    Raises:
        TypeError: as in `items`; or they have several dtypes.
    """
    check_alike(parts)
    return np.concatenate([contribution(part) for part in parts])


def check_alike(parts: Sequence[Any]) -> None:
    """Check that arrays or tensors have one dtype.

    Raises:
        TypeError: they have several.
    """
    if len(kinds := dict.fromkeys(str(part.dtype).removeprefix("torch.") for part in parts)) > 1:
        raise TypeError(f"expected arrays of one dtype, got {', '.join(kinds)}")


def _strided(given: Any) -> Array:
    """Return an array or tensor as an array on the same memory."""
    if _is_tensor(given):
        return _of_tensor(given)
    if not isinstance(given, np.ndarray):
        raise TypeError(f"expected a numpy array or a CPU tensor of torch, got {type(given).__name__}")
    if given.dtype.hasobject:
        raise TypeError(f"expected an array without Python objects, got dtype {given.dtype}")
    return given


def _of_tensor(tensor: Any) -> Array:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise TypeError(f"ringcast carries CPU tensors, got one on {tensor.device}; pass tensor.cpu()")
    if tensor.layout is not torch.strided:
        raise TypeError(f"ringcast carries dense tensors, got {tensor.layout}; pass tensor.to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        raise TypeError("the tensor is conjugated or negated by a bit; pass tensor.resolve_conj().resolve_neg()")
    if not (numpy_has(tensor.dtype) or _is_bfloat16(tensor)):
        raise TypeError(f"expected a dtype that numpy has, or bfloat16, got {tensor.dtype}")
    return viewed(tensor)


def _is_tensor(given: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _is_bfloat16(given: Any) -> bool:
    return _is_tensor(given) and given.dtype is sys.modules["torch"].bfloat16


def _narrow(given: Any, row: Array) -> bool:
    return _is_bfloat16(given) or row.dtype == np.float16


def _nothing() -> None:
    """Bring nothing back: the result is in its place."""
