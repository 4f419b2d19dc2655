"""Time the allreduce of an array between the actors of a Ray cluster: by ringcast, by Gloo, by the object store.

python docs/scripts/ray_allreduce.py --actors 4 --bytes 10000000
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import ray
from ray.util import collective

import ringcast.ray  # noqa: F401 (it registers the backend here; the hook does so in the actors)


@ray.remote(num_cpus=0)
class Actor:
    """A rank with an array."""

    def __init__(self, size: int, rank: int, items: int) -> None:
        self.size, self.rank, self.array = size, rank, np.ones(items, np.float32)

    def join(self, backend: str) -> None:
        """Join the group of a backend; the group has the backend's name."""
        collective.init_collective_group(self.size, self.rank, backend, backend)

    def allreduce(self, backend: str, calls: int) -> list[float]:
        """Return the seconds of each call."""
        seconds = []
        for _ in range(calls):
            collective.barrier(backend)
            begun = time.perf_counter()
            collective.allreduce(self.array, backend)
            seconds.append(time.perf_counter() - begun)
            self.array[:] = 1
        return seconds

    def give(self) -> Any:
        """Return the array, by the object store."""
        return self.array

    def add(self, *arrays: Any) -> Any:
        """Return the sum of all arrays, by the object store."""
        return np.sum(arrays, axis=0)

    def take(self, total: Any) -> None:
        """Take the sum."""
        self.total = total


def by_store(actors: list[Any]) -> float:
    """Return the seconds in which one actor adds the arrays of all, and all get the sum."""
    begun = time.perf_counter()
    total = actors[0].add.remote(*(actor.give.remote() for actor in actors))
    ray.get([actor.take.remote(total) for actor in actors])
    return time.perf_counter() - begun


def main() -> None:
    """Print the median of the slowest actor's times, in ms."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=10, help="in each all systems take turns, with 10 calls each")
    options = parser.parse_args()
    hook = {"worker_process_setup_hook": "ringcast.ray.register"}
    ray.init(num_cpus=options.actors, include_dashboard=False, log_to_driver=False, runtime_env=hook)
    actors = [Actor.remote(options.actors, rank, options.bytes // 4) for rank in range(options.actors)]  # type: ignore[attr-defined]
    backends = ["ringcast", *(["gloo"] if collective.gloo_available() else [])]
    for backend in backends:
        ray.get([actor.join.remote(backend) for actor in actors])
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for backend in backends:
            times = ray.get([actor.allreduce.remote(backend, 10) for actor in actors])
            found.setdefault(backend, []).extend(map(max, zip(*times, strict=True)))
        found.setdefault("object store", []).append(by_store(actors))
    for name, seconds in found.items():
        print(f"{name}: {1000 * statistics.median(seconds):.2f} ms")
    ray.shutdown()


if __name__ == "__main__":
    main()
