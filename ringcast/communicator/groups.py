"""The ranks of a communicator, and communicators that are made of all or some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, overload

from ringcast import collectives
from ringcast.collectives.stage import Group
from ringcast.errors import ArgumentError
from ringcast.requests.calls import Calls

if TYPE_CHECKING:
    from ringcast.topology.cartesian import Grid
    from ringcast.topology.graph import Topology


class Groups(Calls):
    """The ranks of a communicator, and calls that make communicators of all or some of them."""

    @property
    def rank(self) -> int:
        """Number of this rank, 0 <= rank < size.

        >>> comm.rank
        0
        """
        return self._group.rank

    @property
    def size(self) -> int:
        """Number of ranks.

        >>> comm.size
        1
        """
        return self._group.size

    @property
    def members(self) -> tuple[int, ...]:
        """`members[r]` is the job's rank of this communicator's rank r.

        >>> comm.members
        (0,)
        """
        return self._group.members or tuple(range(self.size))

    def dup(self, *, timeout: float | None = None) -> Self:
        """Return a communicator of the same ranks; calls on one of the two do not meet calls on the other.

        Collective.

        Cost: as `barrier`.

        >>> comm.dup().size
        1
        """
        return self._of(self._call(collectives.split.dup(self._group), timeout))

    @overload
    def split(self, color: int, key: int = 0, *, timeout: float | None = None) -> Self: ...
    @overload
    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Self | None: ...
    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Self | None:
        """Return a communicator of the ranks that give the same colour.

        Collective: all ranks call it, each with a colour and a key of its own.

        Cost: as `allgather` of 24 bytes a rank.

        Args:
            color: a whole number of 64 bits; None: this rank is in no part.
            key: a whole number of 64 bits, by which the ranks of a part are ordered; ranks with equal keys stay in
                their old order.

        Returns:
            A Communicator of this rank's part; None for a colour of None. Its errors name ranks of the job, as
            `members` does; an error in it does not concern the others. Its `finalize` frees it for this rank alone;
            `free` for all.

        >>> comm.split(comm.rank % 2, key=-comm.rank).members
        (0,)
        """
        return self._part(self._call(collectives.split.split(self._group, color, key), timeout))

    def split_by_host(self, *, timeout: float | None = None) -> Self:
        """Return a communicator of the ranks on this rank's host, in their old order; see `split`.

        >>> comm.split_by_host().size
        1
        """
        part = self._part(self._call(collectives.split.split_by_host(self._group), timeout))
        assert part is not None, "every rank has a host"
        return part

    def create(self, ranks: Sequence[int], *, timeout: float | None = None) -> Self | None:
        """Return a communicator of some ranks, in the order given.

        Collective: all ranks call it, also the ones outside `ranks`.

        Cost: as `barrier`.

        Args:
            ranks: different ranks of this communicator, one at least; equal on all ranks.

        Returns:
            A Communicator, as of `split`; None on ranks outside `ranks`.

        >>> comm.create([0]).members
        (0,)
        """
        return self._part(self._call(collectives.split.create(self._group, ranks), timeout))

    def cart(
        self, dims: int | Sequence[int], periods: bool | Sequence[bool] = False, *, timeout: float | None = None
    ) -> Grid[Self] | None:
        """Return a Cartesian grid of ranks, with a communicator of its own.

        Collective: all ranks call it, also the ones for which the grid has no room.

        Cost: as `barrier`.

        Args:
            dims: number of ranks along each axis, one or more axes; 0 where a number is to be found, as
                `ringcast.dims_create` does. Equal on all ranks, as are `periods`.
            periods: whether each axis is closed to a ring; one value for all of them, or one for each.

        Returns:
            A `Grid`, whose `comm` is a Communicator of the first ranks in their order; None on ranks beyond these.

        >>> comm.cart([0, 0]).dims
        (1, 1)
        """
        from ringcast.topology.cartesian import Grid, grid_of  # no start waits for topologies

        shape, rings = grid_of(self._group.endpoint.rank, self.size, dims, periods)
        part = self._part(self._call(collectives.split.cart(self._group, shape, rings), timeout))
        return None if part is None else Grid(part, shape, rings)

    def graph(
        self, destinations: Sequence[int], sources: Sequence[int] | None = None, *, timeout: float | None = None
    ) -> Topology[Self]:
        """Return a topology of any edges between ranks, with a communicator of its own.

        Collective: all ranks call it, each with the edges that begin at it; there may be none, or several to the same
        rank, or to itself.

        Cost: as `allgatherv` of 8 bytes for each edge, without counts. All ranks then know all edges, and compute the
        rounds: 20 ms for 1000 ranks with 6 edges each.

        Args:
            destinations: the ranks to which this rank sends, in the order in which it gives them values.
            sources: the ranks from which it receives, in the order in which it gets their values: all ranks that have
                this rank among their destinations, each as often, and no others. None: these, in rank order. Ranks may
                differ in whether they give sources.

        Returns:
            A `Topology`, whose calls send to `destinations` and receive from `sources`.

        Raises:
            ArgumentError: also if sources contradict the others' destinations: on all ranks alike, and the
                communicator stays in use. The message names two ranks that disagree.

        >>> comm.graph([0, 0]).neighbor_alltoall(["a", "b"])
        ['a', 'b']
        """
        from ringcast.collectives.graph import graph
        from ringcast.topology.graph import Topology

        made = self._call(graph(self._group, destinations, sources), timeout)
        if isinstance(made, ArgumentError):
            raise made
        group, neighborhood = made
        return Topology(self._of(group), neighborhood)

    def _part(self, group: Group | None) -> Self | None:
        return None if group is None else self._of(group)
