"""Memory that ranks of one process lend to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class MemoryLoan:
    """Pieces of memory of this process; fulfils `Loan`. `alive` tells whether the sender still lives."""

    def __init__(self, pieces: Sequence[memoryview], alive: Callable[[], bool] = lambda: True) -> None:
        self._left, self._alive = list(pieces), alive

    def read_into(self, view: memoryview) -> int:
        if not self._alive():
            raise ProcessLookupError("the sender has ended")
        done = 0
        while done < len(view) and self._left:
            piece = self._left.pop(0)
            size = min(len(piece), len(view) - done)
            view[done : done + size] = piece[:size]
            done += size
            if size < len(piece):
                self._left.insert(0, piece[size:])
        return done
