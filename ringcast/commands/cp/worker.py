"""Run a rank of `ringcast cp`: rank 0 has the files, reads the order from stdin, and prints progress and report."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import ringcast
from ringcast.commands.cp.order import Answer, Order, below_home, line
from ringcast.transfer.copying import copy_files
from ringcast.transfer.records import Failed, announced
from ringcast.transfer.report import Progress
from ringcast.transfer.seal import Seal
from ringcast.wire.codec import decode

_PAUSE = 0.1  # seconds between two lines of progress


def main() -> int:
    """Copy, and return the exit code of this rank; its argument is the public key of the copy."""
    comm = ringcast.init()
    public = bytes.fromhex(sys.argv[1])
    try:
        if comm.rank == 0:
            own: Order = decode(sys.stdin.buffer.read(), (Order,))
            seal = Seal(public, own.secret)
            order = announced(comm, 0, Order, lambda: replace(own, sources=(), secret=b""), seal)
            sources, watch = [os.fsdecode(source) for source in own.sources], _Reporter()
        else:
            seal = Seal(public)
            order = announced(comm, 0, Order, seal=seal)
            sources, watch = [], None
        report = copy_files(comm, sources, below_home(os.fsdecode(order.target)), 0, order.options, watch, seal)
    except ringcast.TransferError as error:
        if comm.rank == 0:
            _print(Failed(str(error)))
        return 1
    if comm.rank == 0:
        _print(report)
    return 0


class _Reporter:
    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self._next or progress.done == progress.total:
            _print(progress)
            self._next = now + _PAUSE


def _print(answer: Answer) -> None:
    print(line(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
