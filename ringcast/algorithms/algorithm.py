"""Define an entry of the table of algorithms: one way to do a collective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ringcast._util.dataclass import dataclass
from ringcast.algorithms.load import Formula, combining
from ringcast.algorithms.papers import Paper
from ringcast.algorithms.params import Params
from ringcast.schedules.placement import members
from ringcast.schedules.schedule import Schedule, reverse


def _any(_: Params) -> str:
    return ""


def all_at_once(p: Params) -> int:
    """Return the number of ranks on the largest host: all of them may send to other hosts in the same round."""
    return max(map(len, members(p.hosts)))


def one_at_a_time(_: Params) -> int:
    """Return 1: ranks lie in a row, with the ranks of a host side by side."""
    return 1


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One way to do a collective: its schedule, needs, costs and source.

    `rounds` is exact; `load` sums the rounds' messages for the cost model. The formulas say the same for readers, and
    are Python: p ranks, q = ceil(log2 p), d = floor(log2 p), n blocks, m bytes of the whole buffer (all parts; of an
    exchange and a shift: both the data that a rank gives and the data that it gets); s = distance; a x b = the mesh
    nearest to a square, a <= b; u x v x w = the mesh nearest to a cube (of least u + v + w), u <= v <= w; h = the skips
    in 1, ..., p-1, each a sum of skips of the circulant graph, the largest first.
    """

    name: str
    collective: str
    build: Callable[[Params, int], Schedule]
    rounds: Callable[[Params], int]
    load: Formula
    paper: Paper
    place: str  # in the paper
    rounds_formula: str  # `rounds` and, for equal parts, the volume of `load`, in the letters above
    volume_formula: str
    commutative: bool = False  # needs a commutative operator
    elementwise: bool = False  # needs an operator that may be applied to pieces of the value
    exact: bool = False  # gives all ranks the same bits only if the operator gives the same bits in any association
    equal_counts: bool = False  # needs parts of equal size
    blocks: bool = False  # cuts parts into `nblocks` blocks
    fits: Callable[[Params], str] = _any  # returns why it cannot do a call of that many ranks; "" if it can
    leaving: Callable[[Params], int] = all_at_once  # most messages that leave a host in a round, where ranks share one
    shared: bool = False  # for ranks that share hosts: where no ranks do, it is taken only by name
    whole: bool = False  # a reduce_scatter that gives every rank the whole vector: the caller takes its part

    @property
    def source(self) -> str:
        return f"{self.paper.title}, {self.place}"


_BACKWARDS = {"bcast": "reduce", "allgatherv": "reduce_scatter"}


def reduction(spread: Algorithm, *, elementwise: bool = True) -> Algorithm:
    """Return the reduction that is a bcast or an allgatherv backwards; Grama et al. call it the dual.

    `elementwise` is False where the schedule moves whole values only.
    """
    return replace(
        spread,
        collective=_BACKWARDS[spread.collective],
        build=lambda p, rank: reverse(spread.build(p, rank)),
        load=combining(spread.load),
        place=f"{spread.place}, backwards",
        commutative=True,
        elementwise=elementwise,
    )


def regular(allgatherv: Algorithm) -> Algorithm:
    """Return the allgather of equal parts by the same schedule."""
    return replace(allgatherv, collective="allgather", equal_counts=True)


def power_of_two(p: Params) -> str:
    """Return a reason against the call unless the number of ranks is a power of two; else ""."""
    return "" if p.size & (p.size - 1) == 0 else f"it needs a power of two ranks, not {p.size}"


def log_rounds(p: Params) -> int:
    """Return ceil(log2 size)."""
    return (p.size - 1).bit_length()
