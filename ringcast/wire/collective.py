"""The table of all collectives: what is true of each, whatever its algorithm; everything else derives from it.

It stands in `wire`, the lowest room that needs it: every message carries a byte for its collective. Schedules,
algorithms, analysis, the calls and the commands lie above and may import it. What only one room knows (schedules,
postconditions, calls of other libraries) stays there, under the names of this table.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from ringcast._util.dataclass import dataclass


class Parts(Enum):
    """How the data of a call is divided among the ranks."""

    NONE = auto()  # there is no data
    ONE = auto()  # it is not divided
    EQUAL = auto()
    COUNTS = auto()  # as the counts say


class Volume(Enum):
    """The bytes that the busiest rank must at least send or receive: m of the whole buffer, m_r of rank r's part."""

    NONE = auto()  # no bound
    VECTOR = auto()  # m
    TWICE = auto()  # 2 m (p-1)/p
    GATHERED = auto()  # all parts but its own, or its own to others
    SCATTERED = auto()  # all parts but its own
    ROOTED = auto()  # all parts but the root's
    EXCHANGED = auto()  # all parts but the one that it keeps for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The facts of one collective."""

    name: str
    parts: Parts = Parts.ONE
    wire_volume: Volume
    rooted: bool = False  # it has a root
    combines: bool = False  # it has an operator
    exchanges: bool = False  # a rank gets as much as it gives: the buffer has both
    distance: bool = False  # it has a distance
    whole: bool = False  # one rank's value, where there are parts, is all of them, not its own
    announced: bool = False  # the root first describes what it sends
    table: str = ""  # the collective whose algorithms it uses; "": it has its own
    point_to_point: bool = False  # without a schedule
    neighbors: bool = False  # between the neighbours in a topology, which has the schedule

    @property
    def algorithms(self) -> str:
        """The collective under which its algorithms are listed."""
        return self.table or self.name

    @property
    def listed(self) -> bool:
        """Whether it has algorithms of its own."""
        return self.chooses and not self.table

    @property
    def chooses(self) -> bool:
        """Whether a call chooses an algorithm."""
        return not self.point_to_point and not self.neighbors

    @property
    def counts_known(self) -> bool:
        """Whether all ranks know the counts when they choose; in an exchange each rank has its own."""
        return self.parts is Parts.COUNTS and not self.exchanges

    @property
    def fingerprint_byte(self) -> int:
        """The byte that stands for it in the header of every message."""
        return byte(self.name)

    def parts_of(self, size: int) -> int | None:
        """Return how many parts a schedule for `size` ranks has; None: any number."""
        if self.exchanges:
            return 2 if self.parts is Parts.ONE else 2 * size
        return size if self.parts in (Parts.EQUAL, Parts.COUNTS) else None


def byte(text: str) -> int:
    """Return the byte that stands for `text` in a fingerprint."""
    return zlib.crc32(text.encode()) & 0xFF


_V, _EQUAL, _COUNTS = Volume, Parts.EQUAL, Parts.COUNTS
_ALL = (
    Collective(name="bcast", wire_volume=_V.VECTOR, rooted=True, announced=True),
    Collective(name="reduce", wire_volume=_V.VECTOR, rooted=True, combines=True),
    Collective(name="allreduce", wire_volume=_V.TWICE, combines=True),
    Collective(name="allgather", parts=_EQUAL, wire_volume=_V.GATHERED),
    Collective(name="allgatherv", parts=_COUNTS, wire_volume=_V.GATHERED),
    Collective(name="reduce_scatter", parts=_COUNTS, wire_volume=_V.SCATTERED, combines=True, whole=True),
    Collective(name="gather", parts=_EQUAL, wire_volume=_V.ROOTED, rooted=True),
    Collective(name="gatherv", parts=_COUNTS, wire_volume=_V.ROOTED, rooted=True, table="gather"),
    Collective(name="scatter", parts=_EQUAL, wire_volume=_V.ROOTED, rooted=True, whole=True, announced=True),
    Collective(
        name="scatterv",
        parts=_COUNTS,
        wire_volume=_V.ROOTED,
        rooted=True,
        whole=True,
        announced=True,
        table="scatter",
    ),
    Collective(name="scan", wire_volume=_V.VECTOR, combines=True),  # all that rank 0 has; and a sum is no shorter
    Collective(name="exscan", wire_volume=_V.VECTOR, combines=True),
    Collective(name="alltoall", parts=_EQUAL, wire_volume=_V.EXCHANGED, exchanges=True, whole=True),
    Collective(name="alltoallv", parts=_COUNTS, wire_volume=_V.EXCHANGED, exchanges=True, whole=True),
    Collective(name="shift", wire_volume=_V.VECTOR, exchanges=True, distance=True),
    Collective(name="merge_sorted", parts=_COUNTS, wire_volume=_V.GATHERED),
    Collective(name="barrier", parts=Parts.NONE, wire_volume=_V.NONE),
    Collective(name="sendrecv", wire_volume=_V.NONE, point_to_point=True),
    *(
        Collective(name=f"neighbor_{name}", parts=parts, wire_volume=_V.NONE, exchanges=True, neighbors=True)
        for name, parts in (
            ("allgather", _EQUAL),
            ("allgatherv", _COUNTS),
            ("alltoall", _EQUAL),
            ("alltoallv", _COUNTS),
        )
    ),
)

COLLECTIVES: Mapping[str, Collective] = MappingProxyType({one.name: one for one in _ALL})
BY_BYTE: Mapping[int, str] = MappingProxyType({one.fingerprint_byte: one.name for one in _ALL})
assert len(BY_BYTE) == len(_ALL), "two collectives have the same byte in fingerprints"
