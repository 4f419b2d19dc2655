"""An algorithm as the table has it: one way to do a collective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringcast.algorithms.load import Formula
from ringcast.algorithms.params import Params
from ringcast.schedule import Schedule


@dataclass(frozen=True)
class Algorithm:
    """One way to do a collective: how to get its schedule, what it needs, what it takes, where it is from.

    `rounds` is exact; `load` tells what they add up to, for the cost model.
    """

    name: str
    collective: str
    build: Callable[[Params, int], Schedule]
    rounds: Callable[[Params], int]
    source: str
    load: Formula
    commutative: bool = False  # needs a commutative operator
    elementwise: bool = False  # needs an operator that may be applied to pieces of the value
    exact: bool = False  # gives all ranks the same bits only if the operator gives the same in any association
    equal_counts: bool = False  # needs parts of equal size
    blocks: bool = False  # cuts parts into `nblocks` blocks
    whole: bool = False  # a reduce_scatter that gives every rank the whole vector: the caller takes its part


def log_rounds(p: Params) -> int:
    """Return ceil(log2 size)."""
    return (p.size - 1).bit_length()
