"""The parameters of a call that all ranks know, as algorithms need them."""

from __future__ import annotations

from dataclasses import dataclass

from ringcast.schedules.placement import Hosts


@dataclass(frozen=True)
class Params:
    """The parameters of a call that all ranks know."""

    size: int
    root: int = 0
    nblocks: int = 1  # of every part; pipelined ring: of the largest part
    counts: tuple[int, ...] = ()  # v-forms: elements of each part; (): all parts are equal and not empty
    distance: int = 0  # shift: how many ranks further, 0 <= distance < size
    hosts: Hosts = ()  # the number of each rank's host, where some ranks share one and others do not

    @property
    def contributions(self) -> tuple[int, ...]:
        """Counts that tell which parts are empty, also where all are equal."""
        return self.counts or (self.nblocks,) * self.size
