"""Memory that ranks of one process lend to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringcast.transports.base import LoanWithdrawn


class MemoryLoan:
    """Pieces of memory of this process; fulfils `Loan`. `alive` tells whether the sender still lives."""

    def __init__(self, pieces: Sequence[memoryview], alive: Callable[[], bool] = lambda: True) -> None:
        self._left, self._alive, self._lent, self._withdrawn = list(pieces), alive, pieces, False

    def withdraw(self, pieces: Sequence[memoryview]) -> None:
        """End this loan, if it is of these pieces."""
        self._withdrawn |= pieces is self._lent

    def read_into(self, view: memoryview) -> int:
        if not self._alive():
            raise ProcessLookupError("the sender has ended")
        if self._withdrawn:
            raise LoanWithdrawn("the sender has given up the call")
        done = 0
        while done < len(view) and self._left:
            piece = self._left.pop(0)
            size = min(len(piece), len(view) - done)
            view[done : done + size] = piece[:size]
            done += size
            if size < len(piece):
                self._left.insert(0, piece[size:])
        return done
