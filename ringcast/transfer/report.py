"""Report of a copy: what became of it on each rank."""

from __future__ import annotations

from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.transfer.manifest import DIRECTORY, Manifest


@dataclass(frozen=True, slots=True)
class RankReport:
    """What became of the files on one rank.

    Attributes:
        rank: in the job, as `Communicator.members` counts.
        host: name of its machine, as that calls itself; empty where the rank was lost.
        written: bytes that were written.
        found: bytes that were there already.
        seconds: time that hashing and writing took.
        stalled: seconds for which its disk made all others wait, beyond what the quickest disk did.
        error: why files are missing there; empty if every byte is there.
    """

    rank: int
    host: str
    written: int = 0
    found: int = 0
    seconds: float = 0.0
    stalled: float = 0.0
    error: str = ""

    def plain(self) -> list[Any]:
        return [self.rank, self.host, self.written, self.found, self.seconds, self.stalled, self.error]


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What became of a copy, alike on all ranks that are left.

    Attributes:
        files: number of files and links.
        nbytes: their content.
        sent: bytes of content that the root sent.
        travelled: what these were on the way: less, where they were compressed.
        seconds: from the manifest to the end, on this rank.
        ranks: of each rank but the root, in order.
    """

    files: int
    nbytes: int
    sent: int
    travelled: int
    seconds: float
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
    """

    done: int
    total: int
    slowest: int | None = None


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
