"""The memory of torch's tensors as numpy arrays, without a copy where that is possible.

numpy lacks some dtypes of torch: their items travel as raw bytes, under the dtype's name. Tensors that are not
contiguous are copied, and copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ringcast.adapters.tensors import viewed
from ringcast.ops import Array

Back = Callable[[], object]  # brings a result to where the program has its tensor


def check(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that ringcast can carry.

    Raises:
        ValueError: it is not in the memory of the host, or not dense.
    """
    if tensor.device.type != "cpu":
        raise ValueError(
            f"ringcast carries CPU tensors, got one on {tensor.device}; give other devices a backend of their own, as "
            'init_process_group("cpu:ringcast,cuda:nccl") does'
        )
    if tensor.layout is not torch.strided:
        raise ValueError(f"ringcast carries dense tensors, got {tensor.layout}; pass tensor.to_dense()")
    return tensor


def whole(tensor: torch.Tensor) -> Array:
    """Return the items of a contiguous tensor, in its own memory."""
    return viewed(tensor).reshape(-1)


def source(tensor: torch.Tensor) -> Array:
    """Return the items of a tensor, to be read."""
    check(tensor)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return whole(tensor.contiguous())


def target(tensor: torch.Tensor) -> tuple[Array, Back | None]:
    """Return memory for the items of a tensor, which also has them now, and how they come into the tensor then."""
    check(tensor)
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return whole(tensor), None
    staged = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if staged.data_ptr() == tensor.data_ptr():
        staged = staged.clone()
    return whole(staged), lambda: tensor.detach().copy_(staged)


def joined(tensors: Sequence[torch.Tensor]) -> Array:
    """Return the items of several tensors, one after the other, to be read."""
    arrays = [source(tensor) for tensor in tensors]
    adjacent = _adjacent(tensors)
    if adjacent is not None:
        return adjacent
    return np.concatenate(arrays)


def spread(tensors: Sequence[torch.Tensor]) -> tuple[Array, Back | None]:
    """Return memory for the items of several tensors, one after the other, and how they come into the tensors then."""
    for tensor in tensors:
        check(tensor)
    adjacent = _adjacent(tensors)
    if adjacent is not None:
        return adjacent, None
    places = [target(tensor) for tensor in tensors]
    staged: Array = np.empty(sum(array.size for array, _ in places), places[0][0].dtype)

    def back() -> None:
        first = 0
        for array, further in places:
            array[:] = staged[first : first + array.size]
            first += array.size
            if further is not None:
                further()

    return staged, back


def _adjacent(tensors: Sequence[torch.Tensor]) -> Array | None:
    """Return the memory of tensors that lie one behind the other in one storage, as parts of one tensor do."""
    first = tensors[0]
    storage, place = first.untyped_storage().data_ptr(), first.data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != place and tensor.numel():
            return None
        if tensor.untyped_storage().data_ptr() != storage or not tensor.is_contiguous() or tensor.is_conj():
            return None
        place += tensor.numel() * tensor.element_size()
    items = sum(tensor.numel() for tensor in tensors)
    return whole(first.detach().as_strided((items,), (1,)))


def of_one_dtype(tensors: Sequence[torch.Tensor]) -> None:
    """Check that tensors have one dtype.

    Raises:
        ValueError: they have several.
    """
    kinds: dict[Any, None] = dict.fromkeys(tensor.dtype for tensor in tensors)
    if len(kinds) > 1:
        raise ValueError(f"expected tensors of one dtype, got {', '.join(map(str, kinds))}")
