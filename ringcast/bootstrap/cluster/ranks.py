"""The interface between a cluster and its ranks, the same wherever the ranks run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ringcast.bootstrap.cluster.interrupts import Interrupts
from ringcast.bootstrap.cluster.outcome import Outcome


class BrokenOff(Exception):
    """A run was ended from outside by `error`: an interrupt, or TimeoutError for its time limit.

    `unended` are the ranks that had not ended the run then; `outcomes` are the outcomes of the ranks that have ended it
    by now; `broken` says why no other run is possible, or is empty.
    """

    def __init__(self, error: BaseException, unended: Sequence[int], outcomes: Sequence[Outcome], broken: str) -> None:
        super().__init__(error, unended, outcomes, broken)
        self.error, self.unended, self.outcomes, self.broken = error, unended, outcomes, broken

    @property
    def late(self) -> list[int]:
        """The ranks whose functions had not returned."""
        ended = {one.rank: one for one in self.outcomes}
        return [rank for rank in self.unended if rank not in ended or ended[rank].late or not ended[rank].returned]


class Ranks(Protocol):
    """The ranks of a cluster, which wait for calls."""

    def wake(self) -> None:
        """End the wait of `run` for a moment; called by handlers of signals."""

    def prepare(self, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the call as `run` takes it; nothing is sent.

        Raises:
            Exception: function or arguments cannot be pickled.
        """

    def run(self, call: Any, until: float | None, interrupts: Interrupts) -> list[Outcome]:
        """Have all ranks make the call, and return their outcomes, in the order in which they came.

        Raises:
            BrokenOff: `until`, on the clock of `time.monotonic`, has come, or an interrupt, or any other exception.
            RunFailed: a rank has died.
        """

    def close(self) -> None:
        """End all ranks, and give everything back, within a bounded time; idempotent."""
