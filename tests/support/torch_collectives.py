"""The public calls of torch.distributed on two ranks, by a backend's name: `python -m support.torch_collectives name`.

What is called, and on which dtypes, is that of PyTorch's pull request 187509, whose tests take any backend by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from ringcast.torch.groups import Backend
from support.torch_ranks import play

SIZE = 2
DTYPES = torch.float32, torch.int32, torch.int8
Filled = Callable[..., torch.Tensor]  # of a value, and the number of items


def all_reduce(full: Filled, rank: int) -> None:
    summed, largest = full(rank + 1), full(rank + 1)
    dist.all_reduce(summed, async_op=True).wait()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    same(summed, full(3))
    same(largest, full(2))


def broadcast_and_reduce(full: Filled, rank: int) -> None:
    sent, summed = full(rank + 1), full(rank + 1)
    dist.broadcast(sent, 1)
    dist.reduce(summed, 0)
    same(sent, full(2))
    if rank == 0:
        same(summed, full(3))


def all_gather(full: Filled, rank: int) -> None:
    parts, whole = [full(0), full(0)], full(0, 8)
    dist.all_gather(parts, full(rank + 1), async_op=True).wait()
    single("all_gather_single", "all_gather_into_tensor")(whole, full(rank + 1))
    same(torch.cat(parts), torch.cat([full(1), full(2)]))
    same(whole, torch.cat(parts))


def reduce_scatter(full: Filled, rank: int) -> None:
    given, mine = [full(rank + 1), full(rank + 2)], [full(0), full(0)]
    dist.reduce_scatter(mine[0], given, async_op=True).wait()
    single("reduce_scatter_single", "reduce_scatter_tensor")(mine[1], torch.cat(given))
    for tensor in mine:
        same(tensor, full(3 + 2 * rank))


def all_to_all_single(full: Filled, rank: int) -> None:
    got = full(0, 6)
    dist.all_to_all_single(got, torch.cat([full(10 * rank + each, 3) for each in range(SIZE)]))
    same(got, torch.cat([full(10 * each + rank, 3) for each in range(SIZE)]))


def all_to_all(full: Filled, rank: int) -> None:
    got = [full(0), full(0)]
    dist.all_to_all(got, [full(10 * rank + each) for each in range(SIZE)], async_op=True).wait()
    same(torch.cat(got), torch.cat([full(10 * each + rank) for each in range(SIZE)]))


def gather_and_scatter(full: Filled, rank: int) -> None:
    everybodys, mine = [full(0), full(0)], full(0)
    dist.gather(full(rank + 1), everybodys if rank == 0 else None)
    dist.scatter(mine, [full(11), full(12)] if rank == 0 else None)
    same(mine, full(11 + rank))
    if rank == 0:
        same(torch.cat(everybodys), torch.cat([full(1), full(2)]))


def send_recv(full: Filled, rank: int) -> None:
    got, other = full(0), 1 - rank
    messages = [dist.P2POp(dist.isend, full(rank + 1), other), dist.P2POp(dist.irecv, got, other)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    same(got, full(other + 1))


def coalesced(full: Filled, rank: int) -> None:
    summed, parts = [full(rank + 1, 2), full(rank + 1)], [[full(0, 2), full(0)] for _ in range(SIZE)]
    dist.all_reduce_coalesced(summed)
    dist.all_gather_coalesced(parts, [full(rank + 1, 2), full(rank + 1)])
    same(torch.cat(summed), full(3, 6))
    for each in range(SIZE):
        same(torch.cat(parts[each]), full(each + 1, 6))


def barrier(full: Filled, rank: int) -> None:
    dist.barrier()
    summed = full(rank + 1)
    dist.all_reduce(summed)
    same(summed, full(3))


CALLS: tuple[Callable[[Filled, int], None], ...] = (
    all_reduce,
    broadcast_and_reduce,
    all_gather,
    reduce_scatter,
    all_to_all_single,
    all_to_all,
    gather_and_scatter,
    send_recv,
    coalesced,
    barrier,
)


def same(mine: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(mine, right, rtol=0, atol=0)


def single(name: str, before: str) -> Any:
    """Return a call by its name in torch 2.14, or the one that it had before."""
    return getattr(dist, name, None) or getattr(dist, before)


def filled(dtype: torch.dtype, value: int, size: int = 4) -> torch.Tensor:
    return torch.full((size,), value, dtype=dtype)


def every_call(rank: int, _: int) -> None:
    torch.set_num_threads(1)
    for call in CALLS:
        for dtype in DTYPES:
            call(partial(filled, dtype), rank)


if __name__ == "__main__":
    if ":" in sys.argv[1] and Backend is None:
        print("this torch has no backends in Python")
        sys.exit()
    sys.exit(any(play(every_call, SIZE, sys.argv[1])))
