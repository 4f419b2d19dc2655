"""Intercommunicators: each rank sends to the ranks of another group, and receives from these."""

from __future__ import annotations

import sys
from typing import Any

from ringcast.collectives import split
from ringcast.engine.execute import Steps
from ringcast.mpi.base.contexts import Shared, shared, two_sided
from ringcast.mpi.collectives.between_groups import InterCollectives
from ringcast.mpi.communicators.comm import COMM_WORLD, Comm, Intracomm
from ringcast.mpi.communicators.group import Group
from ringcast.mpi.communicators.members import tag_of
from ringcast.mpi.handles.comm_handle import INTER, of_kind
from ringcast.mpi.requests.calls import run

__all__ = ["Intercomm"]
from ringcast.wire.call import site_of


@of_kind(INTER)
class Intercomm(InterCollectives, Comm):
    """A communicator of two groups.

    It has a group of the ranks of both sides, and one for each side. In the former, the side whose leader is the lower
    rank of the job comes first.
    """

    @classmethod
    def Create_from_groups(
        cls,
        local_group: Group,
        local_leader: int,
        remote_group: Group,
        remote_leader: int,
        stringtag: str = "org.mpi4py",
        info: Any = None,
        errhandler: Any = None,
    ) -> Intercomm:
        """Return an intercommunicator of two groups of the job; their ranks call it, with the same text."""
        local = Intracomm.Create_from_group(local_group, stringtag, info, errhandler)
        leader = remote_group.Translate_ranks([remote_leader])[0]
        made: Intercomm = local.Create_intercomm(local_leader, COMM_WORLD, leader, tag_of(stringtag))
        local.Free()
        return made

    def Get_remote_group(self) -> Group:
        """Return the group of the ranks that messages are sent to."""
        return self._remote()

    def Get_remote_size(self) -> int:
        """Return the number of the ranks that messages are sent to."""
        return self._peers.size

    remote_group, remote_size = property(Get_remote_group), property(Get_remote_size)

    def Merge(self, high: bool = False) -> Intracomm:
        """Return a communicator of the ranks of both sides; the ranks that pass `high=True` come last."""
        return Intracomm._of_state(run(self, "Merge", self._merge(high), site_of(sys._getframe(1))))

    def _merge(self, high: bool) -> Steps[Shared]:
        both = self._peers.group
        ranks = yield from split.same_color(both, 0, int(bool(high)), "Merge")
        return shared(split.made(both, ranks, 0), self._shared)

    def _again(self) -> Steps[Shared]:
        both = yield from split.dup(self._peers.group)
        return two_sided(both, self._peers.boundary, self._shared)

    def _split(self, color: int | None, key: int) -> Steps[Shared | None]:
        """Return the communicator of the ranks of both sides with this colour; None if a side has none."""
        both, boundary = self._peers.group, self._peers.boundary
        ranks = yield from split.same_color(both, color, key, "Split")
        low, high = [rank for rank in ranks if rank < boundary], [rank for rank in ranks if rank >= boundary]
        if color is None or not low or not high:
            return None
        return two_sided(split.made(both, [*low, *high], color), len(low), self._shared)

    def _color_of(self, ranks: list[int]) -> int:
        return 0  # the groups of both sides belong together
