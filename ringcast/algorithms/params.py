"""What all ranks know about a call of a collective."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Params:
    """What all ranks know about a call of a collective."""

    size: int
    root: int = 0
    nblocks: int = 1  # of every part; pipelined ring: of the largest part
    counts: tuple[int, ...] = ()  # v-forms: elements of each part; (): all parts are equal and not empty
    distance: int = 0  # shift: how many ranks further, 0 <= distance < size

    @property
    def contributions(self) -> tuple[int, ...]:
        """Counts that tell which parts are empty, also where all are equal."""
        return self.counts or (self.nblocks,) * self.size
