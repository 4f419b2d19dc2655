"""Run an MPI library through mpi4py as a system under test; started by mpirun: mpi.py NAME SOCKET.

All calls use the buffer interface (upper-case methods), which costs no more than a microsecond a call. A shift is
Sendrecv with both neighbours; MPI does not merge sorted sequences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from ringcast.commands.bench.systems.harness import serve
    from ringcast.commands.bench.systems.workload import NOTHING, Workload
else:  # a script in an environment without ringcast: its own folder is on the path
    from harness import serve
    from workload import NOTHING, Workload

Call = Callable[[], object]


def title(version: str) -> str:
    """Return name and number from the library's description of itself, which can be a page long.

    >>> title("MPICH Version:      5.0.2\\nMPICH Release date: ..."), title("Open MPI v5.0.11, package: ...")
    ('MPICH 5.0.2', 'Open MPI v5.0.11')
    """
    first = version.replace("\0", "").splitlines()[0].split(",")[0]
    return " ".join(first.replace("Version:", "").split())


class MPISystem:
    """The world communicator of an MPI job."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = title(MPI.Get_library_version())
        self._comm = MPI.COMM_WORLD
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self.barrier: Callable[[], None] = self._comm.Barrier

    def prepare(self, case: Mapping[str, Any]) -> Call | None:
        if case["collective"] == "merge_sorted":
            return None
        self._work = Workload(case, self.rank)
        self._call = self._calls(self._work)[self._work.collective]
        return self._call

    def check(self) -> str:
        self._work.clear()
        self._call()
        return self._work.verdict()

    def chosen(self) -> dict[str, Any]:
        return {}

    def trace(self, *, barrier: bool = False) -> list[Any]:
        raise NotImplementedError(f"{self.name} has no events")

    def _calls(self, work: Workload) -> dict[str, Call]:
        comm, given, out, root = self._comm, work.given, work.out, work.root
        at_root = self.rank == root
        result = out if at_root else None
        before = out if self.rank else np.empty_like(given)  # exscan leaves the result undefined on rank 0
        row = work.counts, work.displs, MPI.BYTE
        left, right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        return {
            "bcast": lambda: comm.Bcast(out, root),
            "reduce": lambda: comm.Reduce(given, result, MPI.SUM, root),
            "allreduce": lambda: comm.Allreduce(given, out, MPI.SUM),
            "allgather": lambda: comm.Allgather(given, out),
            "allgatherv": lambda: comm.Allgatherv(given, [out, *row]),
            "reduce_scatter": lambda: comm.Reduce_scatter(given, out, work.counts, MPI.SUM),
            "gather": lambda: comm.Gather(given, result, root),
            "scatter": lambda: comm.Scatter(given if at_root else None, out, root),
            "scan": lambda: comm.Scan(given, out, MPI.SUM),
            "exscan": lambda: comm.Exscan(given, before, MPI.SUM),
            "alltoall": lambda: comm.Alltoall(given, out),
            "alltoallv": lambda: comm.Alltoallv([given, *row], [out, *row]),
            "shift": lambda: comm.Sendrecv(given, right, recvbuf=out, source=left),
            "barrier": comm.Barrier,
            "latency": self._round_trip,
            "bandwidth": self._stream,
        }

    def _round_trip(self) -> None:
        if self.rank == 0:
            self._comm.Send(self._work.given, 1)
            self._comm.Recv(self._work.out, 1)
        elif self.rank == 1:
            self._comm.Recv(self._work.out, 0)
            self._comm.Send(self._work.given, 0)

    def _stream(self) -> None:
        """Send several messages from rank 0 to rank 1 and an empty one back."""
        comm, work = self._comm, self._work
        if self.rank == 0:
            MPI.Request.Waitall([comm.Isend(work.given, 1) for _ in range(work.messages)])
            comm.Recv(NOTHING, 1)
        elif self.rank == 1:
            MPI.Request.Waitall([comm.Irecv(work.out, 0) for _ in range(work.messages)])
            comm.Send(NOTHING, 0)


if __name__ == "__main__":
    serve(MPISystem(sys.argv[1]), sys.argv[2])
