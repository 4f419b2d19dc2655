"""Run a rank of `ringcast cp`. Rank 0 reads the order from stdin, and prints progress and report."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import ringcast
from ringcast.commands.cp.order import Answer, Order, below_home, line
from ringcast.commands.cp.remote import copy_remote
from ringcast.transfer.collecting import collect_files
from ringcast.transfer.copying import copy_files
from ringcast.transfer.records import Failed, announced
from ringcast.transfer.report import CopyReport, Progress
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
            announced(comm, 0, Order, lambda: _for_others(own), seal)
            order, watch = own, _Reporter()
        else:
            seal = Seal(public)
            order, watch = announced(comm, 0, Order, seal=seal), None
        sources = [os.fsdecode(source) for source in order.sources]
        report: CopyReport | None
        if order.connections:
            report = copy_remote(comm, order, watch)
        elif order.places:
            targets = [os.fsdecode(place) for place in order.places]
            report = collect_files(comm, [*map(below_home, sources)], targets, order.options, watch)
        else:
            report = copy_files(comm, sources, below_home(os.fsdecode(order.target)), 0, order.options, watch, seal)
    except ringcast.TransferError as error:
        if comm.rank == 0:
            _print(Failed(str(error)))
        return 1
    if report is not None and comm.rank == 0:
        _print(report)
    return 0


def _for_others(own: Order) -> Order:
    """Return the part of rank 0's order that the other ranks need: the places of their files are no business of theirs.

    They get the sources only if these are theirs.
    """
    if own.connections:
        return replace(own, secret=b"")
    if own.places:
        return replace(own, secret=b"", places=(b"",))
    return replace(own, sources=(), secret=b"")


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
