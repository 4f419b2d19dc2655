"""Communicators that members make alone: of a group, and between two groups."""

from __future__ import annotations

import sys
from typing import Any
from zlib import crc32

import numpy as np

from ringcast import collectives
from ringcast._util.safe_text import safe_text
from ringcast.collectives import point_to_point
from ringcast.collectives.split import formed
from ringcast.collectives.stage import AUTOMATIC
from ringcast.collectives.stage import Group as CoreGroup
from ringcast.engine.execute import Steps
from ringcast.mpi.base.contexts import MAX_TAG, Shared, fresh, shared, two_sided
from ringcast.mpi.base.error_classes import ERR_COMM, ERR_RANK, ERR_TAG
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.communicators.group import Group
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.requests.calls import run
from ringcast.ops import Array
from ringcast.wire.call import site_of


class MemberCalls(CommHandle):
    """Calls of an intracommunicator that only the future members make."""

    _ranks_of: Any

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """Return a communicator of the ranks of a group; only these call it, with the same tag."""
        return self._plain(run(self, "Create_group", self._create_group(group, tag), site_of(sys._getframe(1))))

    def _create_group(self, group: Group, tag: int) -> Steps[Shared | None]:
        ranks, mine, inner = self._ranks_of(group), self._shared, self._shared.inner
        _check_tag(tag)
        if self._group.rank not in ranks:
            return None
        if self._group.rank == ranks[0]:
            context = fresh(self._group)
            for rank in ranks[1:]:
                yield from point_to_point.send(inner, np.uint64(context), rank, tag)
        else:
            context = int((yield from point_to_point.recv(inner, ranks[0], tag, None, None)))
        return shared(formed(self._group, group._members, context), mine)

    def Create_intercomm(self, local_leader: int, peer_comm: Any, remote_leader: int, tag: int = 0) -> Any:
        """Return an intercommunicator of these ranks and the ranks of another communicator.

        The ranks of both call it. Only the two leaders need `peer_comm`, a communicator to which both belong, and
        `remote_leader`, the other leader's rank in it.
        """
        steps = self._create_intercomm(local_leader, peer_comm, remote_leader, tag)
        return self._plain(run(self, "Create_intercomm", steps, site_of(sys._getframe(1))))

    def _create_intercomm(
        self, local_leader: int, peer_comm: Any, remote_leader: int, tag: int
    ) -> Steps[Shared | Exception]:
        group = self._group
        if not 0 <= local_leader < group.size:
            raise Exception(ERR_RANK, f"expected a local leader in 0..{group.size - 1}, got {safe_text(local_leader)}")
        told: Array | None = None
        error = None
        if group.rank == local_leader:
            try:
                peers = _checked(peer_comm, remote_leader, tag)
            except Exception as wrong:  # MPI's own: raised at the end of the call
                error, told = wrong, np.zeros(0, np.uint64)  # the others do not wait for ever
            else:
                told = yield from _met(group, peers, remote_leader, tag)
        told = yield from collectives.broadcast.bcast(group, told, local_leader, AUTOMATIC)
        if told is None or not len(told):
            return error or Exception(ERR_COMM, "the local leader has given a wrong peer communicator, rank or tag")
        return _two_sided(group, told, self._shared)


def _met(group: CoreGroup, peers: CoreGroup, remote_leader: int, tag: int) -> Steps[Array]:
    """Have the two leaders exchange a new context and the ranks of their groups; return the array for `_two_sided`."""
    members = [group.in_job(rank) for rank in range(group.size)]
    mine = np.array([fresh(group), *members], np.uint64)
    theirs = yield from point_to_point.sendrecv(peers, mine, remote_leader, remote_leader, tag)
    first, second = (mine, theirs) if peers.rank < remote_leader else (theirs, mine)
    return np.array([first[0], len(first) - 1, *first[1:], *second[1:]], np.uint64)


def _two_sided(group: CoreGroup, told: Array, like: Shared) -> Shared | Exception:
    """Return the intercommunicator of a context, the number of ranks of the first side, and all ranks."""
    context, first, *members = told.tolist()
    if len({*members}) < len(members):
        return Exception(ERR_COMM, "expected two communicators without a rank that belongs to both")
    return two_sided(formed(group, members, context), first, like)


def _checked(peer_comm: Any, remote_leader: int, tag: int) -> CoreGroup:
    """Return the group over which the leaders meet."""
    if not peer_comm:
        raise Exception(ERR_COMM, "expected a communicator to which both leaders belong, got none")
    peers: CoreGroup = peer_comm._shared.inner
    if not 0 <= remote_leader < peers.size or remote_leader == peers.rank:
        expected = f"expected another rank in 0..{peers.size - 1} as the remote leader, got {safe_text(remote_leader)}"
        raise Exception(ERR_RANK, expected)
    _check_tag(tag)
    return peers


def _check_tag(tag: int) -> None:
    if not 0 <= tag <= MAX_TAG:
        raise Exception(ERR_TAG, f"expected a tag in 0..{MAX_TAG}, got {safe_text(tag)}")


def tag_of(stringtag: str) -> int:
    """Return the tag that a text stands for."""
    return crc32(stringtag.encode()) & MAX_TAG
