"""k-means that survives the death of ranks: the ranks that live divide the points anew, and go on.

    ringcast-launch -n 4 --on-failure continue examples/survive.py --lose 2

The points lie on the ranks in parts of very different sizes. Every rank that `--lose` names kills itself in the middle
of an iteration, the first one in iteration 5, the next one in iteration 6, and so on. The others learn of it in their
present call, or the next one, shrink the communicator to the ranks that live, and cut the points into new parts; each
rank makes its own. All ranks have the centres; rank 0's count, as some ranks may be an iteration ahead.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import numpy as np
import numpy.typing as npt

import ringcast

Floats = npt.NDArray[np.float64]

POINTS, CLUSTERS, ITERATIONS, FIRST_LOSS = 40_000, 5, 20, 5
CHUNK = 1000  # points that are made together


def main() -> None:
    parser = argparse.ArgumentParser(description="k-means that survives the death of ranks")
    parser.add_argument("--lose", type=int, action="append", default=[], metavar="RANK", help="a rank that dies")
    lose = parser.parse_args().lose
    world = ringcast.init()
    comm, centres = cluster(world, {rank: FIRST_LOSS + i for i, rank in enumerate(lose)})
    if comm.rank == 0:
        expected = START
        for _ in range(ITERATIONS):
            expected = means(*totals(points(0, POINTS), expected))
        if not np.allclose(centres, expected):
            sys.exit("these are not the centres that one process finds")
        print(f"{world.size} ranks began, {comm.size} finished: {', '.join(map(str, comm.members))}")
        print("the centres are those that one process finds")


def cluster(comm: ringcast.Communicator, dying: dict[int, int]) -> tuple[ringcast.Communicator, Floats]:
    """Return the ranks that live to the end, and the centres; `dying` tells in which iteration a rank dies."""
    me = comm.rank
    centres, iteration = START, 0
    mine: Floats | None = part(comm)
    while True:
        try:
            if mine is None:  # these ranks have just come together
                iteration, centres = comm.bcast((iteration, centres))
                mine = part(comm)
            if iteration == ITERATIONS:
                comm.agree()  # nobody leaves while another one still needs it
                return comm, centres
            sums, counts = totals(mine, centres)
            sums = comm.allreduce(sums)
            if dying.get(me) == iteration:
                os.kill(os.getpid(), signal.SIGKILL)
            centres = means(sums, comm.allreduce(counts))
            iteration += 1
        except (ringcast.PeerFailed, ringcast.Revoked):
            comm.revoke()
            comm, mine = comm.shrink(), None


def part(comm: ringcast.Communicator) -> Floats:
    """Return the points of this rank: rank r has r + 1 times as many as rank 0."""
    ends = np.cumsum(np.arange(comm.size + 1)) * POINTS // sum(range(comm.size + 1))
    return points(int(ends[comm.rank]), int(ends[comm.rank + 1]))


def points(start: int, stop: int) -> Floats:
    """Return the points start to stop - 1; any rank can make any of them."""
    first, last = start // CHUNK, -(-stop // CHUNK)
    chunks = [np.random.default_rng(chunk).random((CHUNK, 2)) ** 2 for chunk in range(first, last)]
    return np.concatenate([np.empty((0, 2)), *chunks])[start - first * CHUNK : stop - first * CHUNK]


def totals(mine: Floats, centres: Floats) -> tuple[Floats, Floats]:
    """Return, for every centre, the sum and the number of the points that are nearest to it."""
    distances = ((mine[:, None, :] - centres) ** 2).sum(axis=2)
    nearest = np.eye(len(centres))[distances.argmin(axis=1)]
    return nearest.T @ mine, nearest.sum(axis=0)


def means(sums: Floats, counts: Floats) -> Floats:
    """Return the new centres; one without points moves to the origin."""
    return sums / np.maximum(counts, 1)[:, None]


START = points(0, CLUSTERS)

if __name__ == "__main__":
    main()
