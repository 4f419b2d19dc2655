"""A rank of torch meets with a fault: what do the others raise, and when? `python -m support.torch_faults`.

Prints a line of JSON for each survivor of each fault: the fault, its rank, the error's class and text, and seconds from
the fault to the error; in `collect` and `limited` from a moment before any survivor can have begun the call.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from support.torch_ranks import play

SIZE, VICTIM, LIMIT = 3, 1, 3.0
PLAIN = torch.float32, dist.ReduceOp.SUM
Fault = Callable[[float], object]  # it strikes; its argument is the time at which seconds begin to count


def train(fault: Fault, rank: int, _: int) -> None:
    """Train by DDP; in the third backward pass the victim meets with the fault."""
    model = torch.nn.Sequential(*(torch.nn.Linear(10, 10) for _ in range(5)))
    ddp, passes = DistributedDataParallel(model), [0]

    def strike(gradient: torch.Tensor) -> torch.Tensor:
        passes[0] += 1
        if rank == VICTIM and passes[0] == 3:
            fault(time.monotonic())
        return gradient

    next(iter(model[2].parameters())).register_hook(strike)
    while True:
        ddp(torch.ones(2, 10)).sum().backward()


def collect(fault: Fault, rank: int, _: int) -> None:
    """Make calls that the program waits for; the victim meets with the fault in between."""
    dist.group.WORLD.set_timeout(timedelta(seconds=LIMIT))
    before = time.monotonic()
    for number in range(1000):
        if rank == VICTIM and number == 20:
            fault(before)
        before = time.monotonic()
        dist.all_reduce(torch.ones(10))


def limited(way: str, fault: Fault, rank: int, _: int) -> None:
    """Make a call that may take a second, by its options or by the wait for it."""
    before = time.monotonic()
    dist.barrier()
    if rank == VICTIM:
        fault(before)
    group, second, ones = dist.group.WORLD, timedelta(seconds=1), [torch.ones(2) for _ in range(3)]
    if way == "of several":
        many = [torch.empty(2 * SIZE) for _ in ones]
        group.allgather_into_tensor_coalesced(many, ones).wait(second)
        return
    options = c10d.AllreduceOptions()
    options.timeout, options.asyncOp = second, way == "async"
    group.allreduce(ones[:1], options).wait()


def mismatch(_: Fault, rank: int, __: int) -> None:
    """Pass tensors of different sizes."""
    dist.all_reduce(torch.ones(5 if rank == VICTIM else 4))


def renamed(_: Fault, rank: int, __: int) -> None:
    """Pass tensors of different sizes to a call that torch has renamed, and wrapped in a warning."""
    part = torch.empty(2 if rank == VICTIM else 1)
    dist.reduce_scatter_tensor(part, torch.ones(SIZE * len(part)))


def mixed(right: Any, wrong: Any, _: Fault, rank: int, __: int) -> None:
    """Combine in two ways: `right` and `wrong` are a dtype and an operator."""
    dtype, op = wrong if rank == VICTIM else right
    dist.all_reduce(torch.ones(4, dtype=dtype), op)


def uneven(_: Fault, rank: int, size: int) -> None:
    """Gather 1, 3 and 2 items into outputs of 2 each: as many as come, but not in these parts."""
    outputs = [torch.full((2,), 7.0) for _ in range(size)]
    try:
        dist.gather(torch.full(((1, 3, 2)[rank],), float(rank)), outputs if rank == 0 else None)
        dist.barrier()
    finally:
        assert all(output.tolist() == [7.0, 7.0] for output in outputs)


def destroy(_: Fault, rank: int, __: int) -> None:
    """Leave while the others are in a call."""
    if rank == VICTIM:
        dist.destroy_process_group()
        os._exit(0)
    dist.all_reduce(torch.ones(4))


def abort(_: Fault, rank: int, __: int) -> None:
    """End the calls of all ranks."""
    if rank == VICTIM:
        dist.group.WORLD.abort()
    dist.all_reduce(torch.ones(4))


def kill(signal: int) -> None:
    os.kill(os.getpid(), signal)


FAULTS = {
    "SIGKILL": (train, signal.SIGKILL),
    "SIGKILL-call": (collect, signal.SIGKILL),
    "SIGSTOP": (collect, signal.SIGSTOP),
    "limit": (partial(limited, "sync"), signal.SIGSTOP),
    "limit-async": (partial(limited, "async"), signal.SIGSTOP),
    "limit-several": (partial(limited, "of several"), signal.SIGSTOP),
    "mismatch": (mismatch, 0),
    "renamed": (renamed, 0),
    "dtypes": (partial(mixed, PLAIN, (torch.bfloat16, dist.ReduceOp.SUM)), 0),
    "operators": (partial(mixed, PLAIN, (torch.float32, dist.ReduceOp.AVG)), 0),
    "uneven": (uneven, 0),
    "destroy": (destroy, 0),
    "abort": (abort, 0),
}


def meet(name: str, struck: Path, rank: int, size: int) -> None:
    work, number = FAULTS[name]

    def fault(when: float) -> None:
        struck.write_text(f"{when} {os.getpid()}")
        kill(number)

    torch.set_num_threads(1)
    struck.write_text(f"{time.monotonic()} 0")
    try:
        work(fault, rank, size)
    except Exception as error:
        now = time.monotonic()
        when, victim = struck.read_text().split()
        sys.stdout.write(json.dumps([name, rank, type(error).__name__, str(error), now - float(when)]) + "\n")
        sys.stdout.flush()
        if rank == 0 and int(victim):
            with suppress(ProcessLookupError):
                os.kill(int(victim), signal.SIGKILL)  # a stopped one would never end


if __name__ == "__main__":
    for name in sys.argv[1:] or FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            play(partial(meet, name, Path(folder, "struck")), SIZE)
