"""torch's reductions: the operator of ringcast, and the form in which the items are combined.

Floats of 16 bits and less are combined as float32, and rounded once, at the end. Booleans are combined by logic: a sum
of them is true where any is, as Gloo has it. An operator has a name of its own where tensors are prepared or finished
in some way: all ranks have to combine alike, and their calls are matched by it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ringcast.ops import BAND, BOR, BXOR, LAND, LOR, LXOR, MAX, MIN, PROD, SUM, Op, renamed
from ringcast.torch.memory import check

_Kind = dist.ReduceOp.RedOpType
_OPS = {
    _Kind.SUM: SUM,
    _Kind.AVG: SUM,
    _Kind.PREMUL_SUM: SUM,
    _Kind.PRODUCT: PROD,
    _Kind.MIN: MIN,
    _Kind.MAX: MAX,
    _Kind.BAND: BAND,
    _Kind.BOR: BOR,
    _Kind.BXOR: BXOR,
}
_OF_BOOLEANS = {SUM: LOR, MAX: LOR, BOR: LOR, PROD: LAND, MIN: LAND, BAND: LAND, BXOR: LXOR}


class Reduction(NamedTuple):
    """How tensors are combined.

    Attributes:
        op: the operator.
        wide: whether the items are combined as float32.
        before: applied to a rank's tensor; None: nothing.
        after: applied to the combined tensor, in place; None: nothing.
    """

    op: Op
    wide: bool = False
    before: Callable[[torch.Tensor], torch.Tensor] | None = None
    after: Callable[[torch.Tensor], object] | None = None


def reduction(given: Any, tensor: torch.Tensor, size: int) -> Reduction:
    """Return how tensors like this one are combined.

    Args:
        given: a ReduceOp of torch.
        tensor: one of the tensors.
        size: number of ranks.

    Raises:
        ValueError: the operator does not take such tensors.
    """
    check(tensor)
    kind, dtype = given.op, tensor.dtype
    op = _OPS.get(kind)
    if op is None:
        raise ValueError(f"ringcast has no {kind}")
    real = dtype.is_floating_point
    if op in (BAND, BOR, BXOR) and (real or dtype.is_complex):
        raise ValueError(f"{kind} takes whole numbers and booleans, got {dtype}")
    if op in (MIN, MAX) and dtype.is_complex:
        raise ValueError(f"{kind} takes numbers that have an order, got {dtype}")
    if dtype is torch.bool:
        return Reduction(_OF_BOOLEANS[op])
    wide = real and tensor.element_size() < 4
    op = _named(op, kind, dtype if wide else None)
    if kind == _Kind.AVG:
        rounded = None if real or dtype.is_complex else "floor"
        return Reduction(op, wide, after=lambda total: total.div_(size, rounding_mode=rounded))
    if kind == _Kind.PREMUL_SUM:
        factor = given.factor
        return Reduction(op, wide, before=lambda mine: mine * factor)
    return Reduction(op, wide)


@cache
def _named(op: Op, kind: Any, narrow: torch.dtype | None) -> Op:
    """Return an operator by a name that says what the tensors' own items are, and what is done to them."""
    name = kind.name if kind in (_Kind.AVG, _Kind.PREMUL_SUM) else str(op)
    if narrow is not None:
        name = f"{name} of {str(narrow).removeprefix('torch.')} as float32"
    return op if name == str(op) else renamed(op, name)
