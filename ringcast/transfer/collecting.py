"""Copy files from all other ranks to rank 0: an irregular gather, in which each rank has rank 0's link for itself.

Each copy is one of `copying`, in a communicator of rank 0 and the rank that has the files. A rank whose files cannot be
read, or that is lost, stops only its own copy.
"""

from __future__ import annotations

import glob
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ringcast._util.dataclass import dataclass
from ringcast.errors import PeerFailed, Revoked, TransferError
from ringcast.transfer.copying import Watch, copy_files
from ringcast.transfer.listing import Listing, scan
from ringcast.transfer.options import Options
from ringcast.transfer.records import Ranks, brief, exchanged
from ringcast.transfer.report import CopyReport, Progress, RankReport
from ringcast.wire.codec import Count


@dataclass(frozen=True, slots=True)
class _Offered:
    """The files that a rank has, and its hostname; `error` names those that it cannot give, `gives`: it has others."""

    host: str
    nbytes: Count = 0
    error: str = ""
    gives: bool = True


def collect_files(
    comm: Ranks, sources: Sequence[str], targets: Sequence[str], options: Options, watch: Watch | None = None
) -> CopyReport | None:
    """Copy files of ranks 1, 2, ... to rank 0, in this order; return a report of all on rank 0.

    Args:
        comm: of all ranks.
        sources: files of each rank but rank 0, and patterns of names such as `*.log`.
        targets: on rank 0, the directory for the files of each other rank.
        options: of each copy.
        watch: called on rank 0 after each piece.

    Raises:
        TransferError: a rank was lost before the first copy began.
    """
    began, listing = time.monotonic(), None
    offered = _Offered(socket.gethostname())
    if comm.rank:
        listing, offered = _listed(sources, options)
    try:
        offers = exchanged(comm, offered)
        pairs = [comm.create((0, rank)) for rank in range(1, len(offers))]
    except (PeerFailed, Revoked) as error:
        raise TransferError(f"nothing was copied: {error}") from None
    if comm.rank:
        if listing is not None:
            with suppress(TransferError):  # rank 0 has it, too
                copy_files(pairs[comm.rank - 1], (), "", 1, options, listing=listing)
        return None
    taken = _Taken(sum(offer.nbytes for offer in offers), watch)
    for member, offer, pair, target in zip(comm.members[1:], offers[1:], pairs, targets, strict=True):
        taken.take(pair, member, offer, target, options)
    return taken.report(time.monotonic() - began)


class _Taken:
    """The copies that rank 0 has got so far."""

    def __init__(self, total: int, watch: Watch | None) -> None:
        self._total, self._watch = total, watch
        self._reports: list[CopyReport] = []
        self._ranks: list[RankReport] = []
        self._before = 0  # bytes of the ranks whose copies are over

    def take(self, pair: Ranks, member: int, offer: _Offered, target: str, options: Options) -> None:
        """Copy the files of a rank; an error is kept for the report."""
        host = brief(offer.host)
        mine = RankReport(member, host, error=brief(offer.error))
        if offer.gives:
            try:
                report = copy_files(pair, (), os.path.join(target, ""), 1, options, self._show)
            except TransferError as error:
                lost = isinstance(error.__context__, PeerFailed | Revoked)
                why = str(error).removeprefix("rank 0: ")
                mine = RankReport(member, "" if lost else host, error=_both(mine.error, why))
            else:
                self._reports.append(report)
                why = _both(mine.error, report.ranks[0].error)
                mine = replace(report.ranks[0], rank=member, host=host, error=why)
        self._ranks.append(mine)
        self._before += offer.nbytes

    def report(self, seconds: float) -> CopyReport:
        """Return one report of all copies."""
        files, nbytes, sent, travelled = (
            sum(getattr(each, name) for each in self._reports) for name in ("files", "nbytes", "sent", "travelled")
        )
        return CopyReport(files, nbytes, sent, travelled, seconds, tuple(self._ranks))

    def _show(self, progress: Progress) -> None:
        if self._watch is not None:
            self._watch(Progress(self._before + progress.done, max(self._total, self._before + progress.total)))


def _listed(sources: Sequence[str], options: Options) -> tuple[Listing | None, _Offered]:
    """Return the files of this rank, and the record of them for rank 0; paths that cannot be read are left out."""
    host = socket.gethostname()
    listing, problems = _scanned([path for source in sources for path in _matching(source)], options.recursive)
    nbytes = 0 if listing is None else listing.manifest.nbytes
    return listing, _Offered(host, nbytes, brief("; ".join(problems)), listing is not None)


def _scanned(paths: Sequence[str], recursive: bool) -> tuple[Listing | None, list[str]]:
    """Return the files at those paths that can be read, None if there are none, and the problems with the others."""
    try:
        return scan(paths, recursive), []
    except TransferError as error:
        problems = [str(error)]
    single = [_scanned([path], recursive) for path in paths] if len(paths) > 1 else []
    right = [path for path, (listing, _) in zip(paths, single, strict=False) if listing is not None]
    if not right or len(right) == len(paths):  # these have the problem together, as two files of one name
        return None, problems
    listing, more = _scanned(right, recursive)
    return listing, [problem for _, each in single for problem in each] + more


def _both(first: str, second: str) -> str:
    return "; ".join(filter(None, (first, second)))


def _matching(source: str) -> list[str]:
    """Return the paths that match a pattern, sorted; the path itself if there is such a file, or no match."""
    if os.path.lexists(source) or not glob.has_magic(source):
        return [source]
    return sorted(glob.glob(source)) or [source]
