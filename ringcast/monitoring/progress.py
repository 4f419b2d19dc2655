"""Snapshot of a job's progress in a few numbers, for a status line that is drawn every second.

The snapshots of several hosts add up to the job's.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field

from ringcast._util.dataclass import dataclass
from ringcast.wire.flight import FILE, rank_snapshot

DRAWING = "drawing"  # a file in the job's directory


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """Progress of several ranks: how many are in the job, their operations, and the bytes that they have sent."""

    ranks: int = 0  # ranks that have called `init` and not left
    operations: Mapping[str, int] = field(default_factory=dict)  # such as "#17 allreduce", and how many ranks are in it
    sent: int = 0  # also by ranks that have left
    drawing: bool = False  # whether a rank draws on the terminal itself

    def __add__(self, other: ProgressSnapshot) -> ProgressSnapshot:
        return ProgressSnapshot(
            self.ranks + other.ranks,
            Counter(self.operations) + Counter(other.operations),
            self.sent + other.sent,
            self.drawing or other.drawing,
        )


def progress_snapshot(directory: str, ranks: Iterable[int]) -> ProgressSnapshot:
    """Return the snapshot of these ranks, whose flight records are in this directory."""
    drawing = ProgressSnapshot(drawing=os.path.exists(os.path.join(directory, DRAWING)))
    return sum((_of_one(os.path.join(directory, FILE.format(rank=rank))) for rank in ranks), drawing)


def draws(directory: str) -> None:
    """Record, for readers of this directory, that a rank draws on the terminal itself."""
    with suppress(OSError):
        os.close(os.open(os.path.join(directory, DRAWING), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _of_one(path: str) -> ProgressSnapshot:
    try:
        with open(path, "rb", buffering=0) as file:
            seen = rank_snapshot(file.read())
    except OSError:
        return ProgressSnapshot()
    if seen is None or seen.left:
        return ProgressSnapshot(sent=seen.sent if seen else 0)
    entry = seen.entry
    if entry is None or entry.state != "running":
        return ProgressSnapshot(1, sent=seen.sent)
    name = f"{entry.label} {entry.collective}" if entry.number else entry.collective
    return ProgressSnapshot(1, {name: 1}, seen.sent)
