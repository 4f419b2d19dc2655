"""The energy of particles that repel each other; each pair is computed once, by the rank that has its first particle.

    ringcast-launch -n 2 --profile report.html docs/scripts/profile_gallery/slow_rank.py

The fault: each rank has as many particles as the others, but the first particles have the most pairs.
Mended: particles are dealt like cards.
"""

import argparse

import numpy as np

import ringcast


def main() -> None:
    """Add up the energies of all pairs, step by step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--particles", type=int, default=1200)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    comm = ringcast.init()
    n = options.particles
    if options.mended:
        mine = range(comm.rank, n, comm.size)
    else:
        mine = range(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
    energies = []
    for step in range(options.steps):
        points = np.random.default_rng(step).random((n, 3))
        energy = sum((float(repulsion(points, i)) for i in mine), 0.0)
        energies.append(comm.allreduce(np.float64(energy)))
    if comm.rank == 0:
        print(f"mean energy {np.mean(energies):.4e}")


def repulsion(points: np.ndarray, i: int) -> np.float64:
    """Return the energy of a particle with all that come after it."""
    distances = np.sqrt(((points[i + 1 :] - points[i]) ** 2).sum(axis=1))
    total: np.float64 = (1 / distances).sum()
    return total


if __name__ == "__main__":
    main()
