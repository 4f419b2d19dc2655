"""Report the outcome of a copy on each rank, and its progress."""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.transfer.manifest import DIRECTORY, Manifest
from ringcast.transfer.records import Ended, Seconds, brief
from ringcast.wire.codec import Count, Rank


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that a host has got, and the seconds for which that was under way."""

    nbytes: Count = 0
    seconds: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class RankReport:
    """The outcome of the copy on one rank.

    Attributes:
        rank: in the job, as `Communicator.members` counts.
        host: the hostname that the machine itself uses; empty if the rank was lost.
        written: bytes that were written.
        found: bytes that were there already.
        seconds: time that hashing and writing took.
        stalled: seconds for which its disk made all others wait, less the wait for the quickest disk.
        error: why files are missing there; empty if every byte is there.
        source: of a remote source: the bytes that this host has read from it; None in other copies.
        network: of a remote source: the bytes that other hosts have passed on to this one; None in other copies.
    """

    rank: Rank
    host: str
    written: Count = 0
    found: Count = 0
    seconds: Seconds = 0.0
    stalled: Seconds = 0.0
    error: str = ""
    source: Moved | None = None
    network: Moved | None = None


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The outcome of a copy, the same on all ranks that are left.

    Attributes:
        files: number of files and links.
        nbytes: bytes of their content.
        sent: bytes of content that the root sent.
        travelled: bytes of the messages with this content: fewer than `sent` where pieces were compressed.
        seconds: from the manifest to the end, on this rank.
        ranks: of each rank but the root, in order.
    """

    files: Count
    nbytes: Count
    sent: Count
    travelled: Count
    seconds: Seconds
    ranks: tuple[RankReport, ...]

    @property
    def ok(self) -> bool:
        """Whether every rank has every byte."""
        return not any(report.error for report in self.ranks)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy is, as the root knows it.

    Attributes:
        done: bytes sent.
        total: bytes to be sent.
        slowest: the rank whose disk took longest in the last segment; None before the end of the first one.
        network: bytes in a second that hosts pass on to the first of them, of a remote source; 0: none yet.
    """

    done: Count
    total: Count
    slowest: Rank | None = None
    network: Count = 0


def report_of(rank: int, told: Ended) -> RankReport:
    """Return the report of a rank from its own record; the caller names the rank, not the record."""
    error, host = brief(told.error), brief(told.host)
    return RankReport(rank, host, told.written, told.found, told.seconds, told.stalled, error)


def whole(manifest: Manifest, sent: int, travelled: int, seconds: float, ranks: list[RankReport]) -> CopyReport:
    """Return the report of all ranks."""
    return CopyReport(
        sum(entry.kind != DIRECTORY for entry in manifest.entries),
        manifest.nbytes,
        sent,
        travelled,
        seconds,
        tuple(sorted(ranks, key=lambda each: each.rank)),
    )
