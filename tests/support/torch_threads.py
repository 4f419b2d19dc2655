"""Ranks of torch as threads: they meet through a store, one ends the group, and they meet again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

import ringcast.torch
from support.patience import patience

SIZE, VICTIM, ROUNDS = 3, 1, 3
TIMEOUT = timedelta(seconds=60)


def ended(call: Callable[[], object]) -> str:
    """Return the error of a call."""
    try:
        call()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("expected an error")


def one_round(store: dist.Store, rank: int, reduced: threading.Barrier) -> None:
    group = ringcast.torch.process_group(store, rank, SIZE, TIMEOUT)
    ones = torch.ones(3)
    group.allreduce([ones]).wait()
    assert ones.tolist() == [SIZE] * 3
    reduced.wait()  # abort() ends the calls that others have under way
    if rank == VICTIM:
        group.abort()
    else:
        assert "rank 1 called abort()" in ended(lambda: group.barrier().wait())
        group.shutdown()
    ended(lambda: group.barrier().wait())


def alone(store: dist.Store) -> None:
    limit = timedelta(seconds=0.1)
    text = ended(lambda: ringcast.torch.process_group(store, 0, 2, limit))
    assert "rank 1 of 2 did not come within 0.1 s" in text, text


def main() -> None:
    store, before = dist.HashStore(), threading.active_count()
    with ThreadPoolExecutor(SIZE) as pool:
        for number in range(ROUNDS):
            each, reduced = dist.PrefixStore(str(number), store), threading.Barrier(SIZE, timeout=patience(30))
            for done in [pool.submit(one_round, each, rank, reduced) for rank in range(SIZE)]:
                done.result()
    alone(dist.PrefixStore("alone", store))
    end = time.monotonic() + patience(5)
    while threading.active_count() > before and time.monotonic() < end:
        for thread in threading.enumerate():
            with suppress(RuntimeError):  # of this thread itself
                thread.join(0.01)
    assert threading.active_count() == before, threading.enumerate()


if __name__ == "__main__":
    main()
