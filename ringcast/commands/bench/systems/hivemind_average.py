"""Run hivemind's decentralized averaging as a system under test: hivemind_average.py NAME SOCKET.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are the variables of torch. The only case that hivemind supports is
allreduce: its average is the sum divided by the number of ranks, at the same cost. hivemind must find a group for every
step, which takes up to seconds; the barrier before a repetition does this, outside of the timed part. Then the step
waits for its trigger. Ranks find each other, and leave the barrier together, by Gloo.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import hivemind
import numpy as np
import torch
import torch.distributed as dist
from hivemind.averaging.control import AveragingStage
from hivemind.p2p import P2P

if TYPE_CHECKING:
    from ringcast.commands.bench.systems.harness import serve
    from ringcast.commands.bench.systems.workload import Workload
else:  # a script in an environment without ringcast: its own folder is on the path
    from harness import serve
    from workload import Workload

LOOK = 0.005  # seconds between two looks for a group, as hivemind gives no notice of it
PATIENCE = 60.0  # seconds in which a group must be found


class HivemindSystem:
    """A DHT of all ranks, and for each case an averager with the case's numbers."""

    def __init__(self, name: str) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        P2P._UNIX_SOCKET_PREFIX = f"/unix{tempfile.gettempdir()}/hivemind-"  # it leaves its sockets behind
        self.name = name
        self.version = f"hivemind {version('hivemind')}, torch {torch.__version__}"
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self._dht = self._meet()
        self._averager: hivemind.averaging.DecentralizedAverager | None = None
        self._cases = 0

    def barrier(self) -> None:
        """Return when all ranks have called it, and are in one group for the next step."""
        assert self._averager is not None
        dist.barrier()
        self._step = self._averager.step(require_trigger=True, wait=False, timeout=PATIENCE)
        while self._step.stage is not AveragingStage.AWAITING_TRIGGER and not self._step.done():
            time.sleep(LOOK)
        dist.barrier()

    def prepare(self, case: Mapping[str, Any]) -> Callable[[], object] | None:
        if case["collective"] != "allreduce" or self.size == 1:
            return None
        self.close()
        self._work = Workload(case, self.rank)
        self._cases += 1
        self._averager = hivemind.averaging.DecentralizedAverager(
            [torch.from_numpy(self._work.given.copy())],
            self._dht,
            prefix=f"case{self._cases}",
            target_group_size=self.size,
            min_group_size=self.size,
            start=True,
        )
        return self._average

    def check(self) -> str:
        assert self._averager is not None
        with self._averager.get_tensors() as (tensor,):
            tensor.copy_(torch.from_numpy(self._work.given))
        self.barrier()
        self._average()
        with self._averager.get_tensors() as (tensor,):
            self._work.out[:] = np.rint(tensor.numpy() * self.size)  # whole numbers before the division
        return self._work.verdict()

    def chosen(self) -> dict[str, Any]:
        return {}

    def trace(self, *, barrier: bool = False) -> list[Any]:
        raise NotImplementedError("hivemind has no events")

    def close(self) -> None:
        """End the averager of the last case."""
        if self._averager is not None:
            self._averager.shutdown()

    def _average(self) -> None:
        self._step.allow_allreduce()
        self._step.result()

    def _meet(self) -> hivemind.DHT:
        """Return this rank's part of the DHT: rank 0 begins it, and sends the others its address."""
        own = os.environ["MASTER_ADDR"] if self.rank == 0 else "0.0.0.0"
        listen = [f"/ip4/{own}/tcp/0"]
        known: list[Any] = [None]
        if self.rank == 0:
            dht = hivemind.DHT(host_maddrs=listen, start=True)
            known = [[str(address) for address in dht.get_visible_maddrs()]]
        dist.broadcast_object_list(known)
        return dht if self.rank == 0 else hivemind.DHT(known[0], host_maddrs=listen, start=True)


if __name__ == "__main__":
    system = HivemindSystem(sys.argv[1])
    serve(system, sys.argv[2])
    system.close()
    system._dht.shutdown()
