"""A rank of `ringcast cp`: rank 0 has the files, reads the order, and prints how far they are, as lines of JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import ringcast
from ringcast.commands.cp.order import ERROR, PROGRESS, REPORT, Order, below_home
from ringcast.transfer.report import Progress

_PAUSE = 0.1  # seconds between two lines of progress


def main() -> int:
    """Copy, and return the exit code of this rank."""
    comm = ringcast.init()
    first = comm.rank == 0
    order = _order(comm, sys.stdin.read() if first else "")
    try:
        report = comm.bcast_file(
            order.sources,
            below_home(order.target),
            progress=_Reporter() if first else None,
            **asdict(order.options),
        )
    except ringcast.TransferError as error:
        if first:
            _print(ERROR, str(error))
        return 1
    if first:
        _print(REPORT, asdict(report))
    return 0


def _order(comm: ringcast.Communicator, text: str) -> Order:
    """Return the order that rank 0 has read; on other ranks without the sources, which mean nothing there."""
    if comm.rank == 0:
        order = Order.decode(text)
        comm.bcast(np.frombuffer(replace(order, sources=[]).encode().encode(), np.uint8))
        return order
    return Order.decode(comm.bcast().tobytes().decode())


class _Reporter:
    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self._next or progress.done == progress.total:
            _print(PROGRESS, asdict(progress))
            self._next = now + _PAUSE


def _print(kind: str, value: Any) -> None:
    print(json.dumps([kind, value]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
