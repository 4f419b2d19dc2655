"""Two ranks of torch pass tensors of different dtypes whose items have one size: `python -m support.torch_dtypes`.

Whatever the call, a rank that would take the other's items as its own raises an error with the names of both dtypes.
Prints how many calls have been made so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, permutations
from typing import Any

import torch
import torch.distributed as dist

from ringcast.engine import task
from support.patience import patience
from support.torch_ranks import play

OF_ONE_SIZE = (
    ("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    ("float16", "bfloat16", "int16", "uint16"),
    ("float32", "int32", "uint32", "complex32"),
    ("float64", "int64", "uint64", "complex64"),
)
UNCOMBINED = {"complex32", "float8_e8m0fnu"}
WAYS = ((4, 0), (4, 3), (40_000, 3))  # items of a tensor, and calls with equal dtypes before it: it is predicted then
Call = Callable[[Any, torch.Tensor, int], Any]


def ones(items: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(items, dtype=torch.uint8).to(dtype)


def message(group: Any, mine: torch.Tensor, rank: int, sender: int) -> Any:
    return group.send([mine], 1 - sender, 5) if rank == sender else group.recv([mine], sender, 5)


def rooted(name: str, group: Any, mine: torch.Tensor, rank: int) -> Any:
    """Gather at rank 0, or scatter from it."""
    parts = [[torch.empty_like(mine), mine.clone()]] if rank == 0 else []
    if name == "gather":
        return group.gather(parts, [mine])
    return group.scatter([mine], parts)


CALLS: dict[str, tuple[tuple[int, ...], Call]] = {  # the ranks that must raise, and the call
    "broadcast": ((1,), lambda group, mine, _: group.broadcast([mine])),
    "reduce": ((0,), lambda group, mine, _: group.reduce([mine])),
    "allreduce": ((0, 1), lambda group, mine, _: group.allreduce([mine])),
    "gather": ((0, 1), partial(rooted, "gather")),
    "scatter": ((1,), partial(rooted, "scatter")),
    "reduce_scatter": (
        (0, 1),
        lambda group, mine, _: group.reduce_scatter_single(torch.empty_like(mine[: len(mine) // 2]), mine),
    ),
    "allgather": ((0, 1), lambda group, mine, _: group.allgather([[torch.empty_like(mine) for _ in range(2)]], [mine])),
    "alltoall": ((0, 1), lambda group, mine, _: group.all_to_all_single(torch.empty_like(mine), mine, [], [])),
    "alltoallv": ((0, 1), lambda group, mine, _: group.alltoall([torch.empty_like(mine) for _ in "01"], [mine, mine])),
    "message to 1": ((1,), partial(message, sender=0)),
    "message to 0": ((0,), partial(message, sender=1)),
}
COMBINING = {"reduce", "allreduce", "reduce_scatter"}


def cases() -> Iterator[tuple[str, tuple[str, str], int, int]]:
    """Yield each call with each pair of dtypes, as rank 0 and rank 1 have them, and each time another one of `WAYS`."""
    ways = cycle(WAYS)
    for names in OF_ONE_SIZE:
        for pair in permutations([name for name in names if hasattr(torch, name)], 2):
            for call in CALLS:
                if call not in COMBINING or UNCOMBINED.isdisjoint(pair):
                    yield call, pair, *next(ways)


def failure(call: str, pair: tuple[str, str], items: int, before: int, rank: int) -> str:
    """Return the text of the error that the call raises; "": there was none."""
    group, (_, make) = dist.group.WORLD.split_group([0, 1]), CALLS[call]
    for _ in range(before):
        make(group, ones(items, getattr(torch, pair[0])), rank).wait()
    try:
        make(group, ones(items, getattr(torch, pair[rank])), rank).wait()
    except Exception as error:
        text = str(error)
    else:
        text = ""
    dist.barrier()
    group.shutdown()
    return text


def differ(rank: int, _: int) -> None:
    """Make all calls."""
    torch.set_num_threads(1)
    made, wrong = 0, []
    for case in cases():
        text, (call, pair, *_) = failure(*case, rank), case
        made += 1
        if (text or rank in CALLS[call][0]) and not all(re.search(rf"\b{name}\b", text) for name in pair):
            wrong.append(f"{case}: {text}")
    assert not wrong, "\n".join([f"{len(wrong)} of {made}", *wrong[:50]])
    print(f"rank {rank}: {made} calls")


if __name__ == "__main__":
    task.EXPLANATION = patience(10)  # the ranks are forks, so it holds there too
    sys.exit(any(play(differ, 2)))
