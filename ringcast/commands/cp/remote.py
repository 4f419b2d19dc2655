"""Copy a remote source to the hosts: ranks 1, 2, ... read it together, rank 0 shows the progress and has the report."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.commands.cp.order import Order, below_home
from ringcast.errors import PeerFailed, Revoked, TransferError
from ringcast.transfer.downloading import Downloaded, download_files
from ringcast.transfer.records import Seconds, brief, exchanged
from ringcast.transfer.report import CopyReport, Moved, Progress, RankReport
from ringcast.transfer.survivors import survivors
from ringcast.wire.codec import Count

_PAUSE = 0.1  # seconds between two messages of progress
_OVER = np.array([-1, -1, -1])  # the last one


@dataclass(frozen=True, slots=True)
class _Ended:
    """The outcome on a rank; `failed`: it has no files at all, for this reason."""

    host: str
    files: Count = 0
    nbytes: Count = 0
    written: Count = 0
    seconds: Seconds = 0.0
    error: str = ""
    failed: str = ""
    source: Moved = Moved()
    network: Moved = Moved()


def copy_remote(comm: Any, order: Order, watch: Callable[[Progress], object] | None) -> CopyReport | None:
    """Copy the source of an order to all ranks but rank 0; return the report on rank 0.

    Raises:
        TransferError: the source cannot be read.
    """
    hosts = comm.create(range(1, comm.size))
    if hosts is None:
        assert watch is not None
        _follow(comm, watch)
        mine = _Ended(socket.gethostname())
    else:
        mine = _copied(comm, hosts, order)
    found, lost = _exchanged(comm, mine)
    if hosts is not None:
        return None
    failed = [each.failed for each in found.values() if each.failed]
    if failed and len(failed) == len(found) - 1:
        raise TransferError(brief(failed[0]))
    return _report(range(1, comm.size), found, lost)


def _copied(comm: Any, hosts: Any, order: Order) -> _Ended:
    """Copy on this rank; the first one tells rank 0 how far it is."""
    source, target = os.fsdecode(order.sources[0]), below_home(os.fsdecode(order.target))
    next_time = 0.0

    def tell(progress: Progress) -> None:
        nonlocal next_time
        if time.monotonic() >= next_time or progress.done == progress.total:
            next_time = time.monotonic() + _PAUSE
            _send(comm, np.array([progress.done, progress.total, progress.network]))

    done, failed, first = Downloaded(), "", hosts.rank == 0
    try:
        done = download_files(hosts, source, target, order.options, order.connections, tell if first else None)
    except TransferError as error:
        failed = brief(str(error))
    if first:
        _send(comm, _OVER)
    facts = done.files, done.nbytes, done.written, done.seconds
    return _Ended(socket.gethostname(), *facts, done.error or failed, failed, done.source, done.network)


def _send(comm: Any, numbers: Any) -> None:
    with suppress(PeerFailed, Revoked):  # the end of the copy finds that out
        comm.send(numbers, 0)


def _follow(comm: Any, watch: Callable[[Progress], object]) -> None:
    """Show the progress that rank 1 tells, until it ends."""
    with suppress(PeerFailed, Revoked):
        while (numbers := np.asarray(comm.recv(1))).shape == (3,) and numbers.min() >= 0:
            watch(Progress(int(numbers[0]), int(numbers[1]), network=int(numbers[2])))


def _exchanged(comm: Any, mine: _Ended) -> tuple[dict[int, _Ended], dict[int, str]]:
    """Return the outcomes of all ranks that are left, and why the others were lost."""
    lost: dict[int, str] = {}
    while True:
        try:
            return dict(zip(comm.members, exchanged(comm, mine), strict=True)), lost
        except (PeerFailed, Revoked) as error:
            comm, more = survivors(comm, error)
            lost |= more


def _report(ranks: Sequence[int], found: dict[int, _Ended], lost: dict[int, str]) -> CopyReport:
    reports = []
    for rank in ranks:
        if rank in lost:
            reports.append(RankReport(rank, "", error=brief(lost[rank])))
        else:
            ended = found[rank]
            there = ended.nbytes - ended.written if not ended.error else 0
            mine = RankReport(rank, brief(ended.host), ended.written, there, ended.seconds, error=brief(ended.error))
            reports.append(replace(mine, source=ended.source, network=ended.network))
    whole = max((found[rank] for rank in ranks if rank in found), key=lambda each: each.nbytes)
    read = max(each.written for each in reports)
    return CopyReport(whole.files, whole.nbytes, read, read, whole.seconds, tuple(reports))
