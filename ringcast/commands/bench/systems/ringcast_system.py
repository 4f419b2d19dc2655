"""Run ringcast itself as a system under test: in a launched job, or as a worker: python -m … ringcast_system SOCKET."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ringcast.bootstrap.world import init
from ringcast.commands.bench.systems.harness import serve
from ringcast.commands.bench.systems.workload import POINT_TO_POINT, Workload
from ringcast.communicator import Communicator
from ringcast.control import version
from ringcast.monitoring.trace import TraceRecorder, to_json
from ringcast.ops import SUM
from ringcast.wire.collective import COLLECTIVES, Parts

Call = Callable[[], object]
WITHOUT_OUT = ("scatter", "shift", "merge_sorted", *POINT_TO_POINT)


class RingcastSystem:
    """A communicator as a system; every rank of it makes one `RingcastSystem` and makes the same calls."""

    def __init__(self, comm: Communicator) -> None:
        self.name = "ringcast"
        self.version = version()
        self.rank, self.size = comm.rank, comm.size
        self.barrier: Callable[[], None] = comm.barrier
        self._comm = comm

    def prepare(self, case: Mapping[str, Any]) -> Call:
        """Allocate the buffers; see `harness.System`.

        Raises:
            ArgumentError: the case wants an impossible algorithm or number of blocks; every rank raises it.
        """
        self._work = work = Workload(case, self.rank)
        self._wish = {"algorithm": case["algorithm"], "nblocks": case["nblocks"]}
        self._chosen = self._explain(work)
        self._call = self._calls(work)[work.collective]
        return self._call

    def check(self) -> str:
        self._work.clear()
        result: Any = self._call()
        if self._work.collective in WITHOUT_OUT and result is not None:
            np.copyto(self._work.out, result)
        return self._work.verdict()

    def chosen(self) -> dict[str, Any]:
        return self._chosen

    def trace(self, *, barrier: bool = False) -> list[Any]:
        recorder = TraceRecorder()
        if not barrier:
            self.barrier()
        self._comm._group.observe = recorder
        try:
            if barrier:
                self.barrier()
            self._call()
        finally:
            self._comm._group.observe = None
        return [to_json(event) for event in recorder.events]

    def _explain(self, work: Workload) -> dict[str, Any]:
        """Return algorithm, blocks and rounds of the call, from the library's own `explain`."""
        if work.collective in POINT_TO_POINT:
            return {}
        has_counts = COLLECTIVES[work.collective].parts is Parts.COUNTS  # the counts give the size then
        size = {"counts": work.counts} if has_counts else {"nbytes": work.nbytes}
        explained = self._comm.explain(
            work.collective, **size, dtype=work.out.dtype, op=SUM, root=work.root, **self._wish
        ).chosen
        return {"algorithm": explained.algorithm, "nblocks": explained.nblocks, "rounds": explained.rounds}

    def _calls(self, work: Workload) -> dict[str, Call]:
        comm, given, out, root, counts = self._comm, work.given, work.out, work.root, work.counts
        wish, algorithm = self._wish, self._wish["algorithm"]
        mine = out if self.rank == root else None
        rows = given.reshape(self.size, -1) if work.collective == "scatter" and self.rank == root else None
        stacked = out.reshape(self.size, -1) if work.collective in ("allgather", "gather") and len(out) else None
        table, turned = (a.reshape(self.size, -1) if work.collective == "alltoall" else a for a in (given, out))
        return {
            "bcast": lambda: comm.bcast(out, root, **wish),
            "reduce": lambda: comm.reduce(given, SUM, root, out=mine, **wish),
            "allreduce": lambda: comm.allreduce(given, SUM, out=out, **wish),
            "allgather": lambda: comm.allgather(given, out=stacked, **wish),
            "allgatherv": lambda: comm.allgatherv(given, counts, out=out, **wish),
            "reduce_scatter": lambda: comm.reduce_scatter(given, SUM, counts, out=out, **wish),
            "gather": lambda: comm.gather(given, root, out=stacked, algorithm=algorithm),
            "scatter": lambda: comm.scatter(rows, root, algorithm=algorithm),
            "scan": lambda: comm.scan(given, SUM, out=out, algorithm=algorithm),
            "exscan": lambda: comm.exscan(given, SUM, out=out if self.rank else None, algorithm=algorithm),
            "alltoall": lambda: comm.alltoall(table, out=turned, algorithm=algorithm),
            "alltoallv": lambda: comm.alltoallv(given, counts, counts, out=out, algorithm=algorithm),
            "shift": lambda: comm.shift(given, 1, algorithm=algorithm),
            "merge_sorted": lambda: comm.merge_sorted(given, algorithm=algorithm),
            "barrier": comm.barrier,
            "latency": self._round_trip,
            "bandwidth": self._stream,
        }

    def _round_trip(self) -> Any:
        """Send a message from rank 0 to rank 1 and back; return the arrived one."""
        if self.rank == 0:
            self._comm.sendrecv(self._work.given, 1, None)
            return self._comm.sendrecv(None, None, 1)
        if self.rank == 1:
            arrived = self._comm.sendrecv(None, None, 0)
            self._comm.sendrecv(self._work.given, 0, None)
            return arrived
        return None

    def _stream(self) -> Any:
        """Send several messages from rank 0 to rank 1 and an empty one back; return the last arrived one.

        These calls return only after a message has left: each large message waits for its turn, and the measured time
        includes the grant of every message. Peers post all receives at once.
        """
        if self.rank == 0:
            for _ in range(self._work.messages):
                self._comm.sendrecv(self._work.given, 1, None)
            self._comm.sendrecv(None, None, 1)
            return None
        if self.rank == 1:
            for _ in range(self._work.messages):
                arrived = self._comm.sendrecv(None, None, 0)
            self._comm.sendrecv(b"", 0, None)
            return arrived
        return None


if __name__ == "__main__":
    with init() as world:
        serve(RingcastSystem(world), sys.argv[1])
