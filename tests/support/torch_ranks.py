"""Ranks of torch as forks of one process, which imports torch once, and meet through a file: `play(work, size)`."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import ringcast.torch  # noqa: F401 (registers the backend)

TIMEOUT = timedelta(seconds=60)


def play(work: Callable[[int, int], object], size: int, backend: str = "ringcast") -> list[int]:
    """Call `work(rank, size)` in a process group of so many forks; return their exit codes."""
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(work, rank, size, backend, Path(folder, "store")) for rank in range(size)]
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _fork(work: Callable[[int, int], object], rank: int, size: int, backend: str, store: Path) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=TIMEOUT)
        work(rank, size)
        dist.destroy_process_group()
        code = 0
    except BaseException:
        print(f"rank {rank} of {size}:", traceback.format_exc(), file=sys.stderr)
    finally:
        sys.stdout.flush()
        os._exit(code)
