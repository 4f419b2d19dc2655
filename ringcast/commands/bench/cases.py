"""Define cases of a benchmark and their measurements: plain data that travels as JSON between benchmark and workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench.systems.workload import COMBINING, POINT_TO_POINT, window
from ringcast.wire import collective
from ringcast.wire.collective import Parts

OURS = "ringcast"  # the name of this library as a system; the others are peers
_MEASURED = [one for one in collective.COLLECTIVES.values() if one.listed]  # the others do the same by other names
COLLECTIVES = (*(one.name for one in _MEASURED), *POINT_TO_POINT)
EMPTY = tuple(one.name for one in _MEASURED if one.parts is Parts.NONE)
REGULAR = tuple(one.name for one in _MEASURED if one.parts is Parts.EQUAL)
PARTED = (*REGULAR, *(one.name for one in _MEASURED if one.parts is Parts.COUNTS))
IRREGULAR = tuple(name for name in PARTED if name not in (*REGULAR, *COMBINING))  # parts are as a distribution says


@dataclass(frozen=True, slots=True)
class Case:
    """One collective on one amount of data.

    Data is uint8, for collectives in `systems.workload.COMBINING` float64. `nbytes` is the vector for bcast, reduce,
    allreduce, scan, exscan and shift; the sum of all parts for allgather, allgatherv, gather, scatter and merge_sorted;
    one rank's whole input for reduce_scatter, alltoall and alltoallv; one message for latency and bandwidth; and 0 for
    barrier. A shift has the distance 1.

    One repetition is one call; for latency, a message from rank 0 to rank 1 and one of the same size back; for
    bandwidth, `systems.workload.window` messages from rank 0 to rank 1 in a row, and an empty one back.
    """

    collective: str
    size: int  # ranks
    nbytes: int
    distribution: str = ""  # of the parts of the `IRREGULAR` collectives; "" for everything else
    # Bytes of each rank's part, for the `PARTED` collectives; () for the others. Of an alltoallv, rank r has part
    # (r + j) mod p for rank j: so every rank gets as much from each rank as it gives to it.
    parts: tuple[int, ...] = ()
    root: int = 0
    algorithm: str | None = None  # None: the library chooses
    nblocks: int | None = None  # None: the library chooses
    check: bool = False  # compare the result, once, outside the timed part
    warmup: int = 1  # repetitions that are not timed
    repeat: int = 5  # timed repetitions: many short ones, few long ones

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict that `json.dumps` takes."""
        return {**asdict(self), "parts": list(self.parts)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Case:
        """Return the case whose `to_json` gave `fields`."""
        return cls(**{**fields, "parts": tuple(fields["parts"])})


def title(case: Case) -> str:
    """Return the title of the collective in tables and plots, with its distribution where it has one."""
    return " ".join(filter(None, (case.collective, case.distribution)))


def messages(case: Case) -> int:
    """Return the number of messages of the case's size in one repetition; 1 for collectives."""
    return {"latency": 2, "bandwidth": window(case.nbytes)}.get(case.collective, 1)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case on one system."""

    case: Case
    system: str
    seconds: tuple[float, ...] = ()  # of the slowest rank, for every repetition; () if nothing could be measured
    algorithm: str | None = None  # the algorithm that ran; None: unknown
    nblocks: int | None = None
    rounds: int | None = None
    version: str = ""
    command: str = ""  # the command that started the ranks; "": there is no command that a person could type
    problem: str = ""  # why there are no figures, or why they are not credible; "": all is well
