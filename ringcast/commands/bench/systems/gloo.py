"""Run torch.distributed with Gloo as a system under test: gloo.py NAME SOCKET.

RANK, WORLD_SIZE and MASTER_ADDR are the variables of torch. Reductions work in place, as torch defines them. Gloo in
torch needs equal parts, except in an exchange, so there is no allgatherv. It has no prefix sums, no shift, and no
merge.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from ringcast.commands.bench.systems.harness import serve
    from ringcast.commands.bench.systems.workload import Workload
else:  # a script in an environment without ringcast: its own folder is on the path
    from harness import serve
    from workload import Workload

Call = Callable[[], object]
ABSENT = ("allgatherv", "scan", "exscan", "shift", "merge_sorted")


class GlooSystem:
    """The default process group of torch.distributed."""

    def __init__(self, name: str) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.name = name
        self.version = f"Gloo in torch {torch.__version__}"
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self.barrier: Callable[[], None] = dist.barrier

    def prepare(self, case: Mapping[str, Any]) -> Call | None:
        work = Workload(case, self.rank)
        if work.collective in ABSENT or (len(set(work.counts)) > 1 and work.collective != "alltoallv"):
            return None
        self._work = work
        self._given, self._out = torch.from_numpy(work.given), torch.from_numpy(work.out)
        if work.collective == "reduce" and self.rank != work.root:
            self._out = self._given  # in place everywhere, but a result only at the root
        self._call = self._calls()[work.collective]
        return self._call

    def check(self) -> str:
        self._work.clear()
        if self._work.collective in ("reduce", "allreduce"):
            self._out.copy_(self._given)
        self._call()
        return self._work.verdict()

    def chosen(self) -> dict[str, Any]:
        return {}

    def trace(self, *, barrier: bool = False) -> list[Any]:
        raise NotImplementedError("Gloo has no events")

    def _calls(self) -> dict[str, Call]:
        given, out, root, at_root = self._given, self._out, self._work.root, self.rank == self._work.root
        rows = list(out.chunk(self.size)) if len(out) else None
        row = list(self._work.counts)
        shares = list(given.chunk(self.size)) if len(given) else None
        return {
            "bcast": lambda: dist.broadcast(out, root),
            # Each repetition continues with the last one's sums: they may overflow to infinity, at no more cost.
            "reduce": lambda: dist.reduce(out, root),
            "allreduce": lambda: dist.all_reduce(out),
            "allgather": lambda: dist.all_gather_into_tensor(out, given),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(out, given),
            "gather": lambda: dist.gather(given, rows if at_root else None, root),
            "scatter": lambda: dist.scatter(out, shares if at_root else None, root),
            "alltoall": lambda: dist.all_to_all_single(out, given),
            "alltoallv": lambda: dist.all_to_all_single(out, given, row, row),
            "barrier": dist.barrier,
            "latency": self._round_trip,
            "bandwidth": self._stream,
        }

    def _round_trip(self) -> None:
        if self.rank == 0:
            dist.send(self._given, 1)
            dist.recv(self._out, 1)
        elif self.rank == 1:
            dist.recv(self._out, 0)
            dist.send(self._given, 0)

    def _stream(self) -> None:
        """Send several messages from rank 0 to rank 1 and one byte back."""
        reply = torch.zeros(1, dtype=torch.uint8)
        if self.rank == 0:
            pending = [dist.isend(self._given, 1) for _ in range(self._work.messages)]
            for request in pending:
                request.wait()
            dist.recv(reply, 1)
        elif self.rank == 1:
            pending = [dist.irecv(self._out, 0) for _ in range(self._work.messages)]
            for request in pending:
                request.wait()
            dist.send(reply, 0)


if __name__ == "__main__":
    serve(GlooSystem(sys.argv[1]), sys.argv[2])
    dist.destroy_process_group()
