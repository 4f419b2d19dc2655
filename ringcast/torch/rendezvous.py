"""Under ringcast-launch torch needs no address to meet at: `init_process_group` finds the job.

torch asks the handler of `env://` for a store. In a job of a launcher the ranks know each other already, so rank 0
opens a store on a free port, and all others hear of it by a broadcast. Elsewhere torch's own handler is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import torch.distributed as dist

import ringcast
from ringcast.bootstrap.rendezvous import own_address
from ringcast.bootstrap.world import whoami
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.errors import ArgumentError

LOOPBACK = "127.0.0.1"
Meeting = Iterator[tuple[Any, int, int]]  # the store, the rank, the number of ranks


def job(rank: int, size: int) -> Communicator | None:
    """Return the communicator of the job that a launcher of ringcast has started; None if these are not its ranks.

    Raises:
        ArgumentError: they are, but in another order.
    """
    mine, config = whoami()
    if not config.hosted or config.parent is not None or config.size != size:
        return None
    if mine != rank:
        expected = f"expected {mine}, as the launcher has it, got {rank}; take it from the variable RANK"
        raise ArgumentError(mine, "init_process_group", "rank", expected)
    return ringcast.init()


def find_job() -> None:
    """Have torch's `env://` find the job of a launcher."""
    handlers = getattr(import_module("torch.distributed.rendezvous"), "_rendezvous_handlers", {})
    ordinary = handlers.get("env")
    if ordinary is None:
        return

    def meet(url: str, timeout: timedelta = timedelta(seconds=300), **options: Any) -> Meeting:
        given = dict(parse_qsl(urlsplit(url).query))
        mine, config = whoami()
        comm = job(int(given.get("rank", mine)), int(given.get("world_size", config.size)))
        if comm is None:
            yield from ordinary(url, timeout=timeout, **options)
        else:
            yield _opened(comm, timeout), comm.rank, comm.size

    handlers["env"] = meet


def _opened(comm: Communicator, timeout: timedelta) -> Any:
    """Return a store of all ranks."""
    if comm.size == 1:
        return dist.HashStore()
    store, place = None, None
    if comm.rank == 0:
        near = len({*group_of(comm).hosts}) == 1
        host = LOOPBACK if near else own_address(None)
        store = dist.TCPStore(host, 0, comm.size, True, timeout, wait_for_workers=False)
        place = host, store.port
    host, port = comm.bcast(place, timeout=timeout.total_seconds())
    return store or dist.TCPStore(host, port, comm.size, False, timeout, wait_for_workers=False)
