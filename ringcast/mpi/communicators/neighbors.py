"""Collectives between the neighbours in a topology."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from ringcast.collectives.neighbors import move_pieces, swap_objects
from ringcast.collectives.stage import pickled
from ringcast.engine.execute import Steps
from ringcast.engine.objects import AS_IT_IS
from ringcast.mpi.base.failing import Outcome
from ringcast.mpi.collectives.buffers import all_filled, check_length, forms, pieces_of
from ringcast.mpi.collectives.objects import one_for_each, unpickled
from ringcast.mpi.communicators.topologies import Topologies
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.datatypes.buffers import Part, block, message, vector, wide
from ringcast.mpi.requests.calls import blocking


class NeighborCollectives(Topologies):
    """Calls in which each rank sends along its edges; nothing comes where there is no neighbour."""

    @property
    def _degrees(self) -> tuple[int, int]:
        """The number of neighbours from which this rank receives, and to which it sends."""
        return len(self._near.schedule.sources), len(self._near.schedule.destinations)

    def _neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Send one buffer to all neighbours, and put theirs into blocks of another one."""
        incoming, outgoing = self._degrees
        given, parts = message(sendbuf, writes=False), _blocks(recvbuf, incoming, writes=True)
        return self._moved("neighbor_allgather", pieces_of([given], parts) * outgoing, parts, given.nbytes)

    Neighbor_allgather, Ineighbor_allgather, Neighbor_allgather_init = forms(_neighbor_allgather, "Neighbor_allgather")

    def _neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Send one buffer to all neighbours, and put theirs, of any lengths, into places of another one."""
        incoming, outgoing = self._degrees
        given, parts = message(sendbuf, writes=False), vector(recvbuf, incoming, writes=True)
        return self._moved("neighbor_allgatherv", pieces_of([given], parts) * outgoing, parts)

    Neighbor_allgatherv, Ineighbor_allgatherv, Neighbor_allgatherv_init = forms(
        _neighbor_allgatherv, "Neighbor_allgatherv"
    )

    def _neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange blocks with the neighbours."""
        incoming, outgoing = self._degrees
        given, parts = _blocks(sendbuf, outgoing, writes=False), _blocks(recvbuf, incoming, writes=True)
        longest = max((part.nbytes for part in given), default=0)
        return self._moved("neighbor_alltoall", pieces_of(given, parts), parts, longest)

    Neighbor_alltoall, Ineighbor_alltoall, Neighbor_alltoall_init = forms(_neighbor_alltoall, "Neighbor_alltoall")

    def _neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange parts of any lengths with the neighbours."""
        incoming, outgoing = self._degrees
        given, parts = vector(sendbuf, outgoing, writes=False), vector(recvbuf, incoming, writes=True)
        return self._moved("neighbor_alltoallv", pieces_of(given, parts), parts)

    Neighbor_alltoallv, Ineighbor_alltoallv, Neighbor_alltoallv_init = forms(_neighbor_alltoallv, "Neighbor_alltoallv")

    def _neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange parts of any lengths and datatypes with the neighbours."""
        incoming, outgoing = self._degrees
        given, parts = wide(sendbuf, outgoing, writes=False), wide(recvbuf, incoming, writes=True)
        return self._moved("neighbor_alltoallv", pieces_of(given, parts), parts)

    Neighbor_alltoallw, Ineighbor_alltoallw, Neighbor_alltoallw_init = forms(_neighbor_alltoallw, "Neighbor_alltoallw")

    def _moved(self, name: str, outgoing: list[Bytes], parts: list[Part], longest: int = 0) -> Steps[None]:
        """Send a piece to each destination, and store the piece from each source; see `move_pieces`."""
        schedule, rooms = self._near.schedule, [part.room() for part in parts]
        for place, into in schedule.own:
            check_length(outgoing[place], rooms[into].nbytes)
        pieces, places = [piece.data for piece in outgoing], [room.data for room in rooms]
        there = [source is not None for source in schedule.sources]
        steps = move_pieces(self._near, name, pieces, places, longest)
        return all_filled([*compress(parts, there)], [*compress(rooms, there)], steps)

    def _neighbor_allgather_objects(self, sendobj: Any) -> Steps[Outcome]:
        """Send one object to all neighbours, and return theirs; None where there is none."""
        encode, _ = pickled(self._group, "neighbor_allgather")
        outgoing = self._degrees[1]
        return self._objects("neighbor_allgather", [encode(sendobj)] * outgoing, [sendobj] * outgoing)

    neighbor_allgather = blocking(_neighbor_allgather_objects, "neighbor_allgather")

    def _neighbor_alltoall_objects(self, sendobj: Sequence[Any]) -> Steps[Outcome]:
        """Send an object to each neighbour, and return theirs; None where there is none."""
        encode, _ = pickled(self._group, "neighbor_alltoall")
        values = one_for_each(sendobj, self._degrees[1])
        return self._objects("neighbor_alltoall", [*map(encode, values)], values)

    neighbor_alltoall = blocking(_neighbor_alltoall_objects, "neighbor_alltoall")

    def _objects(self, name: str, packed: list[Any], values: list[Any]) -> Steps[Outcome]:
        """Send each destination one of the values, which are given as bytes, too; return the received ones."""
        mine = {into: values[place] for place, into in self._near.schedule.own}
        return unpickled((yield from swap_objects(self._near, name, packed, AS_IT_IS)), mine)


def _blocks(spec: Any, blocks: int, *, writes: bool) -> list[Part]:
    return block(spec, blocks, writes=writes).split(blocks) if blocks else []
