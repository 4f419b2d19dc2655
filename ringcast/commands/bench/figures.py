"""Compute the figures of a measurement: a row of the text, and of the JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast._util.output_files import write_whole
from ringcast.commands.bench.cases import OURS, Case, Measurement, messages
from ringcast.commands.bench.limits import beats_wire, wire_limit

MAIN, TUNE = "main", "tune"  # tables
AROUND = "went around the wire"


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one system, judged. Times are seconds: of a call, or of one message for latency and bandwidth."""

    case: Case
    system: str
    version: str
    command: str  # the command that started the ranks; "": unknown
    algorithm: str | None
    nblocks: int | None
    rounds: int | None
    by_hand: bool  # whether the case prescribes algorithm or block count
    repetitions: int
    median: float | None  # None: there are no credible figures, and `problem` says why
    least: float | None
    limit: float | None  # the least time that the wire allows
    problem: str
    table: str = MAIN

    @property
    def times_limit(self) -> float | None:
        """The median in units of the limit of the wire."""
        return None if self.median is None or self.limit is None else self.median / self.limit

    def to_json(self) -> dict[str, Any]:
        """Return the object for this row in the file of `--json`."""
        return {
            "system": self.system,
            "version": self.version,
            "command": self.command or None,
            "collective": self.case.collective,
            "p": self.case.size,
            "bytes": self.case.nbytes,
            "distribution": self.case.distribution or None,
            "algorithm": self.algorithm,
            "nblocks": self.nblocks,
            "rounds": self.rounds,
            "choice": "by hand" if self.by_hand else "automatic",
            "repetitions": self.repetitions,
            "median_s": self.median,
            "min_s": self.least,
            "limit_s": self.limit,
            "limit_ratio": self.times_limit,
            "problem": self.problem or None,
            "table": self.table,
        }


def judge(measurement: Measurement, rate: int | None, table: str = MAIN) -> Row:
    """Return the row of a measurement on links of `rate` bit/s; a measurement that is not credible has no figures."""
    case, seconds = measurement.case, measurement.seconds
    problem = measurement.problem
    if not problem and beats_wire(measurement, rate):
        problem = f"{AROUND}: {min(seconds) * 1e6:.0f} µs, faster than the links can be"
    each = messages(case)
    return Row(
        case,
        measurement.system,
        measurement.version,
        measurement.command,
        measurement.algorithm,
        measurement.nblocks,
        measurement.rounds,
        measurement.system == OURS and (case.algorithm is not None or case.nblocks is not None),
        len(seconds),
        None if problem else median(seconds) / each,
        None if problem else min(seconds) / each,
        wire_limit(case, rate),
        problem,
        table,
    )


def distrust(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without the figures of systems that went around the wire in any of them.

    The time of a small message does not show whether it took another way; but a library takes one way for all sizes.
    """
    caught = {row.system for row in rows if row.problem.startswith(AROUND)}
    return [_refused(row) if row.system in caught and not row.problem else row for row in rows]


def _refused(row: Row) -> Row:
    return replace(row, median=None, least=None, problem=f"not believed: with other data it {AROUND}")


def write_json(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as a list of objects; the file is whole, or as it was before.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps([row.to_json() for row in rows], indent=1) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))
