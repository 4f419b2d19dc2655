"""A gather into tensors of the root, whose sizes the other ranks do not know."""

from __future__ import annotations

from collections.abc import Sequence

from ringcast.collectives.gather import exchange_counts, gatherv
from ringcast.collectives.stage import AUTOMATIC, Group
from ringcast.communicator import Communicator
from ringcast.engine.execute import Steps
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.requests.request import Request
from ringcast.wire.call import NOWHERE


class Parts:
    """The gathers of a communicator; they have the forms of its own calls."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def gather(
        self, mine: Array, root: int, sizes: Sequence[int] = (), out: Array | None = None, timeout: float | None = None
    ) -> None:
        """Bring the items of all ranks to the root, where rank i has to give `sizes[i]` of them.

        Raises:
            ArgumentError: at the root, a rank gives another number; the communicator is given up.
        """
        steps, site = _gathered(self._comm._group, mine, root, sizes, out), self._comm._place or NOWHERE
        self._comm._make("gather", steps, timeout, site)

    def igather(self, mine: Array, root: int, sizes: Sequence[int] = (), out: Array | None = None) -> Request[None]:
        """Begin a gather."""
        return self._comm._begin("igather", lambda: _gathered(self._comm._group, mine, root, sizes, out), NOWHERE)


def _gathered(group: Group, mine: Array, root: int, sizes: Sequence[int], out: Array | None) -> Steps[None]:
    mine, counts = yield from exchange_counts(group, "gatherv", mine, None)
    if group.rank == root:
        for rank, (given, expected) in enumerate(zip(counts, sizes, strict=True)):
            if given != expected:
                found = f"expected {expected} items of rank {rank}, got {given}"
                raise ArgumentError(group.endpoint.rank, "gather", "outputs", found)
    yield from gatherv(group, mine, counts, root, out, AUTOMATIC)
