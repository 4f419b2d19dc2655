"""Boosted stumps learn from rows that lie on all ranks, as LightGBM's data-parallel trees do: by sums of histograms.

    ringcast-launch -n 3 examples/histograms.py

In each round every rank adds up its own rows by feature and bin. A `reduce_scatter` adds these histograms (1 to 50 kB)
and gives each rank the sums of some features, for which it finds the best splits. An `allgatherv` tells all ranks the
splits of all features, and the best one becomes a stump. Numbers are whole, so that sums do not depend on their order:
at the end rank 0 learns from all rows by itself, and compares. The calls of all rounds are then made again, and timed.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import numpy.typing as npt

import ringcast

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ROWS, FEATURES, BINS, UNIT, RATE = 6000, 195, 16, 1 << 16, 10


def main() -> None:
    parser = argparse.ArgumentParser(description="boosted stumps on several ranks")
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    with ringcast.init() as comm:
        begin, end = ROWS * comm.rank // comm.size, ROWS * (comm.rank + 1) // comm.size
        bins, wanted = data()
        stumps, left = learn(bins[begin:end], wanted[begin:end], rounds, comm)
        loss = comm.allreduce(float((left / UNIT) @ (left / UNIT))) / ROWS
        seconds = comm.allreduce(time_of_calls(rounds, comm), max)
        if comm.rank == 0:
            expected, _ = learn(bins, wanted, rounds, None)
            if stumps != expected:
                sys.exit("these are not the stumps that one process finds")
            print(f"{rounds} stumps on {comm.size} ranks: loss {loss:.3f}, as with one process")
            print(f"{2 * rounds} calls took {seconds:.3f} s")


def data() -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return the bin of each row in each feature, and what is to be learned of each row, in units."""
    random = np.random.default_rng(1)
    bins = random.integers(0, BINS, (ROWS, FEATURES), np.uint8)
    wanted = np.tanh(bins[:, ::9] / BINS - 0.5) @ random.standard_normal(len(range(0, FEATURES, 9)))
    return bins, np.rint(wanted * UNIT).astype(np.int64)


def learn(
    bins: npt.NDArray[np.uint8], wanted: Ints, rounds: int, comm: ringcast.Communicator | None
) -> tuple[list[tuple[int, ...]], Ints]:
    """Return so many stumps, and what they leave of what was wanted; `comm` has the rest of the rows."""
    left, stumps = wanted.copy(), list[tuple[int, ...]]()
    for features in chosen(rounds):
        sums = histograms(bins[:, features], left)
        splits = best_splits(sums) if comm is None else together(sums, comm)
        best = int(splits[:, 0].argmax())
        threshold, low, high = (int(number) for number in splits[best, 1:])
        stumps.append((int(features[best]), threshold, low, high))
        below = bins[:, features[best]] <= threshold
        left[below] -= low
        left[~below] -= high
    return stumps, left


def chosen(rounds: int) -> list[Ints]:
    """Return the features that each round looks at, the same on all ranks."""
    random = np.random.default_rng(2)
    return [random.choice(FEATURES, random.integers(4, FEATURES + 1), replace=False) for _ in range(rounds)]


def histograms(bins: npt.NDArray[np.uint8], left: Ints) -> Ints:
    """Return for each feature and bin the sum of `left`, and the number of rows."""
    features = bins.shape[1]
    first: Ints = BINS * np.arange(features, dtype=np.int64)
    places: Ints = (bins.astype(np.int64) + first).ravel()
    sums = np.bincount(places, np.repeat(left, features), BINS * features)
    return np.stack([sums.astype(np.int64), np.bincount(places, minlength=BINS * features)], -1).reshape(-1, BINS, 2)


def together(mine: Ints, comm: ringcast.Communicator) -> Floats:
    """Return the best split of each feature by the histograms of all ranks."""
    counts = shares(len(mine), comm.size)
    return comm.allgatherv(best_splits(comm.reduce_scatter(mine, counts=counts)), counts)


def shares(features: int, ranks: int) -> list[int]:
    """Return how many of so many features each rank looks at."""
    return [features * (rank + 1) // ranks - features * rank // ranks for rank in range(ranks)]


def best_splits(sums: Ints) -> Floats:
    """Return for each feature the gain of its best split, the last bin below it, and the values on both sides."""
    below = sums.cumsum(axis=1)[:, :-1]
    above = sums.sum(axis=1, keepdims=True) - below
    gains: Floats = gain(below) + gain(above)
    best = gains.argmax(axis=1)
    each = np.arange(len(sums))
    values = [side[each, best, 0] // (RATE * np.maximum(side[each, best, 1], 1)) for side in (below, above)]
    return np.stack([gains[each, best], best, *values], -1)


def gain(sums: Ints) -> Floats:
    """Return what it gains to give these rows a value of their own."""
    return sums[..., 0].astype(np.float64) ** 2 / np.maximum(sums[..., 1], 1)


def time_of_calls(rounds: int, comm: ringcast.Communicator) -> float:
    """Return the seconds that the calls of so many rounds take without the work between them."""
    counts = [shares(len(features), comm.size) for features in chosen(rounds)]
    sums = [np.ones((sum(each), BINS, 2), np.int64) for each in counts]
    splits = [np.ones((each[comm.rank], 4)) for each in counts]
    comm.barrier()
    start = time.perf_counter()
    for each, mine, found in zip(counts, sums, splits, strict=True):
        comm.reduce_scatter(mine, counts=each)
        comm.allgatherv(found, each)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
