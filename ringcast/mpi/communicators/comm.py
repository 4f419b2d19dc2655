"""Communicators."""

from __future__ import annotations

from typing import Any, NoReturn

from ringcast.mpi.base.abort import abort
from ringcast.mpi.base.constants import (
    APPNUM,
    CONGRUENT,
    IDENT,
    IO,
    LASTUSEDCODE,
    MAX_OBJECT_NAME,
    PROC_NULL,
    TAG_UB,
    UNDEFINED,
    UNEQUAL,
    UNIVERSE_SIZE,
    WTIME_IS_GLOBAL,
)
from ringcast.mpi.base.contexts import MAX_TAG, Shared
from ringcast.mpi.base.exceptions import last_used_code
from ringcast.mpi.collectives.buffers import Collectives, Scans
from ringcast.mpi.collectives.objects import ObjectCollectives, ObjectScans
from ringcast.mpi.communicators.creation import Creation
from ringcast.mpi.communicators.group import Group
from ringcast.mpi.communicators.members import MemberCalls, tag_of
from ringcast.mpi.communicators.recovery import Recovery
from ringcast.mpi.communicators.topologies import MakingTopologies
from ringcast.mpi.handles.comm_handle import INTER, INTRA, CommHandle, class_of_kind, of_kind
from ringcast.mpi.handles.errhandlers import ErrorHandling
from ringcast.mpi.handles.handle import predefined
from ringcast.mpi.handles.info import Info, hints
from ringcast.mpi.messages.matched import MESSAGE_NO_PROC
from ringcast.mpi.messages.messages import Messages
from ringcast.mpi.unsupported import PROCESSES, STARTING, lacking

__all__ = ["COMM_NULL", "COMM_SELF", "COMM_WORLD", "Comm", "Intracomm"]


@of_kind()
class Comm(Collectives, ObjectCollectives, Messages, Creation, ErrorHandling, Recovery, CommHandle):
    """A communicator of MPI over one of ringcast."""

    def Get_rank(self) -> int:
        """Return the rank of the caller."""
        return self._group.rank

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return self._group.size

    rank, size = property(Get_rank), property(Get_size)

    def Get_group(self) -> Group:
        """Return the group of the ranks."""
        return Group._of(self._group.members or range(self._group.size), self._group.endpoint.rank)

    group = property(Get_group)

    def Compare(self, comm: Comm) -> int:
        """Return IDENT for the same communicator, CONGRUENT for the same ranks, SIMILAR in another order."""
        mine, other = self._shared, comm._shared
        if mine is other:
            return IDENT
        if self.Is_inter() != comm.Is_inter():
            return UNEQUAL
        result = max(self.Get_group().Compare(comm.Get_group()), self._remote().Compare(comm._remote()))
        return CONGRUENT if result == IDENT else result

    def _remote(self) -> Group:
        """Return the group of the ranks that messages are sent to."""
        group, first, size = self._peers
        return Group._of(map(group.in_job, range(first, first + size)), group.endpoint.rank)

    def Is_inter(self) -> bool:
        """Return whether the communicator is one of two groups."""
        return self._shared.remote is not None

    def Is_intra(self) -> bool:
        """Return whether the communicator is one of one group."""
        return self._shared.remote is None

    is_inter, is_intra = property(Is_inter), property(Is_intra)

    def Get_topology(self) -> int:
        """Return CART, GRAPH, DIST_GRAPH, or UNDEFINED."""
        topology = self._shared.topology
        return UNDEFINED if topology is None else int(topology.kind)

    topology = property(Get_topology)

    @property
    def is_topo(self) -> bool:
        """Whether there is a topology."""
        return self._shared.topology is not None

    def Get_name(self) -> str:
        """Return the name."""
        return "MPI_COMM_NULL" if self._state is None else self._state.name

    def Set_name(self, name: str) -> None:
        """Set the name."""
        self._shared.name = name[:MAX_OBJECT_NAME]

    name = property(Get_name, Set_name)

    def Get_info(self) -> Info:
        """Return the hints."""
        return Info.Create(self._shared.info)

    def Set_info(self, info: Info) -> None:
        """Set hints, which change nothing."""
        self._shared.info.update(hints(info))

    info = property(Get_info, Set_info)

    def _fixed_attributes(self) -> dict[int, Any]:
        return {
            TAG_UB: MAX_TAG,
            IO: PROC_NULL,
            WTIME_IS_GLOBAL: False,
            APPNUM: 0,
            UNIVERSE_SIZE: None,  # no program starts another one
            LASTUSEDCODE: last_used_code(),
        }

    @classmethod
    def Get_parent(cls) -> Any:
        """Return COMM_NULL: no program is started by another one."""
        return class_of_kind(INTER)()

    Join = lacking(PROCESSES)

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End the job with this exit code."""
        abort(self, errorcode)


Comm._kind = (Comm,)


@of_kind(INTRA)
class Intracomm(Scans, ObjectScans, MemberCalls, MakingTopologies, Comm):
    """A communicator of one group."""

    @classmethod
    def Create_from_group(
        cls, group: Group, stringtag: str = "org.mpi4py", info: Any = None, errhandler: Any = None
    ) -> Intracomm:
        """Return a communicator of a group of the job; its ranks call it, with the same text."""
        made: Intracomm = COMM_WORLD.Create_group(group, tag_of(stringtag))
        if made and errhandler:
            made.Set_errhandler(errhandler)
        return made

    Spawn = Spawn_multiple = lacking(STARTING)
    Accept = Connect = lacking(PROCESSES)


COMM_NULL = predefined(Comm(), "COMM_NULL")
COMM_SELF = predefined(Intracomm._of_state(Shared(name="MPI_COMM_SELF")), "COMM_SELF")
COMM_WORLD = predefined(Intracomm._of_state(Shared(name="MPI_COMM_WORLD")), "COMM_WORLD")
MESSAGE_NO_PROC._state.comm = COMM_SELF
