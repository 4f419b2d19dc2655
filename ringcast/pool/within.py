"""The ranks of a communicator as master and workers of a pool: the crew of `Pool(comm)`, on rank 0."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

from ringcast.communicator import Communicator
from ringcast.errors import RunFailed
from ringcast.pool.master import Master, Said
from ringcast.pool.messages import Frames, Stop


class Within:
    """A master in this process; fulfils `Crew`."""

    def __init__(self, comm: Communicator, names: list[str], retries: int) -> None:
        """Serve the other ranks of `comm`, which is the pool's alone; their hosts are `names`, by rank."""
        comm.progress_thread()
        self.hosts = {rank: name for rank, name in enumerate(names) if rank != comm.rank}
        self._comm = comm
        self._said: Said = queue.SimpleQueue()
        self._master = Master(comm, self.hosts, retries, self._said)

    def tell(self, message: Any, frames: Frames = ()) -> None:
        self._master.take([(message, frames)])

    def said(self) -> Iterator[tuple[Any, Frames]]:
        while (one := self._said.get()) is not None:
            yield one

    def verdict(self) -> RunFailed:
        return RunFailed(self._comm.rank, "the master has ended")

    def end(self, *, at_once: bool = True) -> None:
        self._master.take([(Stop(), ())])
        if not at_once:
            self._master.join()
            self._comm.finalize()
