"""Run Dask's `scatter(broadcast=True)` as a system under test: dask_scatter.py NAME SOCKET.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are the variables of torch. Rank 0 is a client, and has the scheduler;
each other rank is a worker. The only case that Dask supports is bcast from rank 0: the client gives an array, and gets
a future when all workers hold the array. So only rank 0's time counts; the others make no call, and there is no
barrier.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import distributed

if TYPE_CHECKING:
    from ringcast.commands.bench.systems.harness import serve
    from ringcast.commands.bench.systems.workload import Workload
else:  # a script in an environment without ringcast: its own folder is on the path
    from harness import serve
    from workload import Workload

START_TIME = 120.0  # seconds until all workers must have joined


class DaskSystem:
    """A cluster without processes of its own: its scheduler and workers are threads of the ranks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = f"Dask distributed {distributed.__version__}"
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if self.rank == 0:
            cluster = distributed.LocalCluster(
                n_workers=0, protocol="tcp", host=address, scheduler_port=port, dashboard_address=None
            )
            self._client = distributed.Client(cluster)
            if self.size > 1:
                self._client.wait_for_workers(self.size - 1, timeout=START_TIME)
        else:
            _start_worker(address, port)

    def barrier(self) -> None:
        """Return at once: rank 0's call involves all ranks, and is complete when it returns."""

    def prepare(self, case: Mapping[str, Any]) -> Callable[[], object] | None:
        if case["collective"] != "bcast" or case["root"] != 0 or self.size == 1:
            return None
        self._case, self._work = dict(case), Workload(case, self.rank)
        return self._scatter if self.rank == 0 else _nothing

    def check(self) -> str:
        if self.rank != 0:
            return ""
        self._scatter()
        verdicts = self._client.run(_verdict, self._case, self._future.key).values()
        return next(filter(None, verdicts), "")

    def chosen(self) -> dict[str, Any]:
        return {}

    def trace(self, *, barrier: bool = False) -> list[Any]:
        raise NotImplementedError("Dask has no events")

    def _scatter(self) -> None:
        """Broadcast; without a hash, as Dask would not send data with a known hash again."""
        self._future = self._client.scatter(self._work.out, broadcast=True, hash=False)


def _nothing() -> None:
    """Do nothing on a worker: its thread does the work."""


def _verdict(case: dict[str, Any], key: str, dask_worker: distributed.Worker) -> str:
    """Return an error text about a worker's data, "" if it is right; runs on the worker."""
    work = Workload(case, 1)
    work.out = dask_worker.data[key]
    return work.verdict()


def _start_worker(address: str, port: int) -> None:
    """Start a worker in a thread, which ends with this process; it listens at the address on the scheduler's route."""

    async def live(own: str) -> None:
        async with distributed.Worker(
            f"tcp://{address}:{port}", host=own, nthreads=1, memory_limit=0, nanny=None
        ) as worker:
            await worker.finished()

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))  # sends nothing
        own = probe.getsockname()[0]
    threading.Thread(target=lambda: asyncio.run(live(own)), daemon=True).start()


if __name__ == "__main__":
    serve(DaskSystem(sys.argv[1]), sys.argv[2])
