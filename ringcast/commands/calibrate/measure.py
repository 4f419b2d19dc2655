"""Measure collectives on the real links of a job: over a grid of algorithms, numbers of blocks, and growing sizes.

All ranks must choose the same next case and its repetitions. So every decision follows from the time of the slowest
rank, which all of them know. The fastest repetition counts: other programs on the machines only add to the times, and
the constants are meant to describe the links.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.algorithms import ALGORITHMS, Params
from ringcast.collectives.rows import even
from ringcast.commands.calibrate.fit import Sample
from ringcast.communicator import Communicator
from ringcast.ops import MAX, SUM
from ringcast.schedules.placement import Hosts

SIZES = tuple(4**k << 10 for k in range(1, 8))  # bytes, 4 kB to 16 MB
BLOCKS = 1 << 12, 1 << 19  # bytes: real messages are not cut into smaller or larger blocks
LONGEST = 2.0  # seconds that one repetition may be expected to take
EACH = 0.15  # seconds for the repetitions of one case
REPEAT = 2, 11  # the least and the most repetitions
BUDGET = 60.0  # seconds for everything
PIPELINE, BLOCK = 16, 1 << 15  # blocks, and bytes of each, with which a lookahead is tried
LOOKAHEAD = 4 * BLOCK  # bytes; with less than two blocks, two blocks share a link and no latency is hidden
TRIALS = 7
WITHIN = 1 << 20, 1 << 24  # bytes that the ranks of a host gather from each other


@dataclass(frozen=True, slots=True)
class CalibrationCase:
    """A collective to be measured; `nbytes` is its whole buffer; `spike`: only rank 0 contributes."""

    collective: str
    algorithm: str
    nblocks: int = 1
    spike: bool = False
    nbytes: int = 0

    def __str__(self) -> str:
        return f"{self.collective} by {self.algorithm}, {self.nbytes} bytes in {self.nblocks} blocks"

    @property
    def fits(self) -> bool:
        """Whether the cost model would choose blocks of this size."""
        return self.nblocks == 1 or BLOCKS[0] <= self.nbytes // self.nblocks <= BLOCKS[1]

    def params(self, size: int, hosts: Hosts = ()) -> Params:
        """Return the case's parameters for the cost model on `size` ranks."""
        return Params(size, 0, self.nblocks, self._counts(size), hosts=hosts)

    def _counts(self, size: int) -> tuple[int, ...]:
        if self.spike:
            return (self.nbytes, *(0,) * (size - 1))
        if self.collective == "allgatherv":
            return even(self.nbytes, size)
        return even(self.nbytes // 8, size) if self.collective == "reduce_scatter" else ()


# With one contributor a round has one frame, with p it has p; a reduction combines data that other collectives only
# move; in the plain ring and on the plain circulant graph there are few rounds with large messages.
KINDS = (
    *(CalibrationCase("allgatherv", "circulant_blocks", n, spike=True) for n in (1, 2, 8, 32, 128)),
    *(CalibrationCase("allgatherv", "circulant_blocks", n) for n in (1, 4, 16)),
    CalibrationCase("allgatherv", "ring"),
    CalibrationCase("allgatherv", "pipelined_ring", 4),
    CalibrationCase("allgatherv", "circulant"),
    *(CalibrationCase("reduce", "circulant", n) for n in (1, 8, 32)),
    CalibrationCase("reduce_scatter", "circulant"),
    CalibrationCase("reduce_scatter", "pipelined_ring", 2),
)
# For data that moves within hosts, which happens only where hosts have several ranks.
SHARED = CalibrationCase("allgatherv", "full_lane"), CalibrationCase("reduce", "full_lane", 8)


def kinds_of(size: int, hosts: Hosts) -> tuple[CalibrationCase, ...]:
    """Return the kinds of cases that determine the constants of a job with these hosts."""
    if not hosts or ALGORITHMS["reduce"]["full_lane"].fits(Params(size, hosts=hosts)):
        return KINDS
    return KINDS + SHARED


def measure(comm: Communicator, tell: Callable[[CalibrationCase], None]) -> Iterator[Sample]:
    """Yield the time of each case: of the slowest rank in the fastest repetition. Collective.

    `tell` is called before each case. Takes not much more than BUDGET seconds.
    """
    growth = SIZES[1] / SIZES[0]
    last: dict[CalibrationCase, float] = {}  # seconds of each kind when it ran last
    spent = 0.0
    for nbytes in SIZES:
        times: dict[CalibrationCase, float] = {}
        for kind in kinds_of(comm.size, comm._group.hosts):
            case = replace(kind, nbytes=nbytes)
            expected = last.get(kind, min(last.values(), default=0.0)) * growth
            if not case.fits or spent > BUDGET or expected > LONGEST:
                continue
            tell(case)
            seconds = _repetitions(comm, _call(comm, case))
            spent += sum(seconds)
            times[kind] = min(seconds)
            yield Sample(
                case.collective, case.algorithm, case.params(comm.size, comm._group.hosts), nbytes, min(seconds)
            )
        if not times:
            return
        last |= times


def local_rate(comm: Communicator) -> float:
    """Return the seconds that a byte takes between ranks of one host; 0 if no ranks share a host. Collective.

    The hosts measure at the same time, and the slowest rank of all counts, as in a collective of the whole job. The
    difference between two sizes is taken, so that the time of a round cancels.
    """
    hosts = comm._group.hosts
    if not hosts:
        return 0.0
    part = comm.split(hosts[comm.rank])
    assert part is not None, "each rank has a host"
    most = max(map(hosts.count, hosts))
    seconds = []
    for nbytes in WITHIN:
        mine = np.ones(nbytes // part.size if part.size > 1 else 0, np.uint8)
        whole = np.empty((part.size, len(mine)), np.uint8)
        seconds.append(min(_repetitions(comm, partial(part.allgather, mine, out=whole))))
    part.free()
    volume = (WITHIN[1] - WITHIN[0]) * (most - 1) / most
    return max(0.0, (seconds[1] - seconds[0]) / volume)


def best_lookahead(comm: Communicator) -> int:
    """Return the lookahead in bytes that makes a pipeline of blocks faster by a fifth, or 0. Collective.

    The cost model has no term for a lookahead: it hides a latency that is longer than the time of a block, and in other
    networks it lets two blocks share a link. So it is tried, in turn with no lookahead.
    """
    protocol = comm._group.endpoint.protocol
    configured = protocol.lookahead
    call = _call(comm, CalibrationCase("allgatherv", "circulant_blocks", PIPELINE, spike=True, nbytes=PIPELINE * BLOCK))
    times: dict[int, list[float]] = {0: [], LOOKAHEAD: []}
    try:
        for _ in range(TRIALS):
            for protocol.lookahead, seconds in times.items():
                seconds.append(float(comm.allreduce(np.float64(_timed(comm, call)), MAX)))
            if max(times[0]) > LONGEST:  # so slow that bytes count, not latency
                return 0
    finally:
        protocol.lookahead = configured
    return LOOKAHEAD if median(times[LOOKAHEAD]) < 0.8 * median(times[0]) else 0


def _repetitions(comm: Communicator, call: Callable[[], object]) -> list[float]:
    """Return the seconds of the slowest rank in each repetition; the first one decides the number of repetitions."""
    first = float(comm.allreduce(np.float64(_timed(comm, call)), MAX))
    least, most = REPEAT
    more = max(least, min(most, int(EACH / first))) - 1
    others = comm.allreduce(np.array([_timed(comm, call) for _ in range(more)]), MAX)
    return [first, *others.tolist()]


def _timed(comm: Communicator, call: Callable[[], object]) -> float:
    comm.barrier()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _call(comm: Communicator, case: CalibrationCase) -> Callable[[], object]:
    """Return the call on this rank, with its buffers."""
    name, n, counts = case.algorithm, case.nblocks, case.params(comm.size).counts
    if case.collective == "allgatherv":
        mine, whole = np.ones(counts[comm.rank], np.uint8), np.empty(case.nbytes, np.uint8)
        return lambda: comm.allgatherv(mine, counts, out=whole, algorithm=name, nblocks=n)
    vector = np.ones(case.nbytes // 8)
    if case.collective == "reduce":
        result = np.empty_like(vector) if comm.rank == 0 else None
        return lambda: comm.reduce(vector, SUM, 0, out=result, algorithm=name, nblocks=n)
    part = np.empty(counts[comm.rank])
    return lambda: comm.reduce_scatter(vector, SUM, counts, out=part, algorithm=name, nblocks=n)
