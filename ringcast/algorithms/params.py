"""Define the facts of a call that are equal on all ranks: before the choice of an algorithm, and after it."""

from __future__ import annotations

from typing import NamedTuple

from ringcast.schedules.placement import Hosts


class Params(NamedTuple):
    """The parameters of a call that all ranks know. A tuple, as every stage looks its schedule up by it."""

    size: int
    root: int = 0
    nblocks: int = 1  # of every part; pipelined ring: of the largest part
    counts: tuple[int, ...] = ()  # v-forms: elements of each part; (): all parts are equal and not empty
    distance: int = 0  # shift: number of ranks, 0 <= distance < size
    hosts: Hosts = ()  # the number of each rank's host, where some ranks share one and others do not

    @property
    def contributions(self) -> tuple[int, ...]:
        """A number for each part, 0 if the part is empty: the counts, or the same number for equal parts."""
        return self.counts or (self.nblocks,) * self.size


class CallFacts(NamedTuple):
    """The input of the choice of an algorithm, beside the network; equal on all ranks.

    A tuple, as every call of a collective makes one and looks its choice up by it.
    """

    size: int  # ranks
    nbytes: int  # of the whole buffer, all parts
    itemsize: int = 1  # bytes of an element, the smallest sensible block
    root: int = 0  # where there is one
    counts: tuple[int, ...] = ()  # v-forms: elements of each part
    distance: int = 0  # of a shift
    hosts: Hosts = ()  # ranks with equal numbers share a host, and so its link
    commutative: bool = True  # the operator is
    elementwise: bool = True  # the operator may be applied to pieces
    exact: bool = True  # any association of the operator gives the same bits

    def params(self, nblocks: int = 1) -> Params:
        """Return the parameters for an algorithm that cuts into `nblocks` blocks."""
        return Params(self.size, int(self.root), nblocks, self.counts, self.distance, self.hosts)
