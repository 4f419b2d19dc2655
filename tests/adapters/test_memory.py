"""Arrays and tensors of programs as rows of items: in their own memory where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringcast.adapters import memory
from support import needs


def strided() -> Any:
    return np.arange(12.0).reshape(3, 4)[:, ::2]


def test_a_contiguous_array_is_its_own_row() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(memory.items(array), array)
    row, back = memory.target(array)
    row[:] = 7
    back()
    assert (array == 7).all()


@pytest.mark.parametrize("array", [strided(), np.arange(6).reshape(2, 3).T, np.array(3.0), np.zeros((0, 3))])
def test_any_layout_gets_its_items_back(array: Any) -> None:
    before = array.copy()
    assert memory.items(array).tolist() == before.reshape(-1).tolist()
    row, back = memory.target(array)
    assert row.ndim == 1
    row += 1
    back()
    assert (array == before + 1).all()


def test_float16_is_combined_as_float32() -> None:
    array = np.array([1.0, 2.0], np.float16)
    row, back = memory.operand(array)
    assert row.dtype == np.float32
    row[:] = [2049.0, 3.0]
    assert array.tolist() == [1.0, 2.0]
    back()
    assert array.tolist() == [2048.0, 3.0]
    assert memory.joined([array, array]).dtype == np.float32


def test_others_are_refused() -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        memory.target(fixed)
    assert memory.items(fixed).size == memory.contribution(fixed).size == memory.joined([fixed]).size == 3
    for other in [1, 2], "text", b"bytes", None:
        with pytest.raises(TypeError, match="expected a numpy array or a CPU tensor of torch, got"):
            memory.items(other)
    with pytest.raises(TypeError, match="without Python objects"):
        memory.items(np.array([object()]))
    with pytest.raises(TypeError, match="expected arrays of one dtype, got float64, int32"):
        memory.joined([np.zeros(2), np.zeros(2, np.int32)])


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int64", "bool", "complex64"])
def test_tensors_keep_their_memory(name: str) -> None:
    needs.package("torch")
    import torch

    dtype = getattr(torch, name)
    for tensor in torch.ones(2, 3).to(dtype), torch.ones(3, 4).to(dtype)[:, ::2], torch.ones(2, 3).to(dtype).t():
        row, back = memory.target(tensor)
        row[:] = memory.items(torch.zeros(tensor.numel()).to(dtype))
        back()
        assert not tensor.any()


def test_bfloat16_is_combined_as_float32() -> None:
    needs.package("torch")
    import torch

    for tensor in torch.ones(4, dtype=torch.bfloat16), torch.ones(4, 2, dtype=torch.bfloat16)[:, 0]:
        row, back = memory.operand(tensor)
        assert row.dtype == np.float32
        row += 1.0 / 3
        back()
        assert torch.equal(tensor, torch.full((4,), 4.0 / 3, dtype=torch.bfloat16))


def test_tensors_that_are_not_here_are_refused() -> None:
    needs.package("torch")
    import torch

    with pytest.raises(TypeError, match="got one on meta"):
        memory.items(torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="dense"):
        memory.items(torch.zeros(3).to_sparse())
    with pytest.raises(TypeError, match="resolve_conj"):
        memory.items(torch.ones(3, dtype=torch.complex64).conj())
    with pytest.raises(TypeError, match="or bfloat16, got"):
        memory.items(torch.zeros(3).to(torch.float8_e5m2))


def test_a_tensor_can_be_resized_after_a_call() -> None:
    needs.package("torch")
    import torch

    tensor = torch.ones(4)
    row, _ = memory.target(tensor)
    row[:] = 2
    assert tensor.resize_(10)[:4].tolist() == [2.0] * 4


def test_a_row_keeps_the_memory_of_its_tensor() -> None:
    needs.package("torch")
    import torch

    row = memory.items(torch.full((1_000_000,), 3.0))
    others = [torch.zeros(1_000_000) for _ in range(3)]
    assert (row == 3).all()
    assert len(others) == 3
